"""Transposes square blocks in registers, for operands whose contiguous axis differs from the one a panel needs.

log2(L) rounds on L vectors of L lanes: each round interleaves vector i with vector i + L/2, the first halves into 2i
and the second halves into 2i + 1. One round moves the top bit of the vector's index to the bottom bit of the lane's
index, so after all rounds vectors and lanes are exchanged.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .registers import registers


def transpose(vectors: list[tirx.Expr], dtype: str) -> list[tirx.Expr]:
    """Return the columns of a square block whose rows are `vectors`."""
    lanes = len(vectors)
    half = lanes // 2
    first = [x for lane in range(half) for x in (lane, lanes + lane)]
    second = [x for lane in range(half, lanes) for x in (lane, lanes + lane)]
    whole = T.ramp(0, 1, lanes)
    for _ in range(lanes.bit_length() - 1):
        turned = registers(lanes, lanes, dtype)
        for i in range(half):
            pair = [vectors[i], vectors[i + half]]
            T.buffer_store(turned[2 * i], T.Shuffle(pair, first), [whole])
            T.buffer_store(turned[2 * i + 1], T.Shuffle(pair, second), [whole])
        vectors = [register[whole] for register in turned]
    return vectors
