"""Recurrent layers on the column engine: the numbers of columns (EP) and rows (VP) processed at once in each layer, and
the threads (column-wise matrix-vector multiplication, design page 04).

There are few values of EP, so mode "best" tries them all. Mode "seed" is the published search: EP = 1, 2, 4, ... with
the largest VP that each allows, until cycles rise. It assumes that cycles fall up to the best value and rise
afterwards, so for many sizes that are not powers of two it stops too early. An EP with equal cycles does not end the
search. Both modes choose the fewest cycles per step, then the smaller latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from ...errors import HardwareError, UnsupportedOperator, nearest
from ...figures import quantity
from ...hardware.column import Column
from ...hardware.description import Hardware
from ...workload import RnnWorkload
from ..explain import Row, Sections
from ..gemm.traffic import ceil_div, refuse_types
from ..tiling import Decision, Reason
from .adder_tree import smallest_tail
from .step import StepCycles, check_pair, most_rows, step_cycles

MODES = ("best", "seed")


class RnnCycles(int):
    """Cycles of a whole recurrent workload, as an int.

    `cycles_per_step` covers one step of one sequence through all layers and directions, `row_wise_per_step` the same in
    row-wise order; `product` counts the cycles in which the engine multiplies; `latency` is that of one drain.
    """

    cycles_per_step: int
    row_wise_per_step: int
    product: int
    latency: int


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """The configuration of a layer with `input_size` inputs: `ep` columns and `vp` rows at once.

    For a step of one sequence, `cx` and `ch` are the multiplication cycles of inputs and state, `latency` the cycles
    from the last column to the result including the tail, and `cycles_per_step` the total.
    """

    input_size: int
    ep: int
    vp: int
    cx: int
    ch: int
    latency: int
    cycles_per_step: int


@dataclass(frozen=True, kw_only=True)
class RnnTiling(Decision):
    """Configuration of recurrent layers on a column engine.

    `ep` and `vp` are those of the first layer; `layers` holds all. `cycles_per_step` is for one sequence through all
    layers and directions in column-wise order, `row_wise_per_step` in row-wise order; `utilisation` is that of the
    multipliers over the former. `threads` sequences share each of `engines` engines; `threads_needed` would remove
    every stall; `cycles` is the resulting total of the workload. `seed_gap` is the ratio of the cycles of a step in
    mode "seed" to those in mode "best". `tail` is the CAT-N with which one adder tree serves all layers.
    """

    op: ClassVar[str] = "rnn"
    title: ClassVar[str] = "recurrent layer"

    ep: int
    vp: int
    layers: tuple[LayerConfig, ...]
    tail: int
    cycles_per_step: int
    row_wise_per_step: int
    threads: int
    threads_needed: int
    engines: int
    cycles: int
    utilisation: float
    seed_gap: float

    sections: ClassVar[Sections] = (
        ("columns", ("ep", "vp", "tail")),
        ("threads", ("threads", "threads_needed", "engines")),
        ("predicted", ("cycles_per_step", "row_wise_per_step", "cycles", "utilisation", "seed_gap")),
    )

    def _parts(self) -> Iterator[Row]:
        if len(self.layers) > 1:
            for number, config in enumerate(self.layers, start=1):
                why = (
                    f"EP x VP; {config.cycles_per_step} cycles per step: {config.cx} for the input, {config.ch} for "
                    f"the hidden state, {config.latency} latency"
                )
                yield Row("layers", f"layer {number}", f"{config.ep} x {config.vp}", why)


def decide_rnn(workload: RnnWorkload, hardware: Hardware, *, mode: Literal["best", "seed"] = "best") -> RnnTiling:
    """Return the configuration of recurrent layers on `hardware.column`. Raises HardwareError if the machine has no
    such unit or the unit does not support the type."""
    if mode not in MODES:
        raise HardwareError(f"mode = {mode!r}; {nearest(str(mode), MODES)}")
    column = _column(workload, hardware)
    sizes = workload.input_sizes
    best, greedy = ({size: choose(workload, column, size) for size in sizes} for choose in (_best, _greedy))
    chosen = best if mode == "best" else greedy
    configs = tuple(_config(workload, column, size, chosen[size]) for size in sizes)
    steps = [step_cycles(workload, column, config.input_size, config.ep, config.vp) for config in configs]
    per_step = workload.directions * sum(step.column_wise for step in steps)
    gap = _ratio(workload, column, greedy, best)
    threads = _threads(workload, column)
    needed = max(ceil_div(step.column_wise, max(step.product, sum(step.tails))) for step in steps)
    utilisation = workload.weights / (column.multipliers * per_step)
    tail = smallest_tail(config.ep for config in configs)
    cycles, first = _whole(workload, column, steps), configs[0]
    return RnnTiling(
        mode=mode,
        ep=first.ep,
        vp=first.vp,
        layers=configs,
        tail=tail,
        cycles_per_step=per_step,
        row_wise_per_step=workload.directions * sum(step.row_wise for step in steps),
        threads=threads,
        threads_needed=needed,
        engines=min(column.engines, workload.batch * workload.directions),
        cycles=cycles,
        utilisation=utilisation,
        seed_gap=gap,
        reasons=(
            Reason("ep", first.ep, _why_ep(workload, column, first)),
            Reason("vp", first.vp, _why_vp(workload, column, first)),
            Reason("tail", tail, _why_tail(column, tail, configs)),
            Reason("cycles_per_step", per_step, _why_step(steps)),
            Reason(
                "row_wise_per_step",
                workload.directions * sum(step.row_wise for step in steps),
                "for comparison; the latency is not overlapped",
            ),
            Reason(
                "threads",
                threads,
                f"{quantity(workload.batch * workload.directions, 'sequence')} on {quantity(column.threads, 'thread')}",
            ),
            Reason("threads_needed", needed, _why_threads(steps)),
            Reason("cycles", cycles, f"{quantity(workload.steps, 'step')} and the final drain"),
            Reason("utilisation", utilisation, f"of {column.multipliers} multipliers, for a single sequence"),
            Reason("seed_gap", gap, "ratio of a step's cycles; mode seed stops at the first slower EP"),
        ),
    )


def rnn_cycles(workload: RnnWorkload, hardware: Hardware, *, ep: int, vp: int) -> RnnCycles:
    """Return the cycles of `workload` on `hardware.column` with `ep` columns and `vp` rows at once in every layer
    (column-wise matrix-vector multiplication, design page 04); rows beyond those of the combined weights are idle.

    Raises HardwareError if the machine has no column engine or does not support the type or the pair, and
    UnsupportedOperator if `workload` is not an RnnWorkload.
    """
    if not isinstance(workload, RnnWorkload):
        raise UnsupportedOperator(f"rnn_cycles: a {type(workload).__name__}; expected an RnnWorkload")
    column = _column(workload, hardware)
    check_pair(column, hardware.name, ep, vp)
    steps = [step_cycles(workload, column, size, ep, vp) for size in workload.input_sizes]
    found = RnnCycles(_whole(workload, column, steps))
    found.cycles_per_step = workload.directions * sum(step.column_wise for step in steps)
    found.row_wise_per_step = workload.directions * sum(step.row_wise for step in steps)
    found.product = workload.directions * sum(step.product for step in steps)
    found.latency = max(step.drain for step in steps)
    return found


def _column(workload: RnnWorkload, hardware: Hardware) -> Column:
    if hardware.column is None:
        raise HardwareError(
            f"{hardware.name} has no column engine for recurrent layers; expected a machine with a [column] table, or "
            "a CPU"
        )
    refuse_types(hardware, hardware.column, workload)
    return hardware.column


def _largest(workload: RnnWorkload, column: Column, ep: int) -> int:
    return min(most_rows(workload), column.multipliers // ep)


def _best(workload: RnnWorkload, column: Column, size: int) -> int:
    return min(column.column_counts, key=lambda ep: _rank(workload, column, size, ep))


def _greedy(workload: RnnWorkload, column: Column, size: int) -> int:
    """Return the best EP before the first one that takes more cycles than its predecessor."""
    counts = column.column_counts
    found, before = counts[0], _rank(workload, column, size, counts[0])
    best = before
    for ep in counts[1:]:
        rank = _rank(workload, column, size, ep)
        if rank[0] > before[0]:
            break
        if rank < best:
            found, best = ep, rank
        before = rank
    return found


def _rank(workload: RnnWorkload, column: Column, size: int, ep: int) -> tuple[int, int]:
    step = step_cycles(workload, column, size, ep, _largest(workload, column, ep))
    return step.column_wise, step.drain


def _ratio(workload: RnnWorkload, column: Column, greedy: dict[int, int], best: dict[int, int]) -> float:
    def cycles(chosen: dict[int, int]) -> int:
        return sum(_rank(workload, column, size, chosen[size])[0] for size in workload.input_sizes)

    return cycles(greedy) / cycles(best)


def _config(workload: RnnWorkload, column: Column, size: int, ep: int) -> LayerConfig:
    vp = _largest(workload, column, ep)
    step = step_cycles(workload, column, size, ep, vp)
    return LayerConfig(
        input_size=size,
        ep=ep,
        vp=vp,
        cx=step.cx,
        ch=step.ch,
        latency=step.drain,
        cycles_per_step=step.column_wise,
    )


def _threads(workload: RnnWorkload, column: Column) -> int:
    """Return the sequences of a layer that share an engine: elements of the batch and both directions."""
    return min(column.threads, ceil_div(workload.batch * workload.directions, column.engines))


def _whole(workload: RnnWorkload, column: Column, steps: list[StepCycles]) -> int:
    """Return the cycles of all layers in sequence; their sequences use the threads of the engines in turn."""
    threads = _threads(workload, column)
    groups, rest = divmod(ceil_div(workload.batch * workload.directions, column.engines), threads)
    total = 0
    for step in steps:
        total += groups * step.sequences(workload.steps, threads)
        total += step.sequences(workload.steps, rest) if rest else 0
    return total


def _why_ep(workload: RnnWorkload, column: Column, config: LayerConfig) -> str:
    others = {ep: _rank(workload, column, config.input_size, ep)[0] for ep in column.column_counts}
    near = [f"{ep}: {cycles}" for ep, cycles in others.items() if ep in (config.ep // 2, config.ep * 2)]
    own = f"{config.cycles_per_step} cycles per step"
    return f"{own}; with EP {', '.join(near)}" if near else own


def _why_vp(workload: RnnWorkload, column: Column, config: LayerConfig) -> str:
    rows = most_rows(workload)
    return f"all {rows} rows" if config.vp == rows else f"{column.multipliers} multipliers for {config.ep} columns"


def _why_tail(column: Column, tail: int, configs: tuple[LayerConfig, ...]) -> str:
    if column.tree_inputs is not None:
        supported = ", ".join(map(str, column.column_counts))
        return f"of {column.tree_tail}: a tree of {column.tree_inputs} that supports EP of {supported}"
    if tail == 1:
        return "one EP: the tree needs no tail"
    return f"one tree for EP of {', '.join(map(str, sorted({config.ep for config in configs})))}"


def _why_threads(steps: list[StepCycles]) -> str:
    if any(sum(step.tails) > step.product for step in steps):
        return "more do not help, since the tail takes longer than the multiplications"
    return "cycles of a step over those of its multiplications: more sequences fill the stalls"


def _why_step(steps: list[StepCycles]) -> str:
    one = steps[0]
    drain = f" and {one.drains - 1} more drain" if one.drains > 1 else ""
    first = f"{one.ch} for the hidden state + the larger of {one.cx} for the input and {one.drain} latency{drain}"
    return first if len(steps) == 1 else f"{first} in the first layer"
