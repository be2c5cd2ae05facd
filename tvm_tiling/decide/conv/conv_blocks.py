"""The decision of a convolution on a matrix engine as data: page 01's matrix multiplication, and the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..explain import Sections
from ..tiling import GemmTiling


@dataclass(frozen=True, kw_only=True)
class ConvBlocks:
    """What is in the buffers at once and what one instruction multiplies, in elements.

    The loops over output channels and over rectangles of points go in steps of `step_m` and of `rows` x `columns`, in
    `order` ("mn": channels outside), those of input channels in steps of `channels`, those of groups in steps of
    `groups`, within a step by tiles of `tile_m` output channels and `tile_rows` x `columns` points. An instruction
    multiplies `sync_m` channels by `sync_rows` x `columns` points: a tile, or where the vector engine computes what is
    fused behind, as much of it as one synchronisation covers, one row of points at least. `versions` are how
    many blocks of an operand take turns in its buffer; `whole_a` and `whole_b` say that it stays as a whole. `sums` is
    the memory of the sums, "acc" or "out". `bytes_a` and `bytes_b` are read in all, the halo counted; `cycles` is the
    estimate.
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
        """Output channels, rows and columns as text."""
        return f"{self.step_m} x {self.rows} x {self.columns}"


@dataclass(frozen=True, kw_only=True)
class ConvPartition(GemmTiling):
    """A convolution as its matrix multiplication, and the blocks that its schedule is written from.

    The partition and its load counts are those of the matrix multiplication, which bounds what a rectangle of points
    with its halo can do: a prediction. What is loaded and multiplied is told by `blocks`.
    """

    blocks: ConvBlocks

    sections: ClassVar[Sections] = GemmTiling.sections

    @property
    def program(self) -> tuple[str, ConvBlocks]:
        return "blocks", self.blocks
