"""Profiles of runs by launch.c: when each task of a parallel loop begins and ends, on which thread, and what the
processor counts meanwhile (perf_event_open), where the system allows it."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .launcher import first_library
from .native_library import NativeLibrary


class Counter(NamedTuple):
    """An event of perf_event_open by its type and config."""

    name: str
    type: int
    config: int


HARDWARE = (
    Counter("cycles", 0, 0),
    Counter("instructions", 0, 1),
    Counter("cache misses", 0, 3),
    Counter("branch misses", 0, 5),
)
SOFTWARE = (Counter("task clock", 1, 1), Counter("page faults", 1, 2))
"""Counted by the system itself, also without hardware counters, as in most virtual machines. The clock is in
nanoseconds."""
WHY = {
    errno.ENOENT: "this processor, or the virtual machine, has none",
    errno.ENODEV: "this processor, or the virtual machine, has none",
    errno.EOPNOTSUPP: "this processor, or the virtual machine, has none",
    errno.EACCES: "the system forbids them (kernel.perf_event_paranoid)",
    errno.EPERM: "the system forbids them (kernel.perf_event_paranoid)",
    errno.ENOSYS: "the system has no perf_event_open",
}


class Recorded(NamedTuple):
    """Samples are int64[1 + counters]: nanoseconds, then the counters, -1 where there are none. `steps`:
    int64[steps, 2, sample], before and behind each step of the caller; `tasks`: int64[tasks, 2, sample], with their
    `threads`."""

    steps: np.ndarray
    tasks: np.ndarray
    threads: np.ndarray


class Profiler:
    """What launch.c notes of runs, one after the other."""

    def __init__(self, counters: Sequence[Counter] | None = None) -> None:
        """`counters`: to be read; left out, those that the system allows. `refused` says why there are no hardware
        counters. RuntimeError where no model has threads of its own, or an older version compiled it."""
        library = first_library()
        names = ("tvm_tiling_profile_begin", "tvm_tiling_profile_end", "tvm_tiling_sample")
        addresses = [library.address(name) or 0 for name in names] if library is not None else []
        if library is None or 0 in addresses:
            raise RuntimeError("the first model of this process was compiled without profiling")
        self._library: NativeLibrary = library
        self._begin = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p)(addresses[0])
        self._end = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(addresses[1])
        self.sampler = addresses[2]
        self._sample = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.sampler)
        self.counters: tuple[Counter, ...] = ()
        self.refused = ""
        if counters is not None:
            self.counters = tuple(counters)
        else:
            self._choose()

    @property
    def wide(self) -> int:
        """Numbers of a sample."""
        return 1 + len(self.counters)

    def _choose(self) -> None:
        """The hardware counters, or those of the system where it refuses these."""
        for kind in (HARDWARE, SOFTWARE):
            self.counters = kind
            self.begin(0)
            values = self.sample()
            _, refused = self._ended(0)
            if refused == 0 and (values[1:] >= 0).all():
                return
            self.refused = self.refused or WHY.get(refused, os.strerror(refused) if refused else "they cannot be read")
        self.counters = ()

    def begin(self, room: int) -> None:
        """Note up to this many tasks from now on."""
        numbers = [number for counter in self.counters for number in (counter.type, counter.config)]
        table = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
        if self._begin(room, len(self.counters), ctypes.addressof(table)):
            raise MemoryError("profile: no memory for the tasks of a run")
        self._room = room

    def sample(self) -> np.ndarray:
        """Nanoseconds and counters of this thread now."""
        into = np.zeros(self.wide, np.int64)
        self._sample(into.ctypes.data)
        return into

    def end(self, steps: np.ndarray) -> Recorded:
        """What was noted since begin(), with what the caller noted of its steps."""
        rows, _ = self._ended(self._room)
        return Recorded(steps, rows[:, 2:].reshape(len(rows), 2, self.wide), rows[:, 0])

    def _ended(self, room: int) -> tuple[np.ndarray, int]:
        rows = np.zeros((room, 2 + 2 * self.wide), np.int64)
        refused = ctypes.c_int64()
        found = self._end(rows.ctypes.data, room, ctypes.addressof(refused))
        return rows[: min(found, room)], refused.value
