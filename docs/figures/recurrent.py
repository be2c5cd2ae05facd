"""Recurrent layers: cycles per time step against EP, and utilisation against threads."""

from __future__ import annotations

from svg import Drawing, plot

import tvm_tiling as tt
from tvm_tiling.decide.rnn.step import step_cycles

MACHINE = tt.Hardware.rnn(multipliers=16384)  # whose tail takes no cycles in addition to its latency


def lstm(units: int) -> tt.RnnWorkload:
    """An LSTM with as many inputs as units."""
    return tt.RnnWorkload(cell="lstm", steps=100, input_size=units, hidden_size=units)


def columns_at_once() -> Drawing:
    """Cycles of a time step for each EP."""
    assert MACHINE.column is not None
    picture = plot("Cycles of a time step against EP", (1, 1024), (32, 4096), log="xy")
    counts = [count for count in MACHINE.column.column_counts if count <= 1024]
    picture.ticks([(count, str(count)) for count in counts], [(2**power, str(2**power)) for power in range(5, 13)])
    picture.names("EP (columns per step); VP = 16384 / EP rows", "cycles per time step")
    for shade, units in enumerate((256, 512, 1024)):
        workload = lstm(units)
        steps = {ep: step_cycles(workload, MACHINE.column, units, ep, 16384 // ep) for ep in counts}
        picture.line([(ep, step.column_wise) for ep, step in steps.items()], f"l{shade}")
        picture.line([(ep, step.row_wise) for ep, step in steps.items()], f"l{shade} dashed")
        decision = tt.decide(workload, MACHINE)
        assert isinstance(decision, tt.RnnTiling)
        picture.dots([(decision.ep, decision.cycles_per_step)], f"f{shade}", 6)
    named = [(f"f{shade}", f"{units} units and inputs") for shade, units in enumerate((256, 512, 1024))]
    picture.drawing.legend(300, 44, named)
    picture.drawing.text(300, 102, "dot: decision; dashed: row-wise order", kind="small")
    return picture.drawing


def threads() -> Drawing:
    """Utilisation of the engine by concurrent sequences, for a small layer with a long drain."""
    assert MACHINE.column is not None
    workload = lstm(128)
    decision = tt.decide(workload, MACHINE)
    assert isinstance(decision, tt.RnnTiling)
    step = step_cycles(workload, MACHINE.column, workload.input_size, decision.ep, decision.vp)
    picture = plot("Utilisation against threads of the column engine", (1, 8), (0, 1.05))
    picture.ticks([(count, str(count)) for count in range(1, 9)], [(share / 4, f"{25 * share}%") for share in range(5)])
    picture.names("sequences that share the engine; LSTM of 128 units, 100 steps", "utilisation")

    def used(count: int, cycles: int) -> float:
        return count * workload.steps * step.product / cycles

    column_wise = [(count, used(count, step.sequences(workload.steps, count))) for count in range(1, 9)]
    row_wise = []
    for count in range(1, 9):
        turn = max(count * step.product, step.row_wise)
        row_wise.append((count, used(count, (workload.steps - 1) * turn + count * step.product + step.latency)))
    picture.line(row_wise, "l1 dashed")
    picture.line(column_wise, "l0")
    picture.dots(column_wise, "f0")
    words = f"one step: {step.product} cycles of multiplication, {step.latency} of drain"
    picture.drawing.legend(430, 200, [("f0", "column-wise order"), ("f1", "row-wise order")])
    picture.drawing.text(430, 240, words, kind="small")
    return picture.drawing


PICTURES = {"columns-at-once": columns_at_once, "threads": threads}
