"""The inner tile: how much of a partition one synchronisation passes from the matrix engine to the vector engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .traffic import ceil_div


class InnerTile(NamedTuple):
    tile_m: int
    tile_n: int
    why_m: str
    why_n: str


def blocks_covered(sync_granularity: int, d_s: int) -> int:
    """Return the number of block_m x block_n result blocks that one synchronisation covers; 0 if a single block exceeds
    it."""
    return sync_granularity // (2 * d_s)


def covered_part(
    tile: tuple[int, int],
    whole: tuple[int, int],
    block: tuple[int, int],
    covered: int,
    blocks: Callable[[int, int], int] | None = None,
) -> tuple[int, int]:
    """Return the rows and columns of a tile that one synchronisation covers.

    The part has at most `covered` blocks, counting partial ones, or the fewest possible. Among these it is the part
    with the least total work for the tile, counting each instruction as one more block, and then the one with more
    rows, since sums are taken by column. `blocks` counts the blocks of a part if they are not rows by columns.
    """

    def needed(rows: int, columns: int) -> int:
        return ceil_div(rows, block[0]) * ceil_div(columns, block[1])

    count = blocks or needed
    found = [
        (count(rows, columns), rows, columns)
        for rows in _parts(tile[0], whole[0], block[0])
        for columns in _parts(tile[1], whole[1], block[1])
    ]
    least = min(number for number, _, _ in found)
    fitting = [part for part in found if part[0] <= max(covered, least)]
    _, rows, columns = min(
        fitting, key=lambda part: (ceil_div(tile[0], part[1]) * ceil_div(tile[1], part[2]) * (part[0] + 1), -part[1])
    )
    return rows, columns


def _parts(size: int, whole: int, block: int) -> list[int]:
    """Return the sizes into which a piece can be divided, preferably whole blocks. They divide the piece, except at the
    end of the `whole` dimension, where the last one may be shorter."""
    counts = range(1, size + 1)
    if size >= whole:
        even = (ceil_div(ceil_div(size, count), block) * block for count in counts)
        return list(dict.fromkeys((size, *(part for part in even if part < size))))
    parts = [size // count for count in counts if size % count == 0]
    return [part for part in parts if part % block == 0] or parts


def inner_tile(
    partition_m: int, partition_n: int, *, block_m: int, block_n: int, sync_granularity: int, d_s: int
) -> InnerTile:
    """Return tile_m and tile_n in elements, as whole blocks (inner tile of the analytical partition, design page 01).

    A synchronisation covers floor(sync_granularity / (2*d_s)) blocks. They first fill one column of the partition,
    since sums are taken by column; remaining blocks extend the tile to further columns. The published rule does not
    bound tile_n by the partition. A tile that exceeds the partition is clipped there anyway, so the bound changes no
    loop.
    """
    covered = blocks_covered(sync_granularity, d_s)
    rows, columns = ceil_div(partition_m, block_m), ceil_div(partition_n, block_n)
    tile_rows = max(1, min(covered, rows))
    tile_columns = max(1, min(covered // tile_rows, columns))
    why_m = f"a multiple of {block_m}, up to {rows} in the block and {covered} per synchronisation"
    why_n = f"a multiple of {block_n}, up to {columns} in the block and {covered // tile_rows} per synchronisation"
    return InnerTile(tile_rows * block_m, tile_columns * block_n, why_m, why_n)
