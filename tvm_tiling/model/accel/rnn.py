"""Recurrent layers compiled for a column engine: the program of a step, repeated by one thread per sequence."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from ...accel.program.program import Program
from ...accel.recurrent.layer import FixedPoint
from ...accel.recurrent.sequences import Given, sequence_program, step_program
from ...accel.recurrent.task_report import TaskReport
from ...accel.recurrent.tasks import Task, simulate_tasks
from ...decide.rnn.column import RnnTiling, decide_rnn
from ...hardware.description import Hardware
from ...workload import RnnWorkload
from .simulated import SimulatedExecutable


class RecurrentExecutable:
    """Recurrent layers on a simulated column engine, with the configuration `tiling`. `program` computes one time step
    of one sequence, the task for simulate(); `whole` computes all steps of the batch for their results."""

    def __init__(self, workload: RnnWorkload, hardware: Hardware, numbers: FixedPoint, given: Given) -> None:
        self.workload, self.hardware, self.numbers, self.given = workload, hardware, numbers, given
        self.tiling: RnnTiling = decide_rnn(workload, hardware)
        self.whole = SimulatedExecutable(sequence_program(workload, self.tiling, hardware, numbers, given))

    @functools.cached_property
    def program(self) -> Program:
        """One time step of one sequence. Raises UnsupportedOperator for several bidirectional layers, which have no
        such program."""
        return self._step(self.workload, self.tiling)

    def _step(self, workload: RnnWorkload, tiling: RnnTiling) -> Program:
        biased = self.given.biased or self.given.biases is not None
        return step_program(workload, tiling, self.hardware, self.numbers, biased=biased)

    def run(self, *arrays: Any, **named: Any) -> Any:
        """h of all steps (steps x batch x directions * hidden, int16) from x (steps x batch x inputs, int16) and each
        layer's combined weights "w0", "w1", ... (columns x rows, int16), for the reverse direction "w0_reverse", ...;
        further inputs as described in :class:`Given`. Raises WorkloadError for inputs that do not match."""
        return self.whole.run(*arrays, **named)

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, TaskReport]:
        """The result of :meth:`run`, and the time of the batch with one task per sequence."""
        return self.run(*arrays, **named), self.report()

    def report(self) -> TaskReport:
        """The time of the batch with one task per sequence and direction; weights are on the chip. Bidirectional layers
        run one after the other."""
        lengths = self.given.lengths or (self.workload.steps,) * self.workload.batch
        if not self.workload.bidirectional:
            return simulate_tasks([Task(self.program, length) for length in lengths if length], self.hardware)
        tasks: list[Task] = []
        arrival = 0
        for number, config in enumerate(self.tiling.layers):
            own = replace(self.workload, layers=1, input_size=config.input_size)
            step = self._step(own, replace(self.tiling, layers=(config,)))
            tasks += [
                Task(step, length, arrival, f"layer {number + 1} sequence {row + 1} {way}")
                for row, length in enumerate(lengths)
                for way in ("forward", "reverse")
                if length
            ]
            arrival = simulate_tasks(tasks, self.hardware).cycles
        return simulate_tasks(tasks, self.hardware)


def compile_recurrent(
    workload: RnnWorkload, hardware: Hardware, numbers: FixedPoint | None = None, given: Given | None = None
) -> RecurrentExecutable:
    """The layers for `hardware`, computed in `numbers`; by default, 12 of 16 bits are fraction bits. `given`: biases,
    states, lengths. Raises HardwareError if the machine has no column engine or not enough memory, UnsupportedOperator
    for unsupported types."""
    return RecurrentExecutable(workload, hardware, numbers or FixedPoint(), given or Given())
