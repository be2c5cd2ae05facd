"""The W-fold engine (design page 05)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import HardwareError
from . import checks

FOLD_PLACES = ("load", "local", "in place")


@dataclass(frozen=True, kw_only=True)
class WFold:
    """A W-fold accelerator: a main unit that broadcasts rows of input to sub-units, each with its own kernels.

    A row is what is read, written and multiplied at once. Every sub-unit has `units` multiply-accumulate units of one
    row each, a first buffer for input rows and a second one for rows of weights, which is a ring buffer. Rates are rows
    per cycle in steady state: `input_rows_per_cycle` of the broadcast of the main unit, `weight_rows_per_cycle` of each
    sub-unit's weights, `output_rows_per_cycle` of results on the way out.

    A convolution starts at least `interval` cycles after the previous one and has its results `latency` cycles after
    its last step. One whose operand is the result of an earlier one waits for it, unless the engine `forwards`;
    accumulation never waits.
    """

    row_bytes: int = 64  # M
    sub_units: int = 16  # Ns
    units: int = 4  # Ncu
    first_buffer_rows: int = 8  # L1
    second_buffer_rows: int = 9  # L2
    least_granularity: int = 8  # bytes, the smallest PCI and PCO; the others are twice it, four times, up to a row
    padding_slack: int = 16  # bytes; granularities within this much of the least padding count as equal
    co_block_factor: int = 4  # output channels of a sub-unit in a block; more only if the second buffer holds them
    input_rows_per_cycle: float = 1.0
    weight_rows_per_cycle: float = 1.0
    output_rows_per_cycle: float = 1.0
    output_element_bytes: int | None = None  # None: that of the operands, which the next layer reads
    staging_bytes: int = 0  # registers that strided elements are selected from; 0: strided reads instead
    result_buffer_rows: int | None = checks.added(None)  # of each sub-unit, for sums; None: never full
    input_reads_per_cycle: float | None = checks.added(None)  # contiguous reads of the input memory; None: one per row
    dtypes: tuple[str, ...] = checks.added(())  # supported operand types; empty: all
    latency: int = checks.added(0)
    interval: int = checks.added(1)
    forwards: bool = checks.added(False)
    fold_place: str = "load"  # where stride-fold pads rows: on "load" to the chip, in a "local" buffer, or "in place"

    def __post_init__(self) -> None:
        for name in (
            "row_bytes",
            "sub_units",
            "units",
            "first_buffer_rows",
            "second_buffer_rows",
            "least_granularity",
            "padding_slack",
            "co_block_factor",
            "interval",
        ):
            checks.whole("w_fold", name, getattr(self, name))
        for name in ("staging_bytes", "latency"):
            checks.whole("w_fold", name, getattr(self, name), least=0)
        checks.truth("w_fold", "forwards", self.forwards)
        for name in ("output_element_bytes", "result_buffer_rows"):
            if getattr(self, name) is not None:
                checks.whole("w_fold", name, getattr(self, name))
        for name in ("input_rows_per_cycle", "weight_rows_per_cycle", "output_rows_per_cycle"):
            checks.put(self, name, checks.number("w_fold", name, getattr(self, name)))
        if self.input_reads_per_cycle is not None:
            reads = checks.number("w_fold", "input_reads_per_cycle", self.input_reads_per_cycle)
            checks.put(self, "input_reads_per_cycle", reads)
        checks.put(self, "dtypes", checks.element_types("w_fold", self.dtypes))
        checks.one_of("w_fold", "fold_place", self.fold_place, FOLD_PLACES)
        folds, rest = divmod(self.row_bytes, self.least_granularity)
        if rest or folds & (folds - 1) or not folds:
            raise HardwareError(
                f"w_fold: least_granularity = {self.least_granularity}; expected row_bytes = {self.row_bytes} divided "
                "by a power of two"
            )
        if self.first_buffer_rows < self.units:
            raise HardwareError(
                f"w_fold: first_buffer_rows = {self.first_buffer_rows}; expected at least a row for each of units = "
                f"{self.units}"
            )

    @property
    def granularities(self) -> tuple[int, ...]:
        """Channel granularities in bytes, largest first: a row, half of it, ..."""
        folds = (self.row_bytes // self.least_granularity).bit_length()
        return tuple(self.row_bytes >> i for i in range(folds))

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers of all sub-units, and of the staging registers."""
        rows = self.first_buffer_rows + self.second_buffer_rows + (self.result_buffer_rows or 0)
        return self.sub_units * rows * self.row_bytes + self.staging_bytes

    @property
    def bytes_per_cycle(self) -> int:
        """Bytes of operand that all units multiply per cycle; divided by the element size, multiply-accumulates at
        peak."""
        return self.sub_units * self.units * self.row_bytes
