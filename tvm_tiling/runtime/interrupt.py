"""Ctrl-C while TVM runs a pass that is written in Python.

TVM's foreign-function layer hands on the errors of such passes by their names. It knows no KeyboardInterrupt and makes
a RuntimeError without a word of it, which neither callers nor the command line take for an interrupt.
"""

from __future__ import annotations

import tvm_ffi


def register() -> None:
    """Have interrupts come out of TVM as what they are."""
    tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)
