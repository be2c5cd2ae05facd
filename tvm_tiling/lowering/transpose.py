"""Transposing square blocks in registers, for operands whose contiguous axis is not the one a panel needs.

log2(L) rounds on L vectors of L lanes; each round interleaves vector i with vector i + L/2, first halves into 2i,
second halves into 2i + 1. One round moves the top bit of the vector's number to the bottom bit of the lane's, so after
all rounds vector and lane have changed places.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812


def transpose(block: tirx.Var, lanes: int) -> list[tirx.Expr]:
    """The columns of `block`, a local buffer of lanes x lanes elements whose rows are vectors."""
    kind = str(block.dtype)
    vectors = [block[T.ramp(i * lanes, 1, lanes)] for i in range(lanes)]
    half = lanes // 2
    first = [x for lane in range(half) for x in (lane, lanes + lane)]
    second = [x for lane in range(half, lanes) for x in (lane, lanes + lane)]
    rounds = lanes.bit_length() - 1
    for _ in range(rounds):
        turned = T.alloc_buffer((lanes * lanes,), kind, scope="local")
        for i in range(half):
            pair = [vectors[i], vectors[i + half]]
            T.buffer_store(turned, T.Shuffle(pair, first), [T.ramp(2 * i * lanes, 1, lanes)])
            T.buffer_store(turned, T.Shuffle(pair, second), [T.ramp((2 * i + 1) * lanes, 1, lanes)])
        vectors = [turned[T.ramp(i * lanes, 1, lanes)] for i in range(lanes)]
    return vectors
