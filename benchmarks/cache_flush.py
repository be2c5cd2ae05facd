"""Flush the caches before a run, to measure with operands in main memory."""

from __future__ import annotations

import os
import threading

import numpy as np

from tvm_tiling.runtime.threads import usable_processors

UNKNOWN_LAST_LEVEL = 32 << 20  # bytes, if the system does not report its cache sizes


class CacheFlush:
    """Flushes the caches of every usable core by streaming through a buffer twice the size of the last-level cache.

    Each core is flushed by a thread of its own, because no other core can reach its private caches.
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
            os.sched_setaffinity(0, {cpu})  # pins this thread only
        self._buffer.max()
