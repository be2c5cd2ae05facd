"""TVM imported without what building and timing kernels on a CPU never use: half of the time that it takes.

Left out: PyTorch, which TVM imports wherever that is installed; the sessions of many devices, which cost a quarter of a
second where their library is not loaded yet, for the trace of an error that TVM handles itself; and what other devices
and extensions register. Parts in LATER are imported when something of theirs is first asked for.
"""

from __future__ import annotations

import os
import sys
from importlib.util import LazyLoader

from ...lean_import import ChangedLoaders

LATER = frozenset({"tvm.relax", "tvm.s_tir.dlight", "tvm.s_tir.meta_schedule"})


def lean_tvm() -> None:
    """Make this process import TVM so. To be called before TVM is imported, by processes that only build and time."""
    without_torch()
    sys.modules.setdefault("tvm.runtime.disco", None)  # type: ignore[arg-type]
    os.environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "0"
    sys.meta_path.insert(0, ChangedLoaders(dict.fromkeys(LATER, LazyLoader)))


def without_torch() -> None:
    """Keep TVM from importing PyTorch."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
