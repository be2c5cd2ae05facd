"""TVM's thread pool, set to every core this process may use (page 07).

TVM halves the core count on x86, because it takes every core for half of a hyper-threaded one. It reads the count once
per thread, when that thread first runs parallel code, and a pool cannot grow afterwards; making the pool also binds the
thread to the cores that TVM counted. So :func:`use_all_cores` has to come before the first parallel kernel of a thread.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from ..hardware.usable import affinity, cpu_limit, group_by_core, whole_cpus

# runtime.config_threadpool's mode in which no worker is tied to one core: all of them share the cores listed.
_SHARE_ALL_CORES = -3


# Read when this module is loaded: a pool that TVM makes by itself narrows the affinity, and use_all_cores sets the
# variable.
_USABLE = tuple(sorted(affinity()))
_ASKED_FOR = os.environ.get("TVM_NUM_THREADS", "")


def usable_processors() -> tuple[int, ...]:
    """Numbers of the hardware threads that the operating system lets this process run on."""
    return _USABLE


def usable_core_count() -> int:
    """How many physical cores this process may keep busy: those of its affinity, or a container's limit if less."""
    cores = group_by_core(Path("/sys/devices/system/cpu"), _USABLE)
    limit = cpu_limit(Path("/"))
    return min(len(cores or _USABLE), len(_USABLE) if limit is None else whole_cpus(limit))


def use_all_cores(count: int | None = None) -> int:
    """Let TVM kernels called from this thread run on `count` cores; returns how many threads they will really use.

    Left out, `count` is TVM_NUM_THREADS where the user set it, else every usable core. The variable is set as well, for
    pools that other threads and child processes make later. A pool that this thread already has cannot grow; then the
    smaller number is returned, after a warning. Source: page 07.
    """
    import tvm

    if count is None:
        count = int(_ASKED_FOR) if _ASKED_FOR.isdigit() and int(_ASKED_FOR) > 0 else usable_core_count()
    count = max(1, min(count, len(_USABLE)))
    os.environ["TVM_NUM_THREADS"] = str(count)
    # All usable processors are named even if fewer are to be used: a new pool gets a worker for each item of the list.
    tvm.get_global_func("runtime.config_threadpool")(_SHARE_ALL_CORES, count, [str(cpu) for cpu in _USABLE])
    threads = int(tvm.get_global_func("runtime.NumThreads")())
    if threads < count:
        warnings.warn(
            f"TVM runs on {threads} of {count} cores: its thread pool existed before use_all_cores was called; "
            f"call it first, or start the process with TVM_NUM_THREADS={count}",
            RuntimeWarning,
            stacklevel=2,
        )
    return threads
