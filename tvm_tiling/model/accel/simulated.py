"""The program of a single operator on a simulated accelerator, run for results and for time."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np

from ...accel.functional.run import execute
from ...accel.program.program import Program
from ...accel.report.report import SimReport
from ...accel.timing.simulate import Simulation
from ...errors import WorkloadError, nearest
from ...figures import quantity
from ...runtime.arrays import as_array
from ..outputs import Output, Outputs, like
from .report import AcceleratorReport, accelerator_report


class SimulatedExecutable:
    """An operator on a simulated accelerator; `program` needs neither TVM nor the operator."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __repr__(self) -> str:
        """Instructions, hardware, inputs and outputs, on a few lines."""
        about = f"{quantity(len(self.program.instructions), 'instruction')} on {self.program.hardware.name}"
        lines = (
            f"  {tensor.role} {tensor.name}: {' x '.join(map(str, tensor.shape)) or 'scalar'} {tensor.dtype}"
            for role in ("input", "output")
            for tensor in self.program.of_role(role)
        )
        return "\n".join([f"<{type(self).__name__}: {about}", *lines]) + ">"

    def run(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The operator's result: takes NumPy arrays in parameter order or by name, returns NumPy arrays; a tuple for
        several results. `out`: arrays or tensors to which the results are copied, and which are returned. Raises
        WorkloadError for inputs that are missing, unknown or of a wrong shape or type, and for outputs that cannot be
        written."""
        outputs = self._outputs(out) if out is not None else None
        results = tuple(execute(self.program, self._inputs(arrays, named)).values())
        if outputs is None:
            return results[0] if len(results) == 1 else results
        for array, result in zip(outputs.arrays, results, strict=True):
            array[...] = result
        return outputs.result

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Like :meth:`run`, with results of the same kind as the first input: PyTorch tensors for PyTorch tensors."""
        result = self.run(*arrays, out=out, **named)
        return result if out is not None else like((*arrays, *named.values()), result)

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, SimReport]:
        """The result of :meth:`run`, and the simulation report for the machine for which the program was compiled."""
        return self.run(*arrays, **named), self.simulation.on()

    @functools.cached_property
    def simulation(self) -> Simulation:
        """The program, prepared for simulation on many machines by `simulation.on(hardware)`."""
        return Simulation(self.program)

    def report(self) -> AcceleratorReport:
        """The operator with its cycles, utilisation and bytes, as in the report of a model."""
        return accelerator_report(self.simulation.on(), (), {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to one file atomically; tt.load and Program.load read it."""
        self.program.save(path)

    def _outputs(self, out: Any) -> Outputs:
        tensors = self.program.of_role("output")
        # the types of results
        types = ["float32" if tensor.dtype == "bfloat16" else tensor.dtype for tensor in tensors]
        kinds = zip(tensors, types, strict=True)
        return Outputs(out, [Output(tensor.name, tensor.shape, dtype) for tensor, dtype in kinds])

    def _inputs(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> dict[str, np.ndarray]:
        wanted = self.program.of_role("input")
        names = [tensor.name for tensor in wanted]
        if len(arrays) > len(names):
            raise WorkloadError(
                f"the number of inputs is {len(arrays)}; expected at most {len(names)}: {', '.join(names)}"
            )
        given = dict(zip(names, arrays, strict=False))
        for name, value in named.items():
            if name not in names:
                raise WorkloadError(f"no input is named {name!r}; {nearest(name, names)}")
            if name in given:
                raise WorkloadError(f"input {name!r} is given twice; expected once, by position or by name")
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise WorkloadError(f"inputs {', '.join(missing)} are missing; expected all of {', '.join(names)}")
        inputs = {}
        for tensor in wanted:
            value = as_array(given[tensor.name], f"input {tensor.name!r}")
            if value.shape != tensor.shape:
                raise WorkloadError(f"input {tensor.name!r} has shape {value.shape}; expected {tensor.shape}")
            if str(value.dtype) != tensor.dtype and tensor.dtype != "bfloat16":  # not supported by NumPy
                raise WorkloadError(f"input {tensor.name!r} has type {value.dtype}; expected {tensor.dtype}")
            inputs[tensor.name] = value
        return inputs
