"""Cycles of a recurrent layer's time step on page 04's engine, for a given number of columns and rows at once."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import HardwareError
from ...hardware.column import Column
from ...workload import RnnWorkload
from ..gemm.traffic import ceil_div


@dataclass(frozen=True, kw_only=True)
class StepCycles:
    """One step of one sequence: `cx` cycles for the columns of x, `ch` for those of h, and for each of its drains
    `latency` cycles until sums are there and those of `tails` in which the tail computes with them. The last drain is
    hidden behind the x columns of the next step."""

    cx: int
    ch: int
    latency: int
    tails: tuple[int, ...] = (0,)

    @property
    def drains(self) -> int:
        """How often a step waits for sums."""
        return len(self.tails)

    @property
    def drain(self) -> int:
        """Cycles from the last column of a step to its result."""
        return self.latency + self.tails[-1]

    @property
    def product(self) -> int:
        """Cycles in which the engine multiplies."""
        return self.cx + self.ch

    @property
    def column_wise(self) -> int:
        """A step, one behind the other of its sequence: Ch + max(Cx, lat), and every drain but the last in full."""
        return self.engaged - self.cx + max(self.cx, self.drain)

    @property
    def row_wise(self) -> int:
        """The same where a product starts with the whole of [x, h]: every drain in full."""
        return self.engaged + self.drain

    def round(self, threads: int) -> int:
        """A step of each of so many equal threads, which share the engine and its tail."""
        return max(threads * self.product, self.column_wise, threads * sum(self.tails))

    def sequences(self, steps: int, threads: int = 1) -> int:
        """`threads` equal sequences of `steps` steps side by side. The first round hides behind nothing, and has no
        drain of a step before it; one drain follows the last."""
        first = self.engaged + (threads - 1) * self.product
        return first + (steps - 1) * self.round(threads) + self.drain

    @property
    def engaged(self) -> int:
        """From the first column of a step to its last, waits between dependent products included."""
        return self.product + (self.drains - 1) * self.latency + sum(self.tails[:-1])


def sums_of_a_unit(workload: RnnWorkload) -> int:
    """Rows of the combined weights for each unit: a GRU whose reset gate multiplies the product keeps the two halves of
    its candidate apart."""
    return 4 if workload.cell == "gru" and workload.linear_before_reset else workload.gates


def most_rows(workload: RnnWorkload) -> int:
    """Hw, the rows of the combined weights: more at once are idle."""
    return sums_of_a_unit(workload) * workload.hidden_size


FUNCTIONS = {"lstm": (15,), "gru": (7, 8), "gru of the product": (15,), "rnn": (2,)}
"""Functions that the tail computes behind each drain of a step, each of as many elements as there are hidden units: an
LSTM's four gates are dequantised and smoothed (8), the state and the result take 7 more."""


def tail_cycles(workload: RnnWorkload, column: Column) -> tuple[int, ...]:
    """Cycles that the tail computes behind each drain of a step, without the latency of its pipeline."""
    cell = "gru of the product" if workload.cell == "gru" and workload.linear_before_reset else workload.cell
    each = 0 if column.tail_lanes is None else ceil_div(workload.hidden_size, column.tail_lanes)
    return tuple(functions * each for functions in FUNCTIONS[cell])


def step_cycles(workload: RnnWorkload, column: Column, input_size: int, ep: int, vp: int) -> StepCycles:
    """One step of a layer that takes `input_size` numbers, with `ep` columns and `vp` rows at once."""
    hidden, rows, tails = workload.hidden_size, most_rows(workload), tail_cycles(workload, column)
    cx = ceil_div(input_size, ep) * ceil_div(rows, vp)
    if workload.cell == "gru" and not workload.linear_before_reset:
        # r and z from h, then the candidate from r * h: two products, each with its drain.
        blocks = ceil_div(2 * hidden, vp) + ceil_div(hidden, vp)
        return StepCycles(cx=cx, ch=ceil_div(hidden, ep) * blocks, latency=column.latency(ep), tails=tails)
    return StepCycles(cx=cx, ch=ceil_div(hidden, ep) * ceil_div(rows, vp), latency=column.latency(ep), tails=tails)


def check_pair(column: Column, hardware: str, ep: object, vp: object) -> tuple[int, int]:
    """`ep` and `vp` as they are; HardwareError, naming what the machine takes, where it has no such pair."""
    counts = column.column_counts
    if isinstance(ep, bool) or not isinstance(ep, int) or ep not in counts:
        listed = ", ".join(map(str, counts))
        raise HardwareError(f"{hardware}: ep = {ep!r}; expected columns that its adder tree serves, {listed}")
    if isinstance(vp, bool) or not isinstance(vp, int) or not 1 <= vp <= column.multipliers // ep:
        raise HardwareError(
            f"{hardware}: vp = {vp!r} rows beside ep = {ep} columns; expected 1 to {column.multipliers // ep}, for "
            f"{column.multipliers} multipliers"
        )
    return ep, vp
