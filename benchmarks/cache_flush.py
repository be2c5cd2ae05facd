"""Caches emptied before a run, for times of operands that come from memory."""

from __future__ import annotations

import os
import threading

import numpy as np

from tvm_tiling.runtime.threads import usable_processors

UNKNOWN_LAST_LEVEL = 32 << 20  # bytes, where the machine hides its caches


class CacheFlush:
    """Empties the caches of every usable core by streaming through a buffer twice as large as the last level.

    One thread on each does it, for a core's own levels are out of the others' reach.
    """

    def __init__(self, last_level_bytes: int = UNKNOWN_LAST_LEVEL) -> None:
        self._buffer = np.ones(2 * last_level_bytes // 8)

    def __call__(self) -> None:
        threads = [threading.Thread(target=self._stream, args=(cpu,)) for cpu in usable_processors()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _stream(self, cpu: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {cpu})  # of this thread alone
        self._buffer.max()
