"""The five loops of a cut in the order in which they are walked, so that a decision can be replayed (page 01)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...errors import TilingError
from ..tiling import GemmTiling

ORDERS = {"mn": "mn", 1: "mn", "nm": "nm", 0: "nm"}  # m outside n is the seed's flag 1, n outside m its flag 0


class LoopStep(NamedTuple):
    """One tile of the innermost loop body: where it starts and how many rows, columns and products deep it is."""

    out_m: int
    out_n: int
    kk: int
    in_m: int
    in_n: int
    rows: int
    columns: int
    depth: int


def order_named(option: str, preset: str | int | None, default: str) -> str:
    """The order that a preset names, `default` where there is none; TilingError if it names no order."""
    if preset is None:
        return default
    if preset not in ORDERS:
        raise TilingError(f"decide: {option} = {preset!r}, accepted: 'mn' or 1 (m outside n), 'nm' or 0 (n outside m)")
    return ORDERS[preset]


def grid_order(rows: int, columns: int, order: str) -> Iterator[tuple[int, int]]:
    """(row, column) of every cell of a grid of blocks in the order walked: "mn" finishes a row before the next."""
    if order == "mn":
        yield from ((i, j) for i in range(rows) for j in range(columns))
    else:
        yield from ((i, j) for j in range(columns) for i in range(rows))


def walk(m: int, n: int, k: int, tiling: GemmTiling) -> Iterator[LoopStep]:
    """Every step of the cut of an m x n x k product: outer loops, then split-K, then inner; ragged ends cut off."""
    t = tiling
    for i, j in grid_order(-(-m // t.partition_m), -(-n // t.partition_n), t.outer_order):
        out_m, out_n = i * t.partition_m, j * t.partition_n
        end_m, end_n = min(m, out_m + t.partition_m), min(n, out_n + t.partition_n)
        tiles_m, tiles_n = -(-(end_m - out_m) // t.tile_m), -(-(end_n - out_n) // t.tile_n)
        for kk in range(0, k, t.partition_k):
            for a, b in grid_order(tiles_m, tiles_n, t.inner_order):
                in_m, in_n = out_m + a * t.tile_m, out_n + b * t.tile_n
                yield LoopStep(
                    out_m=out_m,
                    out_n=out_n,
                    kk=kk,
                    in_m=in_m,
                    in_n=in_n,
                    rows=min(t.tile_m, end_m - in_m),
                    columns=min(t.tile_n, end_n - in_n),
                    depth=min(t.partition_k, k - kk),
                )
