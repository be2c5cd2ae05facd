"""Locks that a forked process finds free, whichever thread of its parent held them."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """A module's lock, for `with`. In a forked process it is free, unless the thread that forked holds it: of the other
    threads none is there that would release it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def acquire(self, blocking: bool = True) -> bool:
        """Whether the lock is this thread's now."""
        acquired = self._lock.acquire(blocking)
        if acquired:
            self._holder = threading.get_ident()
        return acquired

    def release(self) -> None:
        """Let the next thread have it."""
        self._holder = 0
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _forked(self) -> None:
        if self._holder != threading.get_ident():
            self._lock, self._holder = threading.Lock(), 0
