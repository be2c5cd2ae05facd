"""Profiles of runs by launch.c: the start and end of each task of a parallel loop, its thread, and counters of the
processor (perf_event_open), if the system permits it."""

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
"""Software counters, available without hardware counters, as in most virtual machines. The clock is in nanoseconds."""
WHY = {
    errno.ENOENT: "this processor or virtual machine does not have any",
    errno.ENODEV: "this processor or virtual machine does not have any",
    errno.EOPNOTSUPP: "this processor or virtual machine does not have any",
    errno.EACCES: "the system does not permit them (kernel.perf_event_paranoid)",
    errno.EPERM: "the system does not permit them (kernel.perf_event_paranoid)",
    errno.ENOSYS: "the system does not support perf_event_open",
}


class Recorded(NamedTuple):
    """Samples are int64[1 + counters]: nanoseconds, then the counters, -1 for missing ones.

    `steps`: int64[steps, 2, sample], before and after each step of the caller; `tasks`: int64[tasks, 2, sample], with
    their `threads`.
    """

    steps: np.ndarray
    tasks: np.ndarray
    threads: np.ndarray


class Profiler:
    """The recording of runs by launch.c, one at a time."""

    def __init__(self, counters: Sequence[Counter] | None = None) -> None:
        """`counters`: the counters to read; by default, those permitted by the system. `refused` is the reason if there
        are no hardware counters.

        Raises RuntimeError if no model has threads of its own, or if the model was compiled by an older version.
        """
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
        """The length of a sample."""
        return 1 + len(self.counters)

    def _choose(self) -> None:
        """Select the hardware counters, or the software counters if the system refuses them."""
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
        """Start recording up to this many tasks."""
        numbers = [number for counter in self.counters for number in (counter.type, counter.config)]
        table = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
        if self._begin(room, len(self.counters), ctypes.addressof(table)):
            raise MemoryError("profile: not enough memory for the tasks of a run")
        self._room = room

    def sample(self) -> np.ndarray:
        """Nanoseconds and counters of this thread now."""
        into = np.zeros(self.wide, np.int64)
        self._sample(into.ctypes.data)
        return into

    def end(self, steps: np.ndarray) -> Recorded:
        """The tasks recorded since begin(), with the samples of the caller's steps."""
        rows, _ = self._ended(self._room)
        return Recorded(steps, rows[:, 2:].reshape(len(rows), 2, self.wide), rows[:, 0])

    def _ended(self, room: int) -> tuple[np.ndarray, int]:
        rows = np.zeros((room, 2 + 2 * self.wide), np.int64)
        refused = ctypes.c_int64()
        found = self._end(rows.ctypes.data, room, ctypes.addressof(refused))
        return rows[: min(found, room)], refused.value
