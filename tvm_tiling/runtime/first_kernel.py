"""Makes kernels compiled for this CPU run on all cores: by launch.c if available, otherwise in TVM's thread pool.

TVM has no hook for a kernel's first call, and a check in every call would be too expensive for small kernels.
Executable.jit makes the functions of a tvm.compile result callable, usually in the thread that then calls them: the
address that parallel loops call, or the pool's cores, are set there. An exported library loaded by
tvm.runtime.load_module gets TVM's default.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm.runtime import Executable

from .launcher import launch_address, limit_thread
from .native_library import PREFIX, NativeLibrary
from .threads import chosen_cores, pool_is_set, set_pool_once

_MARK = "tvm_tiling_sets_cores"
_TARGET, _NAMES = "_get_target_string", "get_func_names"  # in modules compiled by LLVM
_LAUNCH = "TVMBackendParallelLaunch"

_library: Callable[[], NativeLibrary | None] = lambda: None  # noqa: E731


def provide(library: Callable[[], NativeLibrary | None]) -> None:
    """Let kernels run by the launch.c of the library returned by `library`, None if there is none."""
    global _library
    _library = library


def register(is_meant: Callable[[tvm.target.Target], bool]) -> None:
    """Select the launcher of kernels whose target satisfies `is_meant`, before they are loaded; idempotent."""
    original = Executable.jit
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def jit(self: Executable, **options: Any) -> Any:
        if getattr(self, _MARK, False) or not any(map(is_meant, _targets(self.mod))):
            return original(self, **options)
        setattr(self, _MARK, True)
        launch = launch_address(_library, chosen_cores())
        if launch is None:
            if not pool_is_set():
                set_pool_once()
            return original(self, **options)
        limit_thread(chosen_cores())
        with _parallel_loops_call(launch):
            module = original(self, **options)
            for each in _compiled(module):
                if names := each.get_function(_NAMES)():
                    each.get_function(str(names[0]).removeprefix(PREFIX))  # loads the code, which sets the address
        return module

    setattr(jit, _MARK, True)
    Executable.jit = jit


def _compiled(module: Any) -> list[Any]:
    """The modules compiled by LLVM."""
    found: list[Any] = module._collect_from_import_tree(lambda each: each.kind == "llvm")
    return found


def _targets(module: Any) -> list[tvm.target.Target]:
    return [tvm.target.Target(each.get_function(_TARGET)()) for each in _compiled(module)]


@contextlib.contextmanager
def _parallel_loops_call(address: int) -> Iterator[None]:
    """A context in which code loaded by TVM calls `address` for a parallel loop instead of TVM's pool.

    TVM sets symbols in the order of their registration and keeps all of them: the last one takes effect.
    """
    own = ctypes.cast(getattr(_runtime(), _LAUNCH), ctypes.c_void_p)
    _register(ctypes.c_void_p(address))
    try:
        yield
    finally:
        _register(own)


def _register(address: ctypes.c_void_p) -> None:
    call = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()).TVMFFIEnvModRegisterContextSymbol
    if call(f"__{_LAUNCH}".encode(), address):
        raise RuntimeError(f"TVM does not register {_LAUNCH}")


@functools.lru_cache(maxsize=1)
def _runtime() -> ctypes.CDLL:
    """The loaded library of TVM's runtime."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libtvm_runtime." in line}
    (path,) = paths
    return ctypes.CDLL(path)
