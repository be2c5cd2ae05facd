"""Sums the lanes of each point, for several vectors at once, so that adjacent output elements end up in lanes.

A vector of one output channel holds ws points of R lanes each: the bits of the point are above those of the lane within
the point in the lane's index. Two vectors of different channels are added such that a bit of the channel's index
replaces a bit of the reduction: the lanes without the bit of both vectors, side by side, plus the lanes with it. If
reduction bits remain, a vector is added to a rotated copy of itself; if channels remain, they are exchanged with bits
of the point, so that a point's channels are adjacent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .registers import register

Expr: TypeAlias = tirx.Expr


@dataclass(frozen=True)
class Piece:
    """Adjacent lanes of a register starting at `lane`: `channels` channels of a point, or `points` points of a
    channel."""

    register: tirx.Var
    lane: int
    point: int
    channel: int
    points: int = 1
    channels: int = 1


def lane_sums(vectors: Sequence[tirx.Var], lanes: int, of_point: int, dtype: str, along_channels: bool) -> list[Piece]:
    """Return the sums of `vectors` with `lanes` lanes, one vector per channel, their number a power of two; `of_point`
    is R.

    Pieces run along channels; if a point has one lane, along points unless `along_channels`.
    """
    if len(vectors) > lanes:  # more channels than a vector of results can hold
        parts = [
            (start, lane_sums(vectors[start : start + lanes], lanes, of_point, dtype, along_channels))
            for start in range(0, len(vectors), lanes)
        ]
        return [replace(piece, channel=start + piece.channel) for start, pieces in parts for piece in pieces]
    left = list(vectors)
    summed, channel_bits = of_point.bit_length() - 1, len(vectors).bit_length() - 1
    if not summed and not along_channels:
        return [Piece(v, 0, 0, q, points=lanes) for q, v in enumerate(left)]
    for bit in range(summed):
        if len(left) > 1:
            # The lowest bit of the channel's index goes to the lowest lanes.
            left = [_sum(left[i : i + 2], bit, lanes, dtype) for i in range(0, len(left), 2)]
        else:
            left = [_sum([left[0], left[0]], bit, lanes, dtype)]
    in_lanes = min(summed, channel_bits)
    point_bits = []  # bits of the point that number the vectors, by their original position
    for bit in range(summed, channel_bits):
        pairs = [_exchange(left[i], left[i + 1], bit, lanes, dtype) for i in range(0, len(left), 2)]
        # Vectors for both values of the point's bit, one half after the other.
        left = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        point_bits.append(bit - summed)
        in_lanes += 1
    first = max(summed, channel_bits)
    pieces = []
    for number, v in enumerate(left):
        point = sum(1 << bit for i, bit in enumerate(point_bits) if number >> i & 1)
        for above in range(lanes >> first):
            pieces.append(Piece(v, above << first, point + (above << (first - summed)), 0, channels=1 << in_lanes))
    return pieces


def _sum(pair: Sequence[tirx.Var], bit: int, lanes: int, dtype: str) -> tirx.Var:
    low, high = _lanes(pair, bit, lanes)
    return _kept(low + high, lanes, dtype)


def _exchange(first: tirx.Var, second: tirx.Var, bit: int, lanes: int, dtype: str) -> list[tirx.Var]:
    return [_kept(value, lanes, dtype) for value in _lanes((first, second), bit, lanes)]


def _lanes(pair: Sequence[tirx.Var], bit: int, lanes: int) -> tuple[Expr, Expr]:
    """Return the lanes of both vectors without `bit`, those of the second at the bit's position; and the lanes with
    it."""
    whole, mask = T.ramp(0, 1, lanes), 1 << bit
    values = [v[whole] for v in pair]
    order = [(lane & ~mask) + (lanes if lane & mask else 0) for lane in range(lanes)]
    return T.Shuffle(values, order), T.Shuffle(values, [lane + mask for lane in order])


def _kept(value: Expr, lanes: int, dtype: str) -> tirx.Var:
    kept = register(lanes, dtype)
    T.buffer_store(kept, value, [T.ramp(0, 1, lanes)])
    return kept
