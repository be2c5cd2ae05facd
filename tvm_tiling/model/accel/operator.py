"""A single operator compiled for a simulated accelerator: its program, run for results and for time."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx
from tvm.te.tensor import Operation

from ...accel.functional.run import run
from ...accel.program.program import Program
from ...accel.record.function import record
from ...accel.report.report import SimReport
from ...accel.timing.simulate import Simulation
from ...accel.workload_program import plain_operator
from ...errors import HardwareError, WorkloadError, nearest
from ...hardware.description import Hardware
from ...lowering.accel.pieces import in_pieces
from ...schedule import CutSource, tiling_schedule
from ...workload import ConvWorkload, GemmWorkload, RnnWorkload
from ..arrays import as_array
from .report import AcceleratorReport, accelerator_report

WORKLOADS = (GemmWorkload, ConvWorkload, RnnWorkload)
MOST_CUTS = 8  # halvings of what the vector engine takes at a time


def is_operator(model: Any) -> bool:
    """Whether `model` is an operator: a te.Tensor or its operation, a PrimFunc, a schedule or a module of PrimFuncs."""
    if isinstance(model, tvm.IRModule):
        functions = list(model.functions.values())
        return bool(functions) and all(isinstance(function, tirx.PrimFunc) for function in functions)
    return isinstance(model, (te.Tensor, Operation, tirx.PrimFunc, s_tir.Schedule))


def compile_operator(op: Any, hardware: Hardware, cuts: CutSource | None = None) -> Any:
    """The program of an operator, or of a workload written plainly, for `hardware`: a SimulatedExecutable; of recurrent
    layers a RecurrentExecutable. A schedule, or what tiling_schedule made and somebody changed, is recorded as it
    stands; anything else is scheduled first, `cuts` being asked for its cut. Errors as those of tiling_schedule and
    record."""
    if isinstance(op, RnnWorkload):
        from .rnn import compile_recurrent  # whose executable is made of this module's

        return compile_recurrent(op, hardware)
    if isinstance(op, GemmWorkload | ConvWorkload):
        op = plain_operator(op)
    module = op.mod if isinstance(op, s_tir.Schedule) else op
    if _is_scheduled(module):
        return SimulatedExecutable(record(module, hardware))
    scheduled = tiling_schedule(module, target=hardware, cuts=cuts).mod
    if len(scheduled.functions) != 1:
        return SimulatedExecutable(record(scheduled, hardware))  # which refuses it
    ((variable, main),) = scheduled.functions.items()
    return SimulatedExecutable(program_of(main, variable.name_hint, hardware))


def program_of(main: tirx.PrimFunc, name: str, hardware: Hardware) -> Program:
    """The program of a scheduled function, what follows its sums in as many pieces as the machine's memories ask for.
    HardwareError where no number of pieces fits."""
    main = main.with_attr("global_symbol", name)
    cut: tirx.PrimFunc | None = main
    refused: HardwareError | None = None
    for pieces in (1, *(1 << power for power in range(1, MOST_CUTS + 1))):
        if pieces > 1:
            cut = in_pieces(main, name, pieces)
        if cut is None:
            break
        try:
            return record(cut, hardware)
        except HardwareError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _is_scheduled(op: Any) -> bool:
    """Whether blocks are given to engines already."""
    functions = op.functions.values() if isinstance(op, tvm.IRModule) else [op]
    return all(isinstance(function, tirx.PrimFunc) and '"vsim.engine"' in function.script() for function in functions)


class SimulatedExecutable:
    """An operator on a simulated accelerator; `program` needs neither TVM nor the operator."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._simulation: Simulation | None = None

    def run(self, *arrays: Any, **named: Any) -> Any:
        """The operator's result: NumPy arrays in, in the order of its parameters or by name, NumPy out; a tuple where
        it has several. WorkloadError for inputs that are missing, unknown or of another shape or type."""
        results = tuple(run(self.program, self._inputs(arrays, named)).values())
        return results[0] if len(results) == 1 else results

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, SimReport]:
        """The result as :meth:`run`, and what the run takes on the machine that the program was made for."""
        return self.run(*arrays, **named), self.simulation.on()

    @property
    def simulation(self) -> Simulation:
        """The program, ready to be timed on many machines by `simulation.on(hardware)`."""
        if self._simulation is None:
            self._simulation = Simulation(self.program)
        return self._simulation

    def report(self) -> AcceleratorReport:
        """The operator with its cycles, utilisation and bytes, as a model's report has each of its own."""
        return accelerator_report(self.simulation.on(), (), {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to one file, whole or not at all; tt.load and Program.load read it."""
        self.program.save(path)

    def _inputs(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, np.ndarray]:
        wanted = self.program.of_role("input")
        names = [tensor.name for tensor in wanted]
        if len(arrays) > len(names):
            raise WorkloadError(f"{len(arrays)} inputs given; accepted: {len(names)}, {', '.join(names)}")
        given = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name not in names:
                raise WorkloadError(f"no input is called {name!r}: {nearest(name, names)}")
            if name in given:
                raise WorkloadError(f"input {name!r} is given twice; accepted: once, by place or by name")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise WorkloadError(f"inputs {', '.join(missing)} are missing; accepted: all of {', '.join(names)}")
        inputs = {}
        for tensor in wanted:
            value = as_array(given[tensor.name], f"input {tensor.name!r}")
            if value.shape != tensor.shape:
                raise WorkloadError(f"input {tensor.name!r} has the shape {value.shape}; accepted: {tensor.shape}")
            if str(value.dtype) != tensor.dtype and tensor.dtype != "bfloat16":  # which NumPy has not
                raise WorkloadError(f"input {tensor.name!r} is {value.dtype}; accepted: {tensor.dtype}")
            inputs[tensor.name] = value
        return inputs
