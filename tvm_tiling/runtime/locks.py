"""Locks that are free in a forked process, whichever thread of the parent held them."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """A lock for `with`. In a forked process it is free, unless the forking thread holds it: the other threads, which
    could release it, do not exist there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock; return whether this thread holds it now."""
        acquired = self._lock.acquire(blocking)
        if acquired:
            self._holder = threading.get_ident()
        return acquired

    def release(self) -> None:
        """Release the lock."""
        self._holder = 0
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _forked(self) -> None:
        if self._holder != threading.get_ident():
            self._lock, self._holder = threading.Lock(), 0
