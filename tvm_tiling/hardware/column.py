"""The column engine of recurrent layers (design page 04)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import HardwareError
from . import checks

LATENCIES = ("mul", "add", "acc", "tail")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column engine: `multipliers` (NPE) arranged as EP columns by VP rows, whose products are summed by an adder
    tree.

    The tree has `tree_inputs` columns (None: a tree for any number); with a tail of `tree_tail` (CAT-N), its last
    levels feed 1 to `tree_tail` accumulators, so that smaller numbers of columns are supported too. Latencies are in
    cycles: `mul_latency` of a multiplication, `add_latency` of one level of the tree, `acc_latency` of the
    accumulation, and `tail_latency` of the gates after it. `threads` sequences share an engine, which switches between
    them when one waits; there are `engines` of them. Each thread has `versions` of its vectors and accumulators, used
    in rotation by its time steps: with two, the columns of the next input are loaded and summed while the previous step
    still drains. `dtypes` are the supported operand types; empty: all. A multiplication starts at least `interval`
    cycles after the previous one; one whose operand is the result of an earlier one waits for it, unless the engine
    `forwards`. Sums are added after the tree and never wait. `tail_lanes` elements pass a function of the tail per
    cycle, one function after another; None: the tail takes no time beyond its latency.

    Number format of quantised layers. Weights and vectors are two's complement fixed point of 8 or 16 bits with the
    value q / 2^F; each tensor has its own number of fraction bits F. Products have Fw + Fv fraction bits and are
    accumulated in int32, which wraps around. After the tree, a sum is dequantised once to 16 bits with F fraction bits
    by SCALE with 2^(F - Fw - Fv): round to nearest, ties to even, saturating at -2^15 and 2^15 - 1. The tail computes
    in that format: sigmoid and tanh use tables of 2^16 entries, where entry q is round(f(q / 2^F) * 2^F), ties to even,
    saturated (sigmoid lies in 0 .. 2^F, tanh in -2^F .. 2^F, so F = 15 saturates 1.0 to 1 - 2^-15); products of two
    numbers are computed in int32, shifted back by F with ties upwards (SHIFT) and saturated to 16 bits.
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
                    f"column: tree_inputs = {self.tree_inputs}; expected a power of two of at most multipliers = "
                    f"{self.multipliers}"
                )
        most = self.multipliers if self.tree_inputs is None else self.tree_inputs
        if self.tree_tail & (self.tree_tail - 1) or self.tree_tail > most:
            raise HardwareError(
                f"column: tree_tail = {self.tree_tail}; expected a power of two of at most {most}, the tree's inputs"
            )

    @property
    def column_counts(self) -> tuple[int, ...]:
        """The numbers of columns (EP) that the tree supports, in ascending order: powers of two."""
        most = self.tree_inputs or self.multipliers
        least = 1 if self.tree_inputs is None else most // self.tree_tail
        return tuple(1 << power for power in range(most.bit_length()) if least <= 1 << power <= most)

    def latency(self, columns: int) -> int:
        """Return the cycles from the last column of a multiplication to its result, with `columns` (EP) summed at
        once."""
        depth = (columns - 1).bit_length()
        return self.mul_latency + depth * self.add_latency + self.acc_latency + self.tail_latency
