"""Every library's threads on cores of their own.

Left alone, the two or more threads of one product may be put on the same core while another is idle, and stay there
for several calls: on a 2-core virtual machine a product of 0.3 ms then takes 16 ms, now with one library and now with
the other. That says something of the scheduler and nothing of the kernels, so nobody is exposed to it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tvm_tiling.lowering.threads import usable_processors

TASKS = Path("/proc/self/task")


def bind_workers() -> None:
    """Bind every thread but the main one to one of the cores that own_core leaves free, in turn.

    The threads of one pool are made one after the other, so that each gets a core of its own, whatever other threads
    there are. To be called when a library has started its threads. Does nothing outside of Linux or on one core.
    """
    free = usable_processors()[1:]
    if not free or not TASKS.is_dir():
        return
    workers = sorted(int(task.name) for task in TASKS.iterdir() if int(task.name) != os.getpid())
    for turn, worker in enumerate(workers):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.sched_setaffinity(worker, {free[turn % len(free)]})
