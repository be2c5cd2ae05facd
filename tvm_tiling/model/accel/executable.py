"""A model whose supported part runs on a simulated accelerator: results, time, the program, files."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...accel.instructions.table import multiplies
from ...accel.program.join import Part, join
from ...accel.program.program import Program
from ...accel.report.report import SimReport
from ...accel.timing.simulate import Simulation
from ...errors import ModelFormatError, UnsupportedOperator
from ...figures import quantity
from ...temporary import temporary_folder
from .. import saved
from ..executable import Executable
from ..passes.constants import Constants
from ..variants import AnyVariant
from .report import AcceleratorReport, accelerator_report
from .segments import Segments

MOST_REASONS = 3  # in one error


class AcceleratedExecutable(Executable):
    """A compiled model, partly on a simulated accelerator and partly on the CPU.

    `programs` are the accelerator's programs in execution order; the CPU works between them. `left` maps each operator
    on the CPU to the reason. `steps`: for each recurrent layer on the accelerator and each direction, the program of
    one time step. `nodes`: the model nodes computed by each region of the programs, by region name.
    """

    def __init__(
        self,
        variant: AnyVariant,
        constants: Constants,
        programs: Sequence[Program],
        left: dict[str, str],
        *,
        steps: Sequence[Program] = (),
        nodes: Mapping[str, Sequence[str]] | None = None,
        fingerprint: str,
        cores: int,
        compile_seconds: float,
    ) -> None:
        super().__init__([variant], constants, fingerprint=fingerprint, cores=cores, compile_seconds=compile_seconds)
        self.programs, self.left, self.steps = tuple(programs), dict(left), tuple(steps)
        self.nodes = {name: tuple(found) for name, found in (nodes or {}).items()}
        self._segments = Segments(self.programs)

    def run(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        """Like :meth:`Executable.run`; the programs are executed with NumPy."""
        with self._segments.running():
            return super().run(*arrays, out=out, threads=threads, **named)

    def benchmark(self, *arrays: Any, seconds: float = 2.0, **named: Any) -> Any:
        """Not supported: `simulate` reports the time of a simulated machine."""
        raise UnsupportedOperator(
            "benchmark: part of the model runs on a simulated accelerator; expected simulate, which reports cycles"
        )

    def profile(self, *arrays: Any, runs: int = 1, **named: Any) -> Any:
        """Not supported: the timeline of a simulated machine is part of the report of `simulate`."""
        raise UnsupportedOperator(
            "profile: part of the model runs on a simulated accelerator; use simulate, whose report has a timeline"
        )

    @property
    def placement(self) -> str:
        """How many operators run on the accelerator and how many on the CPU, with the reasons for the latter."""
        there = sum(len(program.regions) for program in self.programs)
        reasons = f": {_some(self.left)}" if self.left else ""
        return f"{quantity(there, 'operator')} on the accelerator, {len(self.left)} on the CPU{reasons}"

    @functools.cached_property
    def program(self) -> Program:
        """All programs joined to one, to be simulated on any machine: where the CPU works in between, every queue waits
        until all are idle, and the CPU time is not counted. Raises UnsupportedOperator if there is none."""
        if not self.programs:
            raise UnsupportedOperator(f"no operator of this model runs on the accelerator: {_some(self.left)}")
        return _one_program(self.programs)

    @property
    def time_step(self) -> Program:
        """The task that tt.simulate repeats. Raises UnsupportedOperator for a model whose matrix multiplications on the
        accelerator are not those of a single recurrent layer in one direction."""
        products = sum(bool(multiplies(program.instructions).any()) for program in self.programs)
        if len(self.steps) != 1 or products != 1:
            raise UnsupportedOperator(
                f"a task with {len(self.steps)} recurrent layers and directions among {products} programs "
                "with matrix multiplications on the accelerator; expected a model of one layer in one "
                "direction, or a compiled RnnWorkload"
            )
        return self.steps[0]

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, SimReport]:
        """The result of :meth:`run`, and the simulation report of the accelerator's part on the machine for which it
        was compiled."""
        simulation = self.simulation  # raises before anything runs if there is no program
        return self.run(*arrays, **named), simulation.on()

    @functools.cached_property
    def simulation(self) -> Simulation:
        """The whole program, prepared for simulation on many machines by `simulation.on(hardware)`."""
        return Simulation(self.program)

    def report(self) -> AcceleratorReport:  # type: ignore[override]
        """Every operator with its placement: cycles, utilisation and bytes on the accelerator, the reason on the
        CPU."""
        return accelerator_report(
            self.simulation.on() if self.programs else None, self.operators, self.left, self.nodes
        )

    def _contents(self) -> dict[str, Any]:
        """The description, including the accelerator's programs."""
        return {
            **super()._contents(),
            "accelerator": {
                "programs": len(self.programs),
                "steps": len(self.steps),
                "left": self.left,
                "nodes": {name: list(found) for name, found in self.nodes.items()},
            },
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Like :meth:`Executable.save`, with the programs in the same file."""
        with temporary_folder() as folder:
            contents = {}
            for number, program in enumerate((*self.programs, *self.steps)):
                file = folder / program_name(number)
                program.save(file)
                contents[file.name] = np.fromfile(file, np.uint8)
            self._save(path, contents)


def _some(left: dict[str, str]) -> str:
    """The reasons why operators run on the CPU, limited to the first few."""
    reasons = list(dict.fromkeys(left.values())) or ["it has none"]
    more = len(reasons) - MOST_REASONS
    return "; ".join(reasons[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")


def program_name(number: int) -> str:
    """The name of a program within the file of a saved model."""
    return f"program_{number}.vsim"


def load_programs(where: str, contents: Mapping[str, np.ndarray], count: int) -> list[Program]:
    """`count` programs from the contents of a saved model. Raises ModelFormatError if they are invalid."""
    with temporary_folder() as folder:
        programs = []
        for number in range(count):
            name = program_name(number)
            if name not in contents:
                raise ModelFormatError(f"{where} does not contain {name}; {saved.ACCEPTED}")
            file = folder / name
            contents[name].tofile(file)
            programs.append(Program.load(file))
    return programs


def _one_program(programs: Sequence[Program]) -> Program:
    """The programs in sequence, with unique region names and shared tensors by name."""
    if len(programs) == 1:
        return programs[0]
    outputs = {tensor.name for program in programs for tensor in program.of_role("output")}
    return join([Part(program) for program in programs], sorted(outputs), {}, barriers=True)
