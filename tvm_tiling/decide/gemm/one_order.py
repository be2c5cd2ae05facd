"""One order of a sum over K for every number of rows and cores, as deterministic kernels require.

A kernel adds the products of a result element one after the other, whatever its register tile, and continues the same
sum in the next block of K, so the depth of blocks does not affect the result. Two decisions do: the number of cores
that share K, and, with many blocks, where a block ends, because each block is then summed separately to limit rounding
errors (schedules/gemm.py). Deterministic decisions never share K; up to LONGEST products are added one after the other,
and a longer K has blocks that depend on its length only.
"""

from __future__ import annotations

from collections.abc import Iterable

from .traffic import ceil_div

FEW_BLOCKS = 8  # blocks of K; if there are more, each is summed separately
LONGEST = 4096  # products that are added one after the other
BLOCK = 512  # at most, of a longer K


def deterministic_depths(k: int, depths: Iterable[int]) -> set[int]:
    """Return the K-block depths among `depths`, increased where necessary, with which the order of a sum depends on K
    alone.
    """
    if k > LONGEST:
        return {BLOCK}
    least = ceil_div(k, FEW_BLOCKS)
    return {max(depth, least) for depth in depths}


def open_depth(k: int) -> int:
    """Return the depth of a block of K for kernels that sum every block separately."""
    return k if k <= LONGEST else ceil_div(k, ceil_div(k, BLOCK))
