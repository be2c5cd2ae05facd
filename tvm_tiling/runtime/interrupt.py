"""Ctrl-C during a TVM pass written in Python.

TVM's foreign-function layer transfers errors of such passes by name. It does not know KeyboardInterrupt and turns it
into an unspecific RuntimeError, which neither callers nor the command line recognise as an interrupt.
"""

from __future__ import annotations

import tvm_ffi


def register() -> None:
    """Make TVM propagate interrupts unchanged."""
    tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)
