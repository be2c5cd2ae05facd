"""Matrix multiplications with a dynamic number of rows: one register tile, and a division among cores for each range of
rows.

A kernel for any number of rows contains a microkernel for every height up to that of its register tile, so a tile with
few rows and many columns needs the least code. Candidates are tiles of 1 to 4 vectors with as many rows as the
registers allow, at most MOST_ROWS. The lowest tile whose predicted time for the sample is within NEAR of the best is
taken; the prediction includes computed columns beyond the matrix. Weights are packed once for all ranges, in panels as
wide as the tile and in the K blocks of the sample.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import ClassVar

from ...errors import HardwareError, UnsupportedOperator
from ...hardware.description import Cpu, Hardware
from ...hardware.dot_instructions import DotInstruction
from ...operand_types import holds_sums
from ...workload import GemmWorkload
from ..explain import Sections
from ..kinds import decided
from ..options import Options
from ..surroundings import Surroundings
from ..tiling import Decision, GemmTiling, Reason
from .dot_engine import dot_engine
from .gemm_reasons import PREFETCHED
from .microkernel import tallest
from .one_order import open_depth

FORM = "open"
NEAR = 1.02
MOST_VECTORS = 4  # vectors of a tile: a wider one has too few rows to reuse its loads of B
MOST_ROWS = 8  # rows of a tile: each additional one adds a kernel
ROWS = tuple(1 << power for power in range(13))  # row counts at which ranges are decided


@dataclass(frozen=True, kw_only=True)
class RowRange:
    """How cores divide a matrix multiplication of at most `rows` rows (None: any number): shares in batch, rows and
    columns."""

    predictions: ClassVar[tuple[str, ...]] = ("predicted_seconds",)

    rows: int | None
    threads_batch: int
    threads_m: int
    threads_n: int
    predicted_seconds: float  # for the most rows of the range, or the largest number that was predicted

    @property
    def threads(self) -> tuple[int, int, int]:
        """Shares in batch, rows and columns."""
        return self.threads_batch, self.threads_m, self.threads_n

    def __str__(self) -> str:
        most = "more" if self.rows is None else f"up to {self.rows}"
        return f"{most}: {' x '.join(map(str, self.threads))}"


@dataclass(frozen=True, kw_only=True)
class OpenGemmTiling(GemmTiling):
    """Tiling of a matrix multiplication with dynamic rows: the tiling for the sample, and in `ranges` the division
    among cores."""

    op: ClassVar[str] = "gemm of open rows"
    title: ClassVar[str] = "gemm with dynamic rows"

    ranges: tuple[RowRange, ...]

    sections: ClassVar[Sections] = (
        *GemmTiling.sections,
        ("cores by rows", ("ranges",)),
    )

    @property
    def rule(self) -> str | None:
        return None


def decide_open_rows(
    workload: GemmWorkload, hardware: Hardware, options: Options, around: Surroundings, run: int = 0
) -> OpenGemmTiling:
    """Decide a matrix multiplication with dynamic rows; `workload` has the sample number of rows.

    run: elements of K that are contiguous in computed rows, such as the channels of one tap of a convolution; 0 if
    there are none. Raises HardwareError if the machine has no CPU.
    """
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
    plain = replace(options, microkernel=None, form=None, config=None, configs=None, decision=None)
    priced = _priced(workload, hardware, plain, around, cpu)
    if not priced:
        raise UnsupportedOperator(f"{hardware.name} has no register tile for a gemm with dynamic rows")
    best = min(priced.values())
    tile = min((rows, -vectors) for (rows, vectors), seconds in priced.items() if seconds <= NEAR * best)
    tiled = replace(plain, microkernel=(tile[0], -tile[1]))
    chosen = decided(workload, hardware, tiled, around)
    assert isinstance(chosen, GemmTiling)
    if options.deterministic:
        keeps_sums = around.accumulates and holds_sums(workload.types.out)
        chosen = replace(chosen, partition_k=open_depth(workload.k) if keeps_sums else workload.k)
    near = f"within {NEAR - 1:.0%} of the fastest tile for {workload.m} rows"
    ranges = _ranges(workload, hardware, tiled, around)
    why = f"predicted for {ROWS[0]} to {ROWS[-1]} rows; equal ranges are merged"
    any_rows = options.deterministic
    return opened(chosen, workload, cpu, around, run, ranges, tile_why=near, ranges_why=why, any_rows=any_rows)


def open_engine(workload: GemmWorkload, cpu: Cpu, *, prepacked: bool, any_rows: bool = False) -> DotInstruction:
    """Return the multiply instruction. Prepacked weights are interleaved for a dot product for any number of rows:
    bfloat16 weights converted for multiply-adds would take twice the bytes, which slows down few rows. any_rows: as in
    dot_engine()."""
    return dot_engine(workload, cpu, form=None if prepacked else "normal", prepacked=prepacked, any_rows=any_rows)


def opened(
    chosen: GemmTiling,
    workload: GemmWorkload,
    cpu: Cpu,
    around: Surroundings,
    run: int,
    ranges: tuple[RowRange, ...],
    *,
    tile_why: str,
    ranges_why: str,
    any_rows: bool = False,
) -> OpenGemmTiling:
    """Return the decision `chosen`, made for the sample, in its form for any number of rows, divided among cores by
    `ranges`; any_rows: as in dot_engine()."""
    engine = open_engine(workload, cpu, prepacked=chosen.pack_b == "ahead", any_rows=any_rows)
    copied = not (around.plain_a and engine.in_place) or engine.widens(workload.types.a)
    depth = (
        _whole_runs(workload.k, min(chosen.partition_k, workload.k), run, engine.group)
        if copied
        else chosen.partition_k
    )
    others = ("form", "mr", "inner_order", "keep", "pack_a", "prefetch_b", "prefetch_next")
    reasons = [reason for reason in chosen.reasons if reason.field not in others]
    own = {field.name: getattr(chosen, field.name) for field in fields(GemmTiling)}
    prefetches = chosen.pack_b == "ahead" and (chosen.mr or 0) >= cpu.kernel_costs.prefetching_rows
    return OpenGemmTiling(
        **{
            **own,
            "form": FORM,
            "keep": 0 if copied else None,
            "pack_a": "pack" if copied else "none",
            "partition_k": depth,
            "pack_b": "ahead" if chosen.pack_b == "ahead" else "pack",
            "prefetch_b": prefetches or None,
            "prefetch_next": None,
            "inner_order": "mn",
            "threads_k": 1,
            "reasons": (
                Reason("form", FORM, "the number of rows is dynamic"),
                Reason("mr", chosen.mr, f"a kernel for each of up to {chosen.mr} rows; {tile_why}"),
                *([Reason("pack_a", "pack", _why_copied(engine, around))] if copied else []),
                *(
                    [Reason("partition_k", depth, f"blocks hold whole runs of {run}")]
                    if depth != chosen.partition_k
                    else []
                ),
                *reasons,
                *([Reason("prefetch_b", prefetches, PREFETCHED)] if prefetches else []),
                Reason("ranges", len(ranges), ranges_why),
            ),
        },
        ranges=ranges,
    )


def decide_open_columns(
    workload: GemmWorkload, hardware: Hardware, options: Options, around: Surroundings
) -> OpenGemmTiling:
    """Decide a matrix multiplication with dynamic columns or a dynamic reduction axis; `workload` has the sample sizes.

    B is packed at run time in one block of K, and rows are copied. Errors are those of decide_open_rows.
    """
    # Both operands are copied, so their layout does not matter.
    copied = replace(workload, trans_a=False, trans_b=False, lda=None, ldb=None, ldc=None)
    found = decide_open_rows(copied, hardware, options, replace(around, plain_a=False))
    own = ("form", "pack_a", "partition_k", "partition_n", "pack_b", "prefetch_b")
    return replace(
        found,
        keep=0,
        partition_k=workload.k,
        partition_n=workload.n,
        pack_b="pack",
        prefetch_b=None,
        reasons=(
            Reason("form", "open", "columns or the reduction axis are dynamic"),
            Reason("pack_a", "pack", "the last group of K is padded with zeros"),
            Reason("pack_b", "pack", "all panels of a matrix, before its rows"),
            Reason("partition_k", workload.k, "one block for any K"),
            *(reason for reason in found.reasons if reason.field not in own),
        ),
    )


def _whole_runs(k: int, most: int, run: int, group: int) -> int:
    """Return the elements of K in a block: the largest divisor of K up to `most` that is a multiple or a divisor of
    `run`; `most` if there is none."""
    for blocks in range(-(-k // most), k // group + 1) if run else ():
        length, rest = divmod(k, blocks)
        if not rest and not length % group and (length % run == 0 or run % length == 0):
            return length
    return most


def _why_copied(engine: DotInstruction, around: Surroundings) -> str:
    if not around.plain_a:
        return "elements of A are computed once for each tile"
    return f"{engine.name} takes converted or interleaved operands, prepared once for each tile"


def _seconds(tiling: Decision) -> float:
    assert isinstance(tiling, GemmTiling)
    return tiling.predicted_seconds or 0.0


def _priced(
    workload: GemmWorkload, hardware: Hardware, options: Options, around: Surroundings, cpu: Cpu
) -> dict[tuple[int, int], float]:
    """Return the register tiles, (rows, vectors), with the predicted time of the sample in whole panels."""
    found = {}
    engine = open_engine(workload, cpu, prepacked=around.prepacked, any_rows=options.deterministic)
    for vectors in range(1, MOST_VECTORS + 1):
        rows = min(MOST_ROWS, tallest(cpu.kernel_registers, vectors, rows=engine.rows))
        if rows < 1:
            continue
        tile = replace(options, microkernel=(rows, vectors))
        try:
            tiling = decided(workload, hardware, tile, around)
            if isinstance(tiling, GemmTiling) and tiling.nr:
                whole = replace(workload, n=-(-workload.n // tiling.nr) * tiling.nr, ldb=None, ldc=None)
                found[rows, vectors] = _seconds(decided(whole, hardware, tile, around))
        except HardwareError:
            continue
    return found


def at_rows(workload: GemmWorkload, rows: int) -> GemmWorkload:
    """Return the matrix multiplication with `rows` rows; if A is transposed, its leading dimension changes too."""
    dense = workload.trans_a and workload.lda == workload.m
    return replace(workload, m=rows, lda=None if dense else workload.lda)


def shared(rows: int | None, tiling: GemmTiling) -> RowRange:
    """Return how `tiling` divides a matrix multiplication of up to `rows` rows among cores."""
    return RowRange(
        rows=rows,
        threads_batch=tiling.threads_batch or 1,
        threads_m=tiling.threads_m or 1,
        threads_n=tiling.threads_n or 1,
        predicted_seconds=_seconds(tiling),
    )


def _ranges(workload: GemmWorkload, hardware: Hardware, options: Options, around: Surroundings) -> tuple[RowRange, ...]:
    """Return ranges of rows with one division among cores each; the last range is unbounded."""
    ranges: list[RowRange] = []
    for rows in ROWS:
        # If rows come from the batch dimension, there are as many.
        tiling = decided(at_rows(workload, rows), hardware, options, around)
        assert isinstance(tiling, GemmTiling)
        found = shared(rows, tiling)
        if ranges and ranges[-1].threads == found.threads:
            ranges.pop()
        ranges.append(found)
    return (*ranges[:-1], RowRange(**{**asdict(ranges[-1]), "rows": None}))
