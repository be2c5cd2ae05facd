"""Recurrent layers compiled for page 04's machine: a step's program, repeated by a thread for each sequence."""

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
    """Recurrent layers on a simulated column engine, cut as `tiling` says. `program` is that of one time step of one
    sequence, which simulate() takes as a task; `whole` runs all steps of the batch for their results."""

    def __init__(self, workload: RnnWorkload, hardware: Hardware, numbers: FixedPoint, given: Given) -> None:
        self.workload, self.hardware, self.numbers, self.given = workload, hardware, numbers, given
        self.tiling: RnnTiling = decide_rnn(workload, hardware)
        self.whole = SimulatedExecutable(sequence_program(workload, self.tiling, hardware, numbers, given))

    @functools.cached_property
    def program(self) -> Program:
        """One time step of one sequence. UnsupportedOperator for several layers in both directions, which have none."""
        return self._step(self.workload, self.tiling)

    def _step(self, workload: RnnWorkload, tiling: RnnTiling) -> Program:
        biased = self.given.biased or self.given.biases is not None
        return step_program(workload, tiling, self.hardware, self.numbers, biased=biased)

    def run(self, *arrays: Any, **named: Any) -> Any:
        """h of all steps (steps x batch x directions * hidden, int16) from x (steps x batch x inputs, int16) and each
        layer's combined weights "w0", "w1", ... (columns x rows, int16), of the direction from the end "w0_reverse",
        ...; what is given besides as :class:`Given` says. WorkloadError for inputs that do not fit."""
        return self.whole.run(*arrays, **named)

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, TaskReport]:
        """The result as :meth:`run`, and the time of the batch, each of its sequences a task."""
        return self.run(*arrays, **named), self.report()

    def report(self) -> TaskReport:
        """The time of the batch, each of its sequences a task, and each direction; weights are on the chip. Layers in
        both directions follow each other."""
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
    """The layers for `hardware`, computed in `numbers`; left out, 12 of 16 bits are behind the point. `given`: biases,
    states, lengths. HardwareError where the machine has no column engine or too little memory, UnsupportedOperator for
    types that are not served."""
    return RecurrentExecutable(workload, hardware, numbers or FixedPoint(), given or Given())
