"""A single operator compiled for a simulated accelerator: its program, run for results and for time."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import s_tir, te, tirx
from tvm.te.tensor import Operation

from ..accel.functional import run
from ..accel.program import Program
from ..accel.record import record
from ..accel.report import SimReport
from ..accel.simulate import Simulation
from ..errors import WorkloadError, nearest
from ..hardware.description import Hardware
from ..schedule import tiling_schedule


def is_operator(model: Any) -> bool:
    """Whether `model` is an operator: a te.Tensor or its operation, a PrimFunc, a schedule or a module of PrimFuncs."""
    if isinstance(model, tvm.IRModule):
        functions = list(model.functions.values())
        return bool(functions) and all(isinstance(function, tirx.PrimFunc) for function in functions)
    return isinstance(model, (te.Tensor, Operation, tirx.PrimFunc, s_tir.Schedule))


def compile_operator(op: Any, hardware: Hardware) -> SimulatedExecutable:
    """The program of an operator for `hardware`. A schedule, or what tiling_schedule made and somebody changed, is
    recorded as it stands; anything else is scheduled first. Errors as those of tiling_schedule and record."""
    module = op.mod if isinstance(op, s_tir.Schedule) else op
    if not _is_scheduled(module):
        module = tiling_schedule(module, target=hardware).mod
    return SimulatedExecutable(record(module, hardware))


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
        it has several. WorkloadError for inputs that are missing, unknown or of another shape."""
        results = tuple(run(self.program, self._inputs(arrays, named)).values())
        return results[0] if len(results) == 1 else results

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, SimReport]:
        """The result as :meth:`run`, and what the run takes on the machine that the program was made for."""
        result = self.run(*arrays, **named)
        if self._simulation is None:
            self._simulation = Simulation(self.program)
        return result, self._simulation.on()

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
            value = np.asarray(given[tensor.name])
            if value.shape != tensor.shape:
                raise WorkloadError(f"input {tensor.name!r} has the shape {value.shape}; accepted: {tensor.shape}")
            inputs[tensor.name] = value
        return inputs
