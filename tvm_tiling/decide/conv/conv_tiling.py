"""The decision for a convolution, on a CPU and on a W-fold accelerator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ..explain import Row, Sections, record_rows, value_text, without_subject
from ..tiling import Decision, GemmTiling
from .winograd import WinogradTiling


class Candidate(NamedTuple):
    """An algorithm that was compared: its predicted seconds (None if it is not applicable), and the reason."""

    form: str
    predicted_seconds: float | None
    why: str

    @property
    def algorithm(self) -> str:
        """The algorithm; stored as the field `form` in records."""
        return self.form


@dataclass(frozen=True, kw_only=True)
class ConvTiling(Decision):
    """Tiling of a convolution. Fields that belong to another machine than the decision's are None.

    `form` is the algorithm: "direct", "gemm", "wfold", "depthwise" and so on. `stride_fold` is the factor by which
    columns are folded into channels: the stride along W if it is folded, else 1 (so test `stride_fold > 1`). On a CPU,
    `predicted_seconds` is the time of one call, and `candidates` are the algorithms that were compared.

    On a W-fold accelerator, granularities are bytes and counts; these, `steps` and `cycles` are those of one image with
    all its groups, and a batch takes a multiple. `aco`, `co_block` and `bci` are those of one group. `reads` counts
    rows of M bytes that the main unit broadcasts, `weight_rows` the rows that one sub-unit loads into its second
    buffer, `write_rows` the rows written. `block_steps` are the steps for Ncu*Ws points of all output channels of a
    group, for the first piece where the kernel is divided. `cycles` is the simulated time with finite buffers,
    instruction by instruction; `steady_cycles` assumes that the engine never waits for its buffers. `utilisation` is
    the multiply-adds of the original convolution divided by the peak multiply-adds in `cycles`.

    On a CPU, sizes are in elements, rows and columns of the output.
    """

    op: ClassVar[str] = "conv"

    form: str
    utilisation: float
    stride_fold: int = 1
    predicted_seconds: float | None = None
    candidates: tuple[Candidate, ...] = ()

    # W-fold accelerator.
    pci: int | None = None  # bytes of a block of channels
    ws: int | None = None  # adjacent columns along W in a row: M / pci
    bci: int | None = None  # blocks of channels
    aco: int | None = None  # output channels, padded to whole sub-units
    co_block: int | None = None  # output channels per pass over the input
    kmax: int | None = None  # widest kernel that the first buffer can hold
    kw_pieces: tuple[int, ...] | None = None  # parts of the (folded) kernel's width
    pco: int | None = None  # bytes of a part of the output channels
    wso: int | None = None  # adjacent columns along W in an output row: M / pco
    pco_whole: int | None = None  # number of full parts of output channels
    pco_remainder: int | None = None  # bytes of the last part, if it is shorter
    loop_order: tuple[str, ...] | None = None  # innermost loop first
    instruction_rows: int | None = None  # output rows of an instruction, each with one block of output channels
    instruction_columns: int | None = None  # output columns of an instruction
    block_steps: int | None = None
    steps: int | None = None
    reads: int | None = None
    weight_rows: int | None = None
    write_rows: int | None = None
    steady_cycles: int | None = None  # of one image: the slowest of multipliers and ports, without waiting for buffers
    cycles: int | None = None  # of one image, simulated with the buffers of the machine

    # CPU.
    tile_rows: int | None = None  # output rows of the register tile
    tile_columns: int | None = None  # output columns of the register tile
    vectors: int | None = None  # vectors of output channels of the register tile
    lanes: int | None = None  # accumulators in a vector register
    lanes_along: str | None = None  # depthwise: "channels" or "columns"
    walk_rows: bool | None = None  # depthwise: a tile is one row and loops over its taps inside the image
    walk_columns: bool | None = None  # depthwise: the same for one column
    taps_at_once: int | None = None  # depthwise: adjacent taps per dot product; None: taps are multiplied individually
    keep_rows: int | None = None  # rows of a band
    block_taps: int | None = None  # tap rows of a block of the reduction axes
    block_run: int | None = None  # elements of a contiguous run within a tap row
    columns: int | None = None  # output channels of a column block
    inner_order: str | None = None  # "mn": tiles of pixels outside panels of channels; "nm": panels outside
    merge_taps: bool | None = None  # the taps of a kernel row form one run
    pitch: int | None = None  # elements between adjacent positions of the band or input
    copy_input: bool | None = None  # the input is first copied band by band, padded and with adjacent channels
    threads_rows: int | None = None  # parts into which cores divide the rows of tiles
    threads_columns: int | None = None  # parts into which cores divide the output channels
    pack_w: str | None = None  # "none", "run" (packed at run time), "ahead" (prepacked)
    prefetch_w: bool | None = None  # direct: prepacked weights are prefetched
    product: GemmTiling | None = None  # algorithm "gemm"
    winograd: WinogradTiling | None = None  # algorithm "winograd"

    sections: ClassVar[Sections] = (
        ("algorithm", ("form",)),
        ("folding", ("stride_fold", "pci", "ws", "kw_pieces")),
        ("output", ("co_block", "pco", "wso")),
        ("loops", ("loop_order", "instruction_rows", "instruction_columns")),
        (
            "CPU",
            (
                *("tile_rows", "tile_columns", "vectors", "lanes", "lanes_along", "walk_rows", "walk_columns"),
                "taps_at_once",
                *("keep_rows", "block_taps", "block_run", "columns", "inner_order", "merge_taps", "pitch"),
                *("copy_input", "threads_rows", "threads_columns", "pack_w", "prefetch_w"),
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

    def _own_rows(self) -> Iterator[Row]:
        """Leave out a fold by 1 that no choice led to."""
        rows = super()._own_rows()
        return (row for row in rows if (row.name, row.value, row.why) != ("stride_fold", "1", ""))

    def _parts(self) -> Iterator[Row]:
        if self.product is not None:
            for row in self.product.explained():
                yield row._replace(section=f"matrix multiplication: {row.section}")
        if self.winograd is not None:
            yield from record_rows("winograd", self.winograd, "winograd")
        for form, seconds, why in self.candidates:
            time = "refused" if seconds is None else value_text("predicted_seconds", seconds)
            yield Row("compared", form, time, without_subject(form, why))
