"""The inner tile: how much of a partition passes from the matrix to the vector engine at one synchronisation."""

from __future__ import annotations

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


def largest_part(size: int, whole: int, most: int, block: int) -> int:
    """The largest part of a piece of `size` elements that `most` allows, in whole blocks where it can be. Parts divide
    the piece, but at the end of the `whole` dimension, where the last one may be shorter."""
    if size <= most:
        return size
    if size >= whole:
        return max(block, most // block * block)
    parts = [size // count for count in range(1, size + 1) if size % count == 0 and size // count <= most]
    return next((part for part in parts if part % block == 0), parts[0] if parts else 1)


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
