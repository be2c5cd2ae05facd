"""Replacement of TVM's thread pool for a model's parallel loops by launch.c, whose comments give the reasons.

It is compiled with a model, linked into its library and saved with it. A process uses the first one that it loads for
all models, so that they share their threads; that library stays loaded. Without a C compiler, and outside Linux, models
run in TVM's pool: TVM's LLVM has no C front end, and the JIT linker that loads their object files supports neither
thread-local storage nor pthread_atfork, which launch.c needs, so LLVM IR generated from it beforehand would not do
either.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .locks import ForkSafeLock
from .native_library import INTEGER, PREFIX, NativeLibrary, Value
from .threads import choose_cores, chosen_cores, processors_at_load

SOURCE = Path(__file__).with_name("launch.c")
SHARE = "tvm_tiling_share"
_BESIDE = tuple(f"tvm_tiling_beside_{step}" for step in ("begin", "add", "end"))
_LIMIT = "tvm_tiling_limit"  # also marks libraries that run plans concurrently

_lock = ForkSafeLock()  # protects the following
_first: tuple[NativeLibrary, int] | None = None  # a library and the address of its launch function
_threads = 0  # of the pool, including the caller
_limit: Callable[[int], None] | None = None


def install_pool(library: NativeLibrary | None, cores: int) -> bool:
    """Install the thread pool of `library`, so that its parallel loops run on up to `cores` cores of this process,
    shared with other models. Returns False if the library has no such pool.
    """
    global _first, _threads, _limit
    share = None if library is None else library.function(SHARE)
    if library is None or share is None:
        return False
    processors = processors_at_load()
    cores = min(cores, len(processors))
    with _lock.current:
        if _first is None:
            _first = library, share(0, cores - 1, *processors)
            if limit := library.address(_LIMIT):
                _limit = ctypes.CFUNCTYPE(None, ctypes.c_int32)(limit)
            library.stay()  # its code is executed by running threads
        first, address = _first
        of_first = first.function(SHARE)
        assert of_first is not None, "its existence was checked when that library became the first"
        of_first(address, cores - 1, *processors)
        _threads = max(_threads, cores)
        if first is not library:
            share(address, 0)
    return True


def launch_address(library: Callable[[], NativeLibrary | None], cores: int) -> int | None:
    """The entry address for parallel loops of kernels that run on `cores` cores, in the threads of models. `library`
    provides a library if no model is loaded; None if it does not."""
    if _first is None:
        install_pool(library(), cores)
    elif cores > _threads:
        install_pool(_first[0], cores)
    return None if _first is None else _first[1]


_of_thread = threading.local()  # limit: set by limit_thread, 0 for none


def limit_thread(threads: int) -> None:
    """Limit parallel loops of kernels called by this thread to this many threads; 0: no limit."""
    _of_thread.limit = threads
    if _limit is not None:
        _limit(threads)


def use_all_cores(count: int | None = None) -> int:
    """Let kernels called from this thread run on `count` cores, and return the number of threads in TVM's pool. By
    default, `count` is TVM_NUM_THREADS if the user has set it, otherwise the number of usable cores. A thread that does
    not call this function gets the cores of the latest call in any thread when it loads its first kernel that was
    compiled for llvm_target(). Processes that measure for a search inherit the number from the environment, so call
    this before the search. Models from compile() have threads of their own (see its `threads`).

    Also sets the variable TVM_NUM_THREADS, for pools that other threads and child processes create later. If this
    thread already has a TVM pool, which cannot grow, a warning is issued and the smaller number is returned; kernels
    that were loaded while a C compiler was available do not use that pool. In a forked process, the thread that forked
    runs TVM's pool single-threaded, because the pool's threads do not exist there. Raises WorkloadError for a `count`
    that is not a whole number from 1.
    """
    threads = choose_cores(count)
    limit_thread(chosen_cores())
    return threads


class _Limited:
    """A context in which loops started by this thread have at most this many tasks."""

    def __init__(self, limit: Callable[[int], None], threads: int) -> None:
        self._limit, self._threads = limit, threads

    def __enter__(self) -> None:
        self._limit(self._threads)

    def __exit__(self, *_: object) -> None:
        self._limit(getattr(_of_thread, "limit", 0))


_UNLIMITED = contextlib.nullcontext()


def limited(threads: int) -> contextlib.AbstractContextManager[None]:
    """A context in which this thread's parallel loops run on at most `threads` threads, including itself."""
    return _UNLIMITED if threads >= _threads or _limit is None else _Limited(_limit, threads)


def first_library() -> NativeLibrary | None:
    """The library whose launch runs the loops of all models; None if no model has threads of its own."""
    with _lock.current:
        return None if _first is None else _first[0]


class ConcurrentRuns:
    """Concurrent runs of models, each on one core, which start when they are added. For one caller at a time."""

    def __init__(self, functions: Sequence[Sequence[Any]], most: int) -> None:
        """Prepare up to `most` runs. `functions`: for each model one function per thread, the caller's first: TVM
        functions, or addresses of plan instances. Raises RuntimeError if the threads are not available."""
        library = first_library()
        if library is None:
            raise RuntimeError("no model has a thread pool")
        flat = [function for model in functions for function in model]
        plain = all(type(function) is int for function in flat)
        if plain and library.address(_LIMIT) is None:
            plain = False
        begin, self._add, end = (_step(library, name, plain) for name in _BESIDE)
        self._end = _numbers_of(end, most) if plain else _objects_of(end)
        if not begin(len(functions[0]), most, len(functions), *flat):
            raise RuntimeError("the threads are in use")
        self._kept: list[Sequence[Any]] = []

    def add(self, model: int, arguments: Sequence[Any]) -> None:
        """Add a run of a model with the arguments of its function."""
        self._kept.append(arguments)
        if not self._add(model, *arguments):
            raise MemoryError("run_many: not enough memory for a run")

    def end(self) -> list[Any]:
        """Return the result of each run, None for one that failed. The caller participates."""
        return self._end()


def _step(library: NativeLibrary, name: str, plain: bool) -> Callable[..., Any]:
    """The function of this name: on integers only if `plain`, otherwise a TVM function, which passes objects."""
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
    """The address of TVM's function that releases a reference to an object."""
    core = sys.modules["tvm_ffi.core"]
    found = ctypes.cast(ctypes.CDLL(core.__file__).TVMFFIObjectDecRef, ctypes.c_void_p).value
    assert found is not None
    return found
