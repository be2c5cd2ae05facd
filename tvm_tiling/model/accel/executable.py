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
from ...temporary import temporary_folder
from .. import saved
from ..executable import Executable
from ..passes.constants import Constants
from ..variants import AnyVariant
from .report import AcceleratorReport, accelerator_report
from .segments import Segments

MOST_REASONS = 3  # in one error


class AcceleratedExecutable(Executable):
    """A compiled model, part of it on a simulated accelerator and the rest on the CPU.

    `programs` are the pieces that run on the accelerator, in the order of the run; the CPU works between them. `left`
    says of each operator on the CPU, by name, why it is there. `steps`: of each recurrent layer on the accelerator, in
    each direction, the program of one time step. `nodes`: the names of the model's nodes that a region of the programs
    computes, by the region's name.
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

    def run(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """As :meth:`Executable.run`; the programs are executed with NumPy."""
        with self._segments.running():
            return super().run(*arrays, out=out, **named)

    def benchmark(self, *arrays: Any, seconds: float = 2.0, **named: Any) -> Any:
        """Refused: the time of a simulated machine is what `simulate` reports."""
        raise UnsupportedOperator(
            "benchmark: part of the model runs on a simulated accelerator; accepted: simulate, whose report has cycles"
        )

    def profile(self, *arrays: Any, runs: int = 1, **named: Any) -> Any:
        """Refused: the timeline of a simulated machine is what `simulate` gives."""
        raise UnsupportedOperator(
            "profile: part of the model runs on a simulated accelerator; use simulate, whose report has a timeline"
        )

    @functools.cached_property
    def program(self) -> Program:
        """All pieces as one program, to be timed on any machine: where the CPU works in between, every queue waits for
        the end of all, and the CPU's own time does not count. UnsupportedOperator where there is none."""
        if not self.programs:
            raise UnsupportedOperator(f"no operator of this model runs on the accelerator: {_some(self.left)}")
        return _one_program(self.programs)

    @property
    def time_step(self) -> Program:
        """What a task of tt.simulate repeats. UnsupportedOperator for a model whose products on the accelerator are not
        those of a single recurrent layer in one direction."""
        products = sum(bool(multiplies(program.instructions).any()) for program in self.programs)
        if len(self.steps) != 1 or products != 1:
            raise UnsupportedOperator(
                f"a task of {len(self.steps)} recurrent layers and directions among {products} pieces with products on "
                "the accelerator; accepted: a model of one layer in one direction, or an RnnWorkload that was compiled"
            )
        return self.steps[0]

    def simulate(self, *arrays: Any, **named: Any) -> tuple[Any, SimReport]:
        """The result as :meth:`run`, and what the accelerator's part takes on the machine it was compiled for."""
        simulation = self.simulation  # which says so before anything runs where there is none
        return self.run(*arrays, **named), simulation.on()

    @functools.cached_property
    def simulation(self) -> Simulation:
        """The whole program, ready to be timed on many machines by `simulation.on(hardware)`."""
        return Simulation(self.program)

    def report(self) -> AcceleratorReport:  # type: ignore[override]
        """Every operator with where it runs: on the accelerator its cycles, utilisation and bytes, on the CPU why."""
        return accelerator_report(
            self.simulation.on() if self.programs else None, self.operators, self.left, self.nodes
        )

    def _contents(self) -> dict[str, Any]:
        """With the accelerator's pieces."""
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
        """As :meth:`Executable.save`, the programs in the same file."""
        with temporary_folder() as folder:
            contents = {}
            for number, program in enumerate((*self.programs, *self.steps)):
                file = folder / program_name(number)
                program.save(file)
                contents[file.name] = np.fromfile(file, np.uint8)
            self._save(path, contents)


def _some(left: dict[str, str]) -> str:
    """Why operators are left to the CPU, the first few of all reasons."""
    reasons = list(dict.fromkeys(left.values())) or ["it has none"]
    more = len(reasons) - MOST_REASONS
    return "; ".join(reasons[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")


def program_name(number: int) -> str:
    """The name of a program within the file of a saved model."""
    return f"program_{number}.vsim"


def load_programs(where: str, contents: Mapping[str, np.ndarray], count: int) -> list[Program]:
    """`count` programs out of the contents of a saved model. ModelFormatError says what is wrong with them."""
    with temporary_folder() as folder:
        programs = []
        for number in range(count):
            name = program_name(number)
            if name not in contents:
                raise ModelFormatError(f"{where} holds no {name}; {saved.ACCEPTED}")
            file = folder / name
            contents[name].tofile(file)
            programs.append(Program.load(file))
    return programs


def _one_program(programs: Sequence[Program]) -> Program:
    """Pieces one behind the other, each region by a name of its own and each tensor where its name is one."""
    if len(programs) == 1:
        return programs[0]
    outputs = {tensor.name for program in programs for tensor in program.of_role("output")}
    return join([Part(program) for program in programs], sorted(outputs), {}, barriers=True)
