"""Import of TVM without what building and timing kernels on a CPU never use, in half of the time.

Left out are PyTorch, which TVM imports if it is installed; multi-device sessions, which cost a quarter of a second if
their library is not loaded yet, for the traceback of an error that TVM handles itself; and backends that other devices
and extensions register. The modules in LATER are imported on first access.
"""

from __future__ import annotations

import os
import sys
from importlib.util import LazyLoader

from ...lean_import import ChangedLoaders

LATER = frozenset({"tvm.relax", "tvm.s_tir.dlight", "tvm.s_tir.meta_schedule"})


def lean_tvm() -> None:
    """Configure this process for the lean import. To be called before TVM is imported, in processes that only build and
    time."""
    without_torch()
    sys.modules.setdefault("tvm.runtime.disco", None)  # type: ignore[arg-type]
    os.environ["TVM_DEVICE_BACKEND_AUTOLOAD"] = "0"
    sys.meta_path.insert(0, ChangedLoaders(dict.fromkeys(LATER, LazyLoader)))


def without_torch() -> None:
    """Prevent TVM from importing PyTorch."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
