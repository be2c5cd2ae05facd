"""The column engine of recurrent layers (page 04)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import HardwareError
from . import checks

LATENCIES = ("mul", "add", "acc", "tail")


@dataclass(frozen=True, kw_only=True)
class Column:
    """Page 04's engine: `multipliers` (NPE) as EP columns by VP rows, whose products an adder tree sums.

    The tree was built for `tree_inputs` columns (None: a tree that serves every number); with a tail of `tree_tail`
    (CAT-N) its last levels feed 1 to `tree_tail` accumulators, so that fewer columns are served too. Latencies in
    cycles: of a multiplication, of one level of the tree, of the accumulation, of the gates behind it. `threads`
    sequences share an engine, switched where one waits; there are `engines` of them. Each thread has `versions` of its
    vectors and accumulators, which its time steps take in turn: with two the columns of the next input are loaded and
    summed while the step before still drains. `dtypes` are the operand types it takes, none named: all. A product
    begins at least `interval` cycles after the one before; one whose operand is the result of an earlier one waits for
    it, unless the engine `forwards`. Sums are added behind the tree and never wait. `tail_lanes` elements pass a
    function of the tail in a cycle, one function after the other; None: any number in no time, beyond the latency.

    Numbers of quantised layers. Weights and vectors are two's complement fixed point of 8 or 16 bits, the value q /
    2^F; each tensor has a number of fraction bits F of its own. Products have Fw + Fv fraction bits and are summed in
    int32, which wraps round. Once, behind the tree, a sum is dequantised to 16 bits with F fraction bits by SCALE with
    2^(F - Fw - Fv): round to nearest, halves to even, saturating at -2^15 and 2^15 - 1. The tail computes in that
    format: sigmoid and tanh by tables of 2^16 entries, entry q being round(f(q / 2^F) * 2^F), halves to even, saturated
    (sigmoid lies in 0 .. 2^F, tanh in -2^F .. 2^F, so F = 15 configurations 1.0 to 1 - 2^-15); products of two numbers
    in int32, shifted back by F with halves upwards (SHIFT) and saturated to 16 bits.
    """

    multipliers: int
    tree_inputs: int | None = None
    tree_tail: int = 1
    mul_latency: int = 3
    add_latency: int = 1
    acc_latency: int = 1
    tail_latency: int = 16
    threads: int = 1
    engines: int = 1
    versions: int = checks.added(2)
    dtypes: tuple[str, ...] = checks.added(())
    tail_lanes: int | None = checks.added(None)
    interval: int = checks.added(1)
    forwards: bool = checks.added(False)

    def __post_init__(self) -> None:
        for name in ("multipliers", "tree_tail", "threads", "engines", "versions", "interval"):
            checks.whole("column", name, getattr(self, name))
        checks.truth("column", "forwards", self.forwards)
        if self.tail_lanes is not None:
            checks.whole("column", "tail_lanes", self.tail_lanes)
        checks.put(self, "dtypes", checks.element_types("column", self.dtypes))
        for name in LATENCIES:
            checks.whole("column", f"{name}_latency", getattr(self, f"{name}_latency"), least=0)
        if self.tree_inputs is not None:
            checks.whole("column", "tree_inputs", self.tree_inputs)
            if self.tree_inputs & (self.tree_inputs - 1) or self.tree_inputs > self.multipliers:
                raise HardwareError(
                    f"column: tree_inputs = {self.tree_inputs}, accepted: a power of two of at most multipliers = "
                    f"{self.multipliers}"
                )
        most = self.multipliers if self.tree_inputs is None else self.tree_inputs
        if self.tree_tail & (self.tree_tail - 1) or self.tree_tail > most:
            raise HardwareError(
                f"column: tree_tail = {self.tree_tail}, accepted: a power of two of at most {most}, the tree's inputs"
            )

    @property
    def column_counts(self) -> tuple[int, ...]:
        """The numbers of columns (EP) that the tree serves, the smallest first: powers of two."""
        most = self.tree_inputs or self.multipliers
        least = 1 if self.tree_inputs is None else most // self.tree_tail
        return tuple(1 << power for power in range(most.bit_length()) if least <= 1 << power <= most)

    def latency(self, columns: int) -> int:
        """Cycles from a product's last column to its result, with `columns` (EP) summed at once."""
        depth = (columns - 1).bit_length()
        return self.mul_latency + depth * self.add_latency + self.acc_latency + self.tail_latency
