"""The decision for a convolution on a matrix engine: the partition of its matrix multiplication, and the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..explain import Sections
from ..tiling import GemmTiling


@dataclass(frozen=True, kw_only=True)
class ConvBlocks:
    """What the buffers hold at once and what one instruction multiplies, in elements.

    - `step_m`: step of the loop over output channels; `rows` x `columns`: step of the loop over rectangles of points;
      `order` "mn" puts the channels outside.
    - `channels`, `groups`: steps of the loops over input channels and groups.
    - `tile_m`, `tile_rows`: tiles within a step, `tile_m` output channels by `tile_rows` x `columns` points.
    - `sync_m`, `sync_rows`: one instruction multiplies `sync_m` channels by `sync_rows` x `columns` points. This is a
      whole tile, or the part of it that one synchronisation covers if the vector engine runs an epilogue, at least one
      row of points.
    - `versions_a`, `versions_b`, `versions_sums`: numbers of blocks that alternate in the buffers.
    - `whole_a`, `whole_b`: the whole operand stays resident.
    - `sums`: memory of the sums, "acc" or "out".
    - `bytes_a`, `bytes_b`: bytes read in total, including halos.
    - `cycles`: predicted cycles.
    """

    predictions: ClassVar[tuple[str, ...]] = ("bytes_a", "bytes_b", "cycles")

    order: str
    groups: int
    step_m: int
    tile_m: int
    rows: int
    columns: int
    tile_rows: int
    sync_m: int
    sync_rows: int
    channels: int
    whole_a: bool
    whole_b: bool
    versions_a: int
    versions_b: int
    versions_sums: int
    sums: str
    bytes_a: int
    bytes_b: int
    cycles: float

    @property
    def size(self) -> str:
        """Output channels, rows and columns of a step as text."""
        return f"{self.step_m} x {self.rows} x {self.columns}"


@dataclass(frozen=True, kw_only=True)
class ConvPartition(GemmTiling):
    """A convolution as its matrix multiplication, and the blocks from which its program is generated.

    The partition and its load counts are those of the matrix multiplication: a prediction that bounds what rectangles
    of points with halos can achieve. `blocks` says what is loaded and multiplied.
    """

    blocks: ConvBlocks

    sections: ClassVar[Sections] = GemmTiling.sections

    @property
    def program(self) -> tuple[str, ConvBlocks]:
        return "blocks", self.blocks
