"""Threads that compile or measure, most important job first, and that end with their owner whenever Ctrl-C arrives.

Python raises KeyboardInterrupt in the main thread after any call, also within the Python code of threading.Condition,
threading.Thread.start and ThreadPoolExecutor: between taking a lock and the block that releases it. The other threads
then wait for that lock forever, and whoever joins them too. Here the main thread calls only C functions, which are not
interrupted half-way: a SimpleQueue, a heap, and locks in `with`.
"""

from __future__ import annotations

import _thread
import heapq
import itertools
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
Job = Callable[[], None]
Lock = _thread.LockType


class Result(Generic[T]):
    """The value that a job makes, for every thread that waits for it."""

    def __init__(self) -> None:
        self._pending = _thread.allocate_lock()
        self._pending.acquire()
        self._found: list[T] = []
        self._error: BaseException | None = None

    def compute(self, job: Callable[[], T]) -> None:
        """Hand over what `job` returns, or the error that it raises. Called once."""
        try:
            self._found.append(job())
        except BaseException as error:
            self._error = error
        finally:
            self._pending.release()

    def get(self) -> T:
        """Wait for the value. Raises the error of the job."""
        with self._pending:
            pass
        if self._error is not None:
            raise self._error
        return self._found[0]


class Workers:
    """Up to `count` threads, started with the first jobs, which must not raise."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._started = 0
        self._numbers = itertools.count()
        self._state = _State(count)
        # what ends them if Ctrl-C arrives before the first instruction of end()
        self._wake = weakref.finalize(self, self._state.wake)

    def add(self, order: int, job: Job) -> None:
        """Have `job` done before those of higher `order`, and after those of the same order added before."""
        heapq.heappush(self._state.waiting, (order, next(self._numbers), job))
        self._state.signals.put(True)
        if self._started < self._count:
            self._started += 1
            _thread.start_new_thread(self._state.work, ())

    def abandon(self) -> None:
        """Have the threads end after their present jobs, without waiting for them."""
        try:
            self._wake()
        except BaseException:
            self._state.wake()
            raise

    def end(self) -> list[Job]:
        """Wait for the jobs in progress; after Ctrl-C, not any longer. Return the jobs that were not begun."""
        self.abandon()
        for working in self._state.working:
            with working:
                pass
        waiting = self._state.waiting
        return [heapq.heappop(waiting)[2] for _ in range(len(waiting))]


class _State:
    """What the threads share. It outlives Workers, whose end they are told."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting: list[tuple[int, int, Job]] = []  # a heap
        self.signals: SimpleQueue[bool] = SimpleQueue()  # one for each job, one for each thread to end
        self.working: list[Lock] = []  # one of each thread, which holds it until it ends
        self.ended = False

    def wake(self) -> None:
        """Have the threads end after their present jobs."""
        self.ended = True
        for _ in range(self.count):
            self.signals.put(False)

    def work(self) -> None:
        """The loop of a thread. It is listed before it reads `ended`, so that no job is in progress unseen."""
        working = _thread.allocate_lock()
        with working:
            self.working.append(working)
            while self.signals.get() and not self.ended:
                job = heapq.heappop(self.waiting)[2]
                job()
                del job  # with what it refers to
