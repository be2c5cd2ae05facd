"""One order of a sum over K for every number of rows and cores, as deterministic kernels require.

A kernel adds the products of an element of the result one after the other, whatever its register tile, and goes on with
the sum so far at every block of K, so that the depth of these blocks does not show in the result. Two decisions do: how
many cores share K, and, for many blocks, where a block ends, because each is then summed separately to limit rounding
errors (schedules/gemm.py). Deterministic decisions never share K; up to LONGEST products are added one after the other,
and a longer K has blocks that depend on its length only.
"""

from __future__ import annotations

from collections.abc import Iterable

from .traffic import ceil_div

FEW_BLOCKS = 8  # of K; more blocks are summed separately
LONGEST = 4096  # products that are added one after the other
BLOCK = 512  # at most, of a longer K


def deterministic_depths(k: int, depths: Iterable[int]) -> set[int]:
    """Those depths of a block of K, deepened where necessary, that give the order of sums of K alone."""
    if k > LONGEST:
        return {BLOCK}
    least = ceil_div(k, FEW_BLOCKS)
    return {max(depth, least) for depth in depths}


def open_depth(k: int) -> int:
    """The depth of a block of K for kernels that sum every block separately."""
    return k if k <= LONGEST else ceil_div(k, ceil_div(k, BLOCK))
