"""The decision of a convolution as data, on a CPU and on page 05's machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..explain import Row, Sections, record_rows, value_text
from ..tiling import Decision, GemmTiling
from .winograd import WinogradTiling


class Candidate(NamedTuple):
    """A form that was compared: its predicted time, None where it is refused, and why it costs that or is refused."""

    form: str
    predicted_seconds: float | None
    why: str

    @property
    def algorithm(self) -> str:
        """The algorithm; the field `form` of records."""
        return self.form


@dataclass(frozen=True, kw_only=True)
class ConvTiling(Decision):
    """How a convolution is cut (pages 05, 03 and 01). Fields of another machine than the decision's are None.

    `form` is "direct", "gemm", "wfold", "depthwise" and so on. `stride_fold` is the factor by which columns are folded
    into channels, the stride along W where it is folded and 1 where it is not: ask `stride_fold > 1`, since 1 is true.

    On a W-fold accelerator granularities are bytes and counts, `steps` and `cycles` among them, are those of one
    image, all its groups included: a batch takes as many times as much. `aco`,
    `co_block` and `bci` are those of one group. `reads` are rows of M bytes that the main unit broadcasts,
    `weight_rows` rows that one sub-unit loads into its second buffer, `write_rows` rows that leave. `block_steps` are
    the steps for Ncu*Ws points of all output channels of a group, of the first piece where the kernel is cut.
    `cycles` is what the engine takes with its buffers walked, one instruction after the other; `steady_cycles` is the
    prediction for buffers that never make it wait. `utilisation` is the multiply-adds of the plain convolution over
    those that `cycles` have room for.

    On a CPU sizes are elements, rows and columns of the output.
    """

    op: ClassVar[str] = "conv"

    form: str
    utilisation: float
    stride_fold: int = 1
    predicted_seconds: float | None = None
    candidates: tuple[Candidate, ...] = ()

    # Page 05's machine.
    pci: int | None = None  # bytes of a block of channels
    ws: int | None = None  # neighbours along W in a row: M / pci
    bci: int | None = None  # blocks of channels
    aco: int | None = None  # output channels, padded to whole sub-units
    co_block: int | None = None  # output channels between two passes over the input
    kmax: int | None = None  # widest kernel that the first buffer takes
    kw_pieces: tuple[int, ...] | None = None  # the (folded) kernel's width, cut
    pco: int | None = None  # bytes of a piece of output channels
    wso: int | None = None  # neighbours along W in a row that leaves: M / pco
    pco_whole: int | None = None  # whole pieces of output channels
    pco_remainder: int | None = None  # bytes of the last piece where it is shorter
    loop_order: tuple[str, ...] | None = None  # inner to outer
    instruction_rows: int | None = None  # output rows of an instruction, which has one block of output channels
    instruction_columns: int | None = None  # output columns of an instruction
    block_steps: int | None = None
    steps: int | None = None
    reads: int | None = None
    weight_rows: int | None = None
    write_rows: int | None = None
    steady_cycles: int | None = None  # of one image: page 05's prediction, the slowest of multipliers and ports
    cycles: int | None = None  # of one image, by the walk of the buffers that the simulator executes

    # CPU.
    tile_rows: int | None = None  # output rows of the register tile
    tile_columns: int | None = None  # output columns of the register tile
    vectors: int | None = None  # vectors of output channels of the register tile
    lanes: int | None = None  # accumulators in a vector register
    lanes_along: str | None = None  # depthwise: "channels" or "columns"
    walk_rows: bool | None = None  # depthwise: a tile is one row, and loops over its taps inside the image
    walk_columns: bool | None = None  # depthwise: likewise one column
    taps_at_once: int | None = None  # depthwise: neighbouring taps that a dot product takes; None: multiplied singly
    keep_rows: int | None = None  # rows of a band
    block_taps: int | None = None  # tap rows of a block of the reduction axes
    block_run: int | None = None  # elements of a run within a tap row
    columns: int | None = None  # output channels of a column block
    inner_order: str | None = None  # "mn": tiles of pixels outside panels of channels; "nm": panels outside
    merge_taps: bool | None = None  # the taps of a row of the kernel are one run
    pitch: int | None = None  # elements from a position of the band, or of the input, to the next
    copy_input: bool | None = None
    threads_rows: int | None = None
    threads_columns: int | None = None
    pack_w: str | None = None  # "none", "run" (while it runs), "ahead" (when it is compiled)
    product: GemmTiling | None = None  # form "gemm"
    winograd: WinogradTiling | None = None  # form "winograd"

    sections: ClassVar[Sections] = (
        ("algorithm", ("form",)),
        ("fold", ("stride_fold", "pci", "ws", "kw_pieces")),
        ("output", ("co_block", "pco", "wso")),
        ("loops", ("loop_order", "instruction_rows", "instruction_columns")),
        (
            "CPU",
            (
                *("tile_rows", "tile_columns", "vectors", "lanes", "lanes_along", "walk_rows", "walk_columns"),
                "taps_at_once",
                *("keep_rows", "block_taps", "block_run", "columns", "inner_order", "merge_taps", "pitch"),
                *("copy_input", "threads_rows", "threads_columns", "pack_w"),
            ),
        ),
        (
            "predicted",
            (
                "bci",
                "kmax",
                "aco",
                "pco_whole",
                "pco_remainder",
                "block_steps",
                "steps",
                "reads",
                "weight_rows",
                "write_rows",
                "steady_cycles",
                "cycles",
                "utilisation",
                "predicted_seconds",
            ),
        ),
    )

    @property
    def rule(self) -> str | None:
        few_rows = self.product is not None and self.product.form == "stream"
        return "gemm_stream" if few_rows else self.form

    def _parts(self) -> Iterator[Row]:
        if self.product is not None:
            for row in self.product.explained():
                yield row._replace(section=f"product: {row.section}")
        if self.winograd is not None:
            yield from record_rows("winograd", self.winograd)
        for form, seconds, why in self.candidates:
            yield Row("compared", form, "refused" if seconds is None else value_text("predicted_seconds", seconds), why)
