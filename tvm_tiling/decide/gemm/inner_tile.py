"""The inner tile: how much of a partition passes from the matrix to the vector engine at one synchronisation."""

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
    """Blocks of block_m x block_n results that one synchronisation covers; 0 where a single one is more than that."""
    return sync_granularity // (2 * d_s)


def covered_part(
    tile: tuple[int, int],
    whole: tuple[int, int],
    block: tuple[int, int],
    covered: int,
    blocks: Callable[[int, int], int] | None = None,
) -> tuple[int, int]:
    """The part of a tile that one synchronisation covers: rows and columns of at most `covered` blocks, those that are
    not full included, or as few as there are. Of these parts the one with the least work for the tile, an instruction
    taken for a block more; then that with more rows, since sums go by column. `blocks` counts those of a part where
    they are not rows by columns."""

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
    """Sizes of parts of a piece. They divide it, but at the end of the `whole` dimension, where the last one may be
    shorter; whole blocks where there are such."""
    counts = range(1, size + 1)
    if size >= whole:
        even = (ceil_div(ceil_div(size, count), block) * block for count in counts)
        return list(dict.fromkeys((size, *(part for part in even if part < size))))
    parts = [size // count for count in counts if size % count == 0]
    return [part for part in parts if part % block == 0] or parts


def inner_tile(
    partition_m: int, partition_n: int, *, block_m: int, block_n: int, sync_granularity: int, d_s: int
) -> InnerTile:
    """tile_m and tile_n in elements, whole blocks (page 01, Inner tile; seed 000, paragraphs 211 to 218).

    A synchronisation covers floor(sync_granularity / (2*d_s)) blocks. They are taken down one column of the partition
    first, since sums go by column; what is left over takes further columns. The seed does not bound tile_n by the
    partition, but a tile that reaches beyond it is cut off there: bounding it changes no walk.
    """
    covered = blocks_covered(sync_granularity, d_s)
    rows, columns = ceil_div(partition_m, block_m), ceil_div(partition_n, block_n)
    tile_rows = max(1, min(covered, rows))
    tile_columns = max(1, min(covered // tile_rows, columns))
    why_m = f"min({covered} blocks per synchronisation, {rows} in the partition), at least 1, of {block_m} rows"
    why_n = f"min({covered} // {tile_rows} blocks left, {columns} in the partition), at least 1, of {block_n} columns"
    return InnerTile(tile_rows * block_m, tile_columns * block_n, why_m, why_n)
