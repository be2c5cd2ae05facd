"""Cycles of one time step of a recurrent layer on the column engine, for given numbers of columns and rows at once."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import HardwareError
from ...hardware.column import Column
from ...workload import RnnWorkload
from ..gemm.traffic import ceil_div


@dataclass(frozen=True, kw_only=True)
class StepCycles:
    """One step of one sequence.

    `cx` and `ch` are the cycles for the columns of x and of h. Each drain has `latency` cycles until the sums are
    available, and the cycles in `tails` in which the tail processes them. The last drain overlaps with the x columns of
    the next step.
    """

    cx: int
    ch: int
    latency: int
    tails: tuple[int, ...] = (0,)

    @property
    def drains(self) -> int:
        """Number of times that a step waits for sums."""
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
        """Cycles of a step that follows another of its sequence: Ch + max(Cx, lat), and every drain but the last in
        full."""
        return self.engaged - self.cx + max(self.cx, self.drain)

    @property
    def row_wise(self) -> int:
        """The same if multiplications start with the whole of [x, h]: every drain in full."""
        return self.engaged + self.drain

    def round(self, threads: int) -> int:
        """Return the cycles of a step for `threads` equal threads, which share the engine and its tail."""
        return max(threads * self.product, self.column_wise, threads * sum(self.tails))

    def sequences(self, steps: int, threads: int = 1) -> int:
        """Return the cycles of `threads` equal sequences of `steps` steps side by side. The first round overlaps with
        nothing and follows no drain; one drain follows the last."""
        first = self.engaged + (threads - 1) * self.product
        return first + (steps - 1) * self.round(threads) + self.drain

    @property
    def engaged(self) -> int:
        """Cycles from the first column of a step to its last, including waits between dependent multiplications."""
        return self.product + (self.drains - 1) * self.latency + sum(self.tails[:-1])


def sums_of_a_unit(workload: RnnWorkload) -> int:
    """Return the rows of the combined weights per unit: a GRU whose reset gate multiplies the product keeps the two
    halves of its candidate separate."""
    return 4 if workload.cell == "gru" and workload.linear_before_reset else workload.gates


def most_rows(workload: RnnWorkload) -> int:
    """Return Hw, the rows of the combined weights; processing more at once leaves them idle."""
    return sums_of_a_unit(workload) * workload.hidden_size


FUNCTIONS = {"lstm": (15,), "gru": (7, 8), "gru of the product": (15,), "rnn": (2,)}
"""Functions that the tail computes in each drain of a step, each on one element per hidden unit: dequantisation and
activation of an LSTM's four gates (8), and 7 more for the state and the result."""


def tail_cycles(workload: RnnWorkload, column: Column) -> tuple[int, ...]:
    """Return the cycles that the tail computes in each drain of a step, without the latency of its pipeline."""
    cell = "gru of the product" if workload.cell == "gru" and workload.linear_before_reset else workload.cell
    each = 0 if column.tail_lanes is None else ceil_div(workload.hidden_size, column.tail_lanes)
    return tuple(functions * each for functions in FUNCTIONS[cell])


def step_cycles(workload: RnnWorkload, column: Column, input_size: int, ep: int, vp: int) -> StepCycles:
    """Return one step of a layer with `input_size` inputs, with `ep` columns and `vp` rows at once."""
    hidden, rows, tails = workload.hidden_size, most_rows(workload), tail_cycles(workload, column)
    cx = ceil_div(input_size, ep) * ceil_div(rows, vp)
    if workload.cell == "gru" and not workload.linear_before_reset:
        # r and z from h, then the candidate from r * h: two multiplications, each with its drain.
        blocks = ceil_div(2 * hidden, vp) + ceil_div(hidden, vp)
        return StepCycles(cx=cx, ch=ceil_div(hidden, ep) * blocks, latency=column.latency(ep), tails=tails)
    return StepCycles(cx=cx, ch=ceil_div(hidden, ep) * ceil_div(rows, vp), latency=column.latency(ep), tails=tails)


def check_pair(column: Column, hardware: str, ep: object, vp: object) -> tuple[int, int]:
    """Return `ep` and `vp` unchanged. Raises HardwareError, naming the supported values, if the machine does not
    support the pair."""
    counts = column.column_counts
    if isinstance(ep, bool) or not isinstance(ep, int) or ep not in counts:
        listed = ", ".join(map(str, counts))
        raise HardwareError(
            f"{hardware}: ep = {ep!r}; expected a number of columns that its adder tree supports: {listed}"
        )
    if isinstance(vp, bool) or not isinstance(vp, int) or not 1 <= vp <= column.multipliers // ep:
        raise HardwareError(
            f"{hardware}: vp = {vp!r} rows with ep = {ep} columns; expected 1 to {column.multipliers // ep}, for "
            f"{column.multipliers} multipliers"
        )
    return ep, vp
