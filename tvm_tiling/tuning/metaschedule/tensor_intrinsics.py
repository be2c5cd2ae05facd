"""TVM's tensor intrinsics, which a TuneContext imports, loaded without what takes most of the time.

The module parses some 250 functions, and takes the stack of Python twice for each. For a frame of the import system,
which is no file, inspect then asks every module of the process whether it is the one: 26 s of processor time where
PyTorch is loaded, 7 s if inspect knows these frames (TVM 0.27, one core). A thread of its own has few other frames,
however deep the stack of the caller is.
"""

from __future__ import annotations

import inspect
import os
import sys
from concurrent.futures import ThreadPoolExecutor

_MODULE = "tvm.s_tir.tensor_intrin"
_FRAMES = ("importlib._bootstrap", "importlib._bootstrap_external")


def load_tensor_intrinsics() -> None:
    """Import TVM's tensor intrinsics, unless they are there."""
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
