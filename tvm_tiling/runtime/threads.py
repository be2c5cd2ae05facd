"""Configuration of TVM's thread pool to use every core available to this process, with each thread on its own core.

TVM halves the core count on x86, because it assumes hyper-threading. It reads the count once per thread, when that
thread first runs parallel code, and a pool cannot grow afterwards; creating the pool also binds the thread to the cores
that TVM counted. So the count has to be set before the first parallel kernel of a thread: by use_all_cores
(launcher.py), otherwise by :mod:`.first_kernel`.

The calling thread executes its share of a kernel, and nothing keeps it off a worker's core. Because idle TVM threads
yield instead of sleeping, the two may then share that core permanently, and the kernel takes twice as long: on a 2-core
virtual machine this was the rule, not the exception. :func:`own_core` prevents it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..hardware.usable import affinity, check_threads, cpu_limit, group_by_core, whole_cpus

# runtime.config_threadpool's mode that binds each worker to one core of a list.
_ONE_CORE_PER_THREAD = -2


def _one_per_core_first(processors: set[int]) -> tuple[int, ...]:
    """`processors` with the first hardware thread of every core before any second one."""
    cores = group_by_core(Path("/sys/devices/system/cpu"), processors) or [{cpu} for cpu in processors]
    turns = [(turn, cpu) for core in cores for turn, cpu in enumerate(sorted(core & processors))]
    return tuple(cpu for _, cpu in sorted(turns))


# Read when this module is loaded: a pool created by TVM itself narrows the affinity, and use_all_cores sets the
# variable.
_USABLE = _one_per_core_first(affinity())
_ASKED_FOR = os.environ.get("TVM_NUM_THREADS", "")


def usable_processors() -> tuple[int, ...]:
    """Hardware threads on which this process may run, one of each core before any second one."""
    return _USABLE


def usable_core_count() -> int:
    """The number of physical cores available to this process: those of its affinity, or a container's limit if that is
    lower."""
    cores = group_by_core(Path("/sys/devices/system/cpu"), _USABLE)
    limit = cpu_limit(Path("/"))
    return min(len(cores or _USABLE), len(_USABLE) if limit is None else whole_cpus(limit))


def requested_thread_count() -> int | None:
    """The value of the environment variable TVM_NUM_THREADS at the start of this process; None if it is not set. Warns
    of a value that is not a number from 1, and returns None for it."""
    if _ASKED_FOR.isdecimal() and int(_ASKED_FOR) > 0:
        return int(_ASKED_FOR)
    if _ASKED_FOR:
        warnings.warn(
            f"TVM_NUM_THREADS is {_ASKED_FOR[:20]!r}, which is ignored; expected a whole number from 1",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def default_thread_count() -> int:
    """The number of threads of a model for which none is given: TVM_NUM_THREADS, but at most the available cores."""
    cores = usable_core_count()
    return min(requested_thread_count() or cores, cores)


def limit_libraries() -> None:
    """With TVM_NUM_THREADS set, set the variables for as many threads of BLAS libraries, such as NumPy's, and of OpenMP
    that are loaded afterwards; not those that the user has set."""
    if requested_thread_count() is not None:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(name, str(default_thread_count()))


def thread_count(threads: int | None, most: int) -> int:
    """The number of threads to use, at most `most` and one for each hardware thread available: `threads`, by default
    TVM_NUM_THREADS or the number of available cores. Raises WorkloadError for an invalid number."""
    asked = check_threads(threads, most) if threads is not None else requested_thread_count() or usable_core_count()
    return max(1, min(asked, most, len(processors_at_load())))


def processors_at_load() -> tuple[int, ...]:
    """Hardware threads available to a library loaded now: those of the calling thread's affinity before TVM is loaded,
    whose pool narrows that affinity; afterwards those at the start of this process."""
    return _USABLE if "tvm" in sys.modules else _one_per_core_first(affinity())


_chosen: int | None = None  # the count of the latest use_all_cores call
_pool = threading.local()  # is_set: the pool of this thread has the cores of use_all_cores, not those of a model


def choose_cores(count: int | None) -> int:
    """Let pools created from now on, and the pool of this thread, use `count` cores; return the actual number. Raises
    WorkloadError for an invalid number."""
    global _chosen
    _chosen = None if count is None else check_threads(count, name="count")
    threads = set_pool(_chosen)
    _pool.is_set = True
    return threads


def chosen_cores() -> int:
    """The count of the latest call of use_all_cores; by default TVM_NUM_THREADS, otherwise every usable core."""
    return _chosen or requested_thread_count() or usable_core_count()


def pool_is_set() -> bool:
    """Return whether the pool of this thread has the cores of use_all_cores."""
    return getattr(_pool, "is_set", False)


def set_pool_once() -> None:
    """Do what use_all_cores does, with the count of its latest call, if the pool of this thread is not set."""
    if not pool_is_set():
        set_pool()
        _pool.is_set = True


def set_pool(count: int | None = None) -> int:
    """Assign `count` cores to the pool of this thread for the next kernels, by default those of use_all_cores.

    Returns, warns and sets TVM_NUM_THREADS like use_all_cores.
    """
    _pool.is_set = False
    if threading.get_ident() == _forked_thread:
        return _in_one_thread()
    import tvm

    count = max(1, min(count or chosen_cores(), len(_USABLE)))
    os.environ["TVM_NUM_THREADS"] = str(count)
    # All available processors are listed even if fewer are used: a new pool gets one worker per list item.
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


_forked_thread: int | None = None  # the thread of a forked process that may have a pool without threads


def _in_one_thread() -> int:
    """Make TVM execute tasks sequentially in this thread, without its pool."""
    import tvm

    before = affinity()
    # TVM uses the pool only if more than one core is allowed. It binds threads that no longer exist, and thereby this
    # one.
    tvm.get_global_func("runtime.config_threadpool")(_ONE_CORE_PER_THREAD, 1, [str(_USABLE[0])])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, before)
    return 1


_has_pool = True  # whether this process may have a pool, whose threads do not exist in its forks


def has_no_pool() -> None:
    """Declare that this process runs no TVM kernels, so that forked processes create their own pools."""
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
    """Bind the calling thread, within the context, to the one core to which none of its TVM workers is bound.

    Costs two system calls. Threads started inside inherit the binding: never create another library's threads there.
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
    """Bind every thread except the main one, of any library, to the cores that own_core leaves free, round-robin.

    Otherwise, the threads of a kernel may be scheduled on the same core while another one is idle. The threads of one
    pool are created consecutively, so that each gets a separate core. Call this after the libraries to be compared have
    started their threads. Does nothing outside Linux or on one core.
    """
    tasks, free = Path("/proc/self/task"), _USABLE[1:]
    if not free or not tasks.is_dir():
        return
    workers = sorted(int(task.name) for task in tasks.iterdir() if int(task.name) != os.getpid())
    for turn, worker in enumerate(workers):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(worker, {free[turn % len(free)]})
