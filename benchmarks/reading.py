"""Read memory with all cores as fast as a plain loop can: the reference for a token of a language model, which reads
every weight once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tvm_tiling.runtime.threads import default_thread_count


def reader(size: int) -> Callable[[], float]:
    """Return a function that sums `size` bytes of float32, divided over as many threads as this package uses."""
    import numba

    cores = default_thread_count()

    def summed(values: Any) -> float:
        sums = np.zeros(cores)
        share = values.size // cores
        for core in numba.prange(cores):
            total = np.float32(0)
            for place in range(core * share, (core + 1) * share):
                total += values[place]
            sums[core] = total
        return sums.sum()

    numba.set_num_threads(cores)
    run = numba.njit(parallel=True, fastmath=True)(summed)
    values = np.ones(size // 4, np.float32)
    return lambda: run(values)
