"""Recurrent layers on page 04's engine: how many columns (EP) and rows (VP) at once in each layer, and the threads.

EP are few, so mode "best" counts them all. Mode "seed" is the source's walk: EP = 1, 2, 4, ... with the largest VP each
allows, until cycles rise (paragraphs 98 and 99: they fall up to the best points and rise behind them), which for many
sizes that are no powers of two is too early. An EP that takes as long as the one before does not end it. Both take the
pair of fewest cycles a step, then of the smaller latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from ...errors import HardwareError, UnsupportedOperator, nearest
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
    """Cycles of a whole recurrent workload, as a number. `cycles_per_step` of one step of one sequence through all
    layers and directions, `row_wise_per_step` the same in row-wise order; `product` cycles of it in which the engine
    multiplies; `latency` of one drain."""

    cycles_per_step: int
    row_wise_per_step: int
    product: int
    latency: int


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """`ep` columns and `vp` rows at once for a layer that takes `input_size` numbers beside its state, and what a step
    of one sequence takes: `cx` and `ch` cycles of product, `latency` from the last column to the result, the tail
    included, `cycles_per_step` in all."""

    input_size: int
    ep: int
    vp: int
    cx: int
    ch: int
    latency: int
    cycles_per_step: int


@dataclass(frozen=True, kw_only=True)
class RnnTiling(Decision):
    """How recurrent layers run on a column engine.

    `ep` and `vp` are those of the first layer, `layers` has all. `cycles_per_step`, of one sequence through all layers
    and directions, in column-wise order, `row_wise_per_step` in row-wise order; `utilisation` of the multipliers over
    the former. `threads` sequences share an engine of `engines`, of `threads_needed` that would hide every stall;
    `cycles` of the whole workload then. `seed_gap`: cycles of a step by mode "seed" / by mode "best". `tail`: CAT-N
    with which one tree serves all layers.
    """

    op: ClassVar[str] = "rnn"

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
                    f"{config.cycles_per_step} cycles a step: Cx {config.cx}, Ch {config.ch}, latency {config.latency}"
                )
                yield Row("layers", f"layer {number}", f"{config.ep} x {config.vp}", why)


def decide_rnn(workload: RnnWorkload, hardware: Hardware, *, mode: Literal["best", "seed"] = "best") -> RnnTiling:
    """The configuration of recurrent layers on `hardware.column`, page 04. HardwareError where the unit is absent or
    does not take the type."""
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
            Reason("row_wise_per_step", workload.directions * sum(step.row_wise for step in steps), "for comparison"),
            Reason("threads", threads, f"{workload.batch * workload.directions} sequences on {column.threads} threads"),
            Reason("threads_needed", needed, _why_threads(steps)),
            Reason("cycles", cycles, f"{workload.steps} steps and the drain at their end"),
            Reason("utilisation", utilisation, f"of {column.multipliers} multipliers, one sequence alone"),
            Reason("seed_gap", gap, "a step of mode seed, which stops at the first EP that is slower, by one of best"),
        ),
    )


def rnn_cycles(workload: RnnWorkload, hardware: Hardware, *, ep: int, vp: int) -> RnnCycles:
    """Cycles of `workload` with `ep` columns and `vp` rows at once in every layer; rows past those of the combined
    weights are idle.

    HardwareError where the machine has no column engine, no such type, or no such pair.
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
    """The best of the EP before the first one that takes more cycles than the one before it."""
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
    """Sequences of a layer that share an engine: elements of the batch, and the two directions."""
    return min(column.threads, ceil_div(workload.batch * workload.directions, column.engines))


def _whole(workload: RnnWorkload, column: Column, steps: list[StepCycles]) -> int:
    """Cycles of all layers, one after the other, whose sequences take the threads of the engines in turn."""
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
    own = f"{config.cycles_per_step} cycles a step of the layer"
    return f"{own}; by others {', '.join(near)}" if near else own


def _why_vp(workload: RnnWorkload, column: Column, config: LayerConfig) -> str:
    rows = most_rows(workload)
    return f"all {rows} rows" if config.vp == rows else f"{column.multipliers} multipliers beside {config.ep} columns"


def _why_tail(column: Column, tail: int, configs: tuple[LayerConfig, ...]) -> str:
    if column.tree_inputs is not None:
        supported = ", ".join(map(str, column.column_counts))
        return f"of {column.tree_tail}: a tree of {column.tree_inputs} that serves EP of {supported}"
    if tail == 1:
        return "one EP: the tree needs no tail"
    return f"one tree for EP of {', '.join(map(str, sorted({config.ep for config in configs})))}"


def _why_threads(steps: list[StepCycles]) -> str:
    if any(sum(step.tails) > step.product for step in steps):
        return "beyond which the tail, which takes longer than the products, limits a layer"
    return "to hide every stall: (Ch + max(Cx, lat)) / (Cx + Ch)"


def _why_step(steps: list[StepCycles]) -> str:
    one = steps[0]
    drain = f" and {one.drains - 1} drain more" if one.drains > 1 else ""
    first = f"Ch {one.ch} + max(Cx {one.cx}, latency {one.drain}){drain}"
    return first if len(steps) == 1 else f"{first} in the first layer"
