"""Recurrent layers compiled for page 04's machine: a step's program, repeated by a thread for each sequence."""

from __future__ import annotations

from typing import Any

from ...accel.program.program import Program
from ...accel.recurrent.layer import FixedPoint, sequence_program, step_program
from ...accel.recurrent.task_report import TaskReport
from ...accel.recurrent.tasks import Task, simulate_tasks
from ...decide.rnn.column import RnnTiling, decide_rnn
from ...hardware.description import Hardware
from ...workload import RnnWorkload
from .operator import SimulatedExecutable


class RecurrentExecutable:
    """Recurrent layers on a simulated column engine, cut as `tiling` says. `program` is that of one time step of one
    sequence, which simulate() takes as a task; `whole` runs all steps of the batch for their results."""

    def __init__(self, workload: RnnWorkload, hardware: Hardware, numbers: FixedPoint) -> None:
        self.workload, self.hardware = workload, hardware
        self.tiling: RnnTiling = decide_rnn(workload, hardware)
        self.program: Program = step_program(workload, self.tiling, hardware, numbers)
        self.whole = SimulatedExecutable(sequence_program(workload, self.tiling, hardware, numbers))

    def run(self, *arrays: Any, **named: Any) -> Any:
        """h of all steps (steps x batch x hidden, int16) from x (steps x batch x inputs, int16) and each layer's
        combined weights "w0", "w1", ... (columns x rows, int16). WorkloadError for inputs that do not fit."""
        return self.whole.run(*arrays, **named)

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, TaskReport]:
        """The result as :meth:`run`, and the time of the batch, each of its sequences a task."""
        return self.run(*arrays, **named), self.report()

    def report(self) -> TaskReport:
        """The time of the batch, each of its sequences a task; weights are on the chip."""
        return simulate_tasks([Task(self.program, self.workload.steps)] * self.workload.batch, self.hardware)


def compile_recurrent(
    workload: RnnWorkload, hardware: Hardware, numbers: FixedPoint | None = None
) -> RecurrentExecutable:
    """The layers for `hardware`, computed in `numbers`; left out, 12 of 16 bits are behind the point. HardwareError
    where the machine has no column engine, UnsupportedOperator for types and directions that are not served."""
    return RecurrentExecutable(workload, hardware, numbers or FixedPoint())
