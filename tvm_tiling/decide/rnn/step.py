"""Cycles of a recurrent layer's time step on page 04's engine, for a given number of columns and rows at once."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import HardwareError
from ...hardware.column import Column
from ...workload import RnnWorkload
from ..gemm.traffic import ceil_div


@dataclass(frozen=True, kw_only=True)
class StepCycles:
    """One step of one sequence: `cx` cycles for the columns of x, `ch` for those of h, and `drains` times until sums
    are there, `latency` cycles each. The last drain is hidden behind the x columns of the next step."""

    cx: int
    ch: int
    latency: int
    drains: int = 1

    @property
    def product(self) -> int:
        """Cycles in which the engine multiplies."""
        return self.cx + self.ch

    @property
    def column_wise(self) -> int:
        """A step, one behind the other of its sequence: Ch + max(Cx, lat), and every drain but the last in full."""
        return self.engaged - self.cx + max(self.cx, self.latency)

    @property
    def row_wise(self) -> int:
        """The same where a product starts with the whole of [x, h]: every drain in full."""
        return self.product + self.drains * self.latency

    def round(self, threads: int) -> int:
        """A step of each of so many equal threads."""
        return max(threads * self.product, self.column_wise)

    def sequences(self, steps: int, threads: int = 1) -> int:
        """`threads` equal sequences of `steps` steps side by side. The first round hides behind nothing, and has no
        drain of a step before it; one drain follows the last."""
        first = self.engaged + (threads - 1) * self.product
        return first + (steps - 1) * self.round(threads) + self.latency

    @property
    def engaged(self) -> int:
        """From the first column of a step to its last, waits between dependent products included."""
        return self.product + (self.drains - 1) * self.latency


def sums_of_a_unit(workload: RnnWorkload) -> int:
    """Rows of the combined weights for each unit: a GRU whose reset gate multiplies the product keeps the two halves of
    its candidate apart."""
    return 4 if workload.cell == "gru" and workload.linear_before_reset else workload.gates


def most_rows(workload: RnnWorkload) -> int:
    """Hw, the rows of the combined weights: more at once are idle."""
    return sums_of_a_unit(workload) * workload.hidden_size


def step_cycles(workload: RnnWorkload, column: Column, input_size: int, ep: int, vp: int) -> StepCycles:
    """One step of a layer that takes `input_size` numbers, with `ep` columns and `vp` rows at once."""
    hidden, rows = workload.hidden_size, most_rows(workload)
    cx = ceil_div(input_size, ep) * ceil_div(rows, vp)
    if workload.cell == "gru" and not workload.linear_before_reset:
        # r and z from h, then the candidate from r * h: two products, each with its drain.
        blocks = ceil_div(2 * hidden, vp) + ceil_div(hidden, vp)
        return StepCycles(cx=cx, ch=ceil_div(hidden, ep) * blocks, latency=column.latency(ep), drains=2)
    return StepCycles(cx=cx, ch=ceil_div(hidden, ep) * ceil_div(rows, vp), latency=column.latency(ep))


def check_pair(column: Column, hardware: str, ep: object, vp: object) -> tuple[int, int]:
    """`ep` and `vp` as they are; HardwareError, naming what the machine takes, where it has no such pair."""
    counts = column.column_counts
    if isinstance(ep, bool) or not isinstance(ep, int) or ep not in counts:
        listed = ", ".join(map(str, counts))
        raise HardwareError(f"{hardware}: ep = {ep!r}, accepted: columns that its adder tree serves, {listed}")
    if isinstance(vp, bool) or not isinstance(vp, int) or not 1 <= vp <= column.multipliers // ep:
        raise HardwareError(
            f"{hardware}: vp = {vp!r} rows beside ep = {ep} columns, accepted: 1 to {column.multipliers // ep}, for "
            f"{column.multipliers} multipliers"
        )
    return ep, vp
