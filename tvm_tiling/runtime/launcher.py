"""A model's parallel loops run by launch.c in the place of TVM's thread pool; its note says why.

It is compiled with a model, linked into its library and saved with it. A process runs the first one it loads, for all
models, so that they share their threads; that library stays loaded. Without a C compiler, and outside of Linux, models
run in TVM's pool.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .locks import ForkSafeLock
from .native_library import INTEGER, PREFIX, NativeLibrary, Value
from .threads import usable_processors

SOURCE = Path(__file__).with_name("launch.c")
SHARE = "tvm_tiling_share"
_BESIDE = tuple(f"tvm_tiling_beside_{step}" for step in ("begin", "add", "end"))
_CALLS_WITHOUT_TVM = "tvm_tiling_limit"  # a function of those that run plans beside each other

_lock = ForkSafeLock()  # of what follows
_first: tuple[NativeLibrary, int] | None = None  # a library and the address of its launch


def take_over(library: NativeLibrary | None, cores: int) -> bool:
    """Have `library` run its parallel loops on `cores` cores, shared with other models.

    False where none was linked into it.
    """
    global _first
    share = None if library is None else library.function(SHARE)
    if library is None or share is None:
        return False
    with _lock:
        if _first is None:
            _first = library, share(0, cores - 1, *usable_processors())
            library.stay()  # its code is that of running threads
        first, address = _first
        of_first = first.function(SHARE)
        assert of_first is not None, "it was asked for when that library was the first"
        of_first(address, cores - 1, *usable_processors())
        if first is not library:
            share(address, 0)
    return True


def first_library() -> NativeLibrary | None:
    """The library whose launch runs the loops of all models; None where no model has threads of its own."""
    with _lock:
        return None if _first is None else _first[0]


class Beside:
    """Runs of models beside each other, each on one core, which begin when they are added. One caller at a time."""

    def __init__(self, functions: Sequence[Sequence[Any]], most: int) -> None:
        """For `most` runs. `functions`: of every model one for each thread, the caller's first: TVM's functions, or
        addresses of instances of a plan. RuntimeError where the threads are not to be had."""
        library = first_library()
        if library is None:
            raise RuntimeError("no model has threads of its own")
        flat = [function for model in functions for function in model]
        plain = all(type(function) is int for function in flat)
        if plain and library.address(_CALLS_WITHOUT_TVM) is None:
            plain = False
        begin, self._add, end = (_step(library, name, plain) for name in _BESIDE)
        self._end = _numbers_of(end, most) if plain else _objects_of(end)
        if not begin(len(functions[0]), most, len(functions), *flat):
            raise RuntimeError("the threads are taken")
        self._kept: list[Sequence[Any]] = []

    def add(self, model: int, arguments: Sequence[Any]) -> None:
        """A run: which of the models, and what its function takes."""
        self._kept.append(arguments)
        if not self._add(model, *arguments):
            raise MemoryError("run_many: no memory for a run")

    def end(self) -> list[Any]:
        """What each run gave, None for one that failed. The caller takes part."""
        return self._end()


def _step(library: NativeLibrary, name: str, plain: bool) -> Callable[..., Any]:
    """The function of that name: of numbers alone where `plain`, else one of TVM's, which passes its objects on."""
    address = library.address(PREFIX + name)
    found: Callable[..., Any] | None = library.function(name)
    if address is None or found is None:
        raise RuntimeError("the first model was saved by an older version")
    if not plain:
        import tvm_ffi

        found = tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=library)
    return found


def _numbers_of(end: Callable[..., int], most: int) -> Callable[[], list[Any]]:
    def ended() -> list[Any]:
        results = (Value * most)()
        done = end(ctypes.addressof(results))
        return [None if result.type == INTEGER else True for result in results[:done]]

    return ended


def _objects_of(end: Callable[..., Any]) -> Callable[[], list[Any]]:
    import tvm_ffi

    def ended() -> list[Any]:
        given = end(tvm_ffi.get_global_func("ffi.Array"), _release())
        return [None if type(result) is int else result for result in given]

    return ended


def _release() -> int:
    """The address of TVM's function that drops a reference to an object."""
    core = sys.modules["tvm_ffi.core"]
    found = ctypes.cast(ctypes.CDLL(core.__file__).TVMFFIObjectDecRef, ctypes.c_void_p).value
    assert found is not None
    return found
