"""TVM's thread pool, set to every core this process may use (page 07), each thread on a core of its own.

TVM halves the core count on x86, because it takes every core for half of a hyper-threaded one. It reads the count once
per thread, when that thread first runs parallel code, and a pool cannot grow afterwards; making the pool also binds the
thread to the cores that TVM counted. So the count has to be set before the first parallel kernel of a thread: by
use_all_cores (launcher.py), or else by :mod:`.first_kernel`.

The calling thread does its share of a kernel, and nothing keeps it off a worker's core. As idle threads of TVM yield
instead of sleeping, the two may then share that core for good, and the kernel takes twice as long: on a 2-core virtual
machine that was the rule, not the exception. :func:`own_core` prevents it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..errors import WorkloadError
from ..hardware.usable import affinity, cpu_limit, group_by_core, whole_cpus

# runtime.config_threadpool's mode in which each worker is bound to one core of a list.
_ONE_CORE_PER_THREAD = -2


def _one_per_core_first(processors: set[int]) -> tuple[int, ...]:
    """`processors` with the first hardware thread of every core before the second of any."""
    cores = group_by_core(Path("/sys/devices/system/cpu"), processors) or [{cpu} for cpu in processors]
    turns = [(turn, cpu) for core in cores for turn, cpu in enumerate(sorted(core & processors))]
    return tuple(cpu for _, cpu in sorted(turns))


# Read when this module is loaded: a pool that TVM makes by itself narrows the affinity, and use_all_cores sets the
# variable.
_USABLE = _one_per_core_first(affinity())
_ASKED_FOR = os.environ.get("TVM_NUM_THREADS", "")


def usable_processors() -> tuple[int, ...]:
    """Numbers of the hardware threads that this process may run on, one of each core before the second of any."""
    return _USABLE


def usable_core_count() -> int:
    """How many physical cores this process may keep busy: those of its affinity, or a container's limit if less."""
    cores = group_by_core(Path("/sys/devices/system/cpu"), _USABLE)
    limit = cpu_limit(Path("/"))
    return min(len(cores or _USABLE), len(_USABLE) if limit is None else whole_cpus(limit))


def requested_thread_count() -> int | None:
    """The value of the environment variable TVM_NUM_THREADS at the start of this process; None without a number."""
    return int(_ASKED_FOR) if _ASKED_FOR.isdigit() and int(_ASKED_FOR) > 0 else None


def check_threads(threads: object, most: int) -> int:
    """The number of threads if it is one from 1 to `most`, else WorkloadError."""
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= most:
        raise WorkloadError(f"threads is {threads!r}; expected a whole number from 1 to {most}")
    return threads


def thread_count(threads: int | None, most: int) -> int:
    """How many threads to use of `most`: `threads`, left out those of TVM_NUM_THREADS, else all that this process has
    cores for. WorkloadError for a number that is none."""
    if threads is not None:
        return check_threads(threads, most)
    return max(1, min(most, requested_thread_count() or usable_core_count()))


def processors_at_load() -> tuple[int, ...]:
    """Hardware threads that a library loaded now may run on: those of the calling thread's affinity while TVM, whose
    pool narrows that affinity, is not loaded; later those at the start of this process."""
    return _USABLE if "tvm" in sys.modules else _one_per_core_first(affinity())


_chosen: int | None = None  # the count of the latest call of use_all_cores
_pool = threading.local()  # is_set: the pool of this thread has the cores of use_all_cores, and not those of a model


def choose_cores(count: int | None) -> int:
    """Have pools made from now on take `count` cores, the pool of this thread as well; gives how many it has."""
    global _chosen
    _chosen = count
    threads = set_pool(count)
    _pool.is_set = True
    return threads


def chosen_cores() -> int:
    """The count of the latest call of use_all_cores, left out that of TVM_NUM_THREADS, else every usable core."""
    return _chosen or requested_thread_count() or usable_core_count()


def pool_is_set() -> bool:
    """Whether the pool of this thread has the cores of use_all_cores."""
    return getattr(_pool, "is_set", False)


def set_pool_once() -> None:
    """What use_all_cores does, with the count of its latest call, in a thread whose pool is not set."""
    if not pool_is_set():
        set_pool()
        _pool.is_set = True


def set_pool(count: int | None = None) -> int:
    """Give the pool of this thread `count` cores for what runs next, left out those of use_all_cores.

    Returns, warns and sets TVM_NUM_THREADS as that does.
    """
    _pool.is_set = False
    if threading.get_ident() == _forked_thread:
        return _in_one_thread()
    import tvm

    count = max(1, min(count or chosen_cores(), len(_USABLE)))
    os.environ["TVM_NUM_THREADS"] = str(count)
    # All usable processors are named even if fewer are to be used: a new pool gets a worker for each item of the list.
    tvm.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, count, [str(cpu) for cpu in _USABLE])
    threads = int(tvm.get_global_func("runtime.NumThreads")())
    if threads < count:
        warnings.warn(
            f"TVM runs on {threads} of {count} cores: its thread pool existed before use_all_cores was called; "
            f"call it first, or start the process with TVM_NUM_THREADS={count}",
            RuntimeWarning,
            stacklevel=2,
        )
    return threads


_forked_thread: int | None = None  # the one thread of a forked process that may have a pool without threads


def _in_one_thread() -> int:
    """Have TVM call tasks one after the other in this thread, without its pool."""
    import tvm

    before = affinity()
    # TVM asks the pool only where it may use more cores than one. What it binds are threads that are gone, and in their
    # place this one.
    tvm.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, 1, [str(_USABLE[0])])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, before)
    return 1


_has_pool = True  # whether a pool may be in this process, whose threads a fork of it does without


def has_no_pool() -> None:
    """Say that no kernel of TVM runs in this process: what is forked off it makes a pool of its own."""
    global _has_pool
    _has_pool = False


def _forked() -> None:
    global _forked_thread, _has_pool
    if not _has_pool:
        _has_pool = True
        return
    _forked_thread = threading.get_ident()
    if "tvm" in sys.modules:
        _in_one_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def own_core() -> Iterator[None]:
    """While inside, the calling thread stays on the one core that none of its TVM workers is bound to.

    Costs two system calls. Threads started inside inherit the binding: never create another library's threads in it.
    Does nothing where threads cannot be bound (macOS, Windows).
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_USABLE[0]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def bind_workers() -> None:
    """Bind every thread but the main one, whichever library's, to one of the cores that own_core leaves free, in turn.

    Left alone, the threads of one product may be put on the same core while another is idle. The threads of one pool
    are made one after the other, so that each gets a core of its own. To be called when the libraries to be compared
    have started theirs. Does nothing outside of Linux or on one core.
    """
    tasks, free = Path("/proc/self/task"), _USABLE[1:]
    if not free or not tasks.is_dir():
        return
    workers = sorted(int(task.name) for task in tasks.iterdir() if int(task.name) != os.getpid())
    for turn, worker in enumerate(workers):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(worker, {free[turn % len(free)]})
