"""Fast import of TVM's tensor intrinsics, which every TuneContext imports.

The module parses some 250 functions and inspects the Python stack twice for each. For a frame of the import system,
which has no file, inspect then searches every module of the process: 26 s of CPU time with PyTorch loaded, 7 s if
inspect knows these frames (TVM 0.27, one core). A new thread has few other frames, however deep the caller's stack is.
"""

from __future__ import annotations

import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor

_MODULE = "tvm.s_tir.tensor_intrin"
_FRAMES = ("importlib._bootstrap", "importlib._bootstrap_external")


def load_tensor_intrinsics() -> None:
    """Import TVM's tensor intrinsics unless they are loaded."""
    if _MODULE in sys.modules:
        return
    known: dict[str, str] = inspect.modulesbyfile  # type: ignore[attr-defined]  # inspect's own table, file to module
    mine = {os.path.abspath(f"<frozen {name}>"): name for name in _FRAMES}
    known.update(mine)
    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(_import).result()
    finally:
        for file in mine:
            known.pop(file, None)


def _import() -> None:
    import tvm.s_tir.tensor_intrin  # noqa: F401
