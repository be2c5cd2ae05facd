"""Locks that are free in a forked process, whichever thread of the parent held them."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """A lock, for `with lock.current:`. In a forked process it is free, unless the forking thread holds it: the other
    threads, which could release it, do not exist there.

    `current` is the interpreter's own lock. One with a method of this class in its place would stay held for ever after
    Ctrl-C in that method.
    """

    def __init__(self) -> None:
        self.current = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        if self.current.acquire(blocking=False):  # free, or held by this thread
            self.current.release()
        else:
            self.current = threading.RLock()
