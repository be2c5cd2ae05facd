"""The launcher for parallel loops of kernels outside of models: a library of launch.c, linked when the first kernel is
loaded.

TVM calls register() on import (entry point group "tvm.backends"), so nothing else is loaded before the first kernel.
"""

from __future__ import annotations

import contextlib

from ..runtime import first_kernel
from ..runtime.native_library import NativeLibrary
from ..temporary import temporary_folder


def register() -> None:
    """Run kernels by launch.c if a C compiler is available."""
    first_kernel.provide(_library)


def _library() -> NativeLibrary | None:
    from tvm.support import cc

    from .cache_folder import CacheFolder
    from .kernel_cache import KernelCache
    from .native_objects import launch_object

    with temporary_folder() as folder:
        objects = launch_object(folder, None, KernelCache(CacheFolder()))
        if not objects:
            return None
        path = folder / "launch.so"
        with contextlib.suppress(RuntimeError, OSError):  # kernels run in TVM's pool
            cc.create_shared(str(path), objects, options=["-pthread"])
            return NativeLibrary(path)
    return None
