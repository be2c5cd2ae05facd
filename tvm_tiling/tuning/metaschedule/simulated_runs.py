"""MetaSchedule on accelerators: its builder records a candidate's program, its runner simulates it.

    ms.tune_tir(mod, tvm.target.Target("vsim/vta"), ..., space=tt.space_generator("vsim/vta"),
                cost_model=tt.TilingCostModel("vsim/vta"), builder=tt.simulator_builder(), runner=tt.simulator_runner())

What MetaSchedule reports as seconds are then cycles.
"""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, PyBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerFuture, RunnerInput, RunnerResult

from ...accel.program.program import Program
from ...accel.record.function import record
from ...accel.timing.simulate import simulate
from ...errors import TilingError
from ...schedule import hardware_of
from ...temporary import TemporaryFolder
from .lower_configs import lower_configs


def simulator_builder() -> Any:
    """Return a MetaSchedule builder that writes programs for the accelerator named by the tuner's target."""
    return _SimulatorBuilder()


def simulator_runner() -> Any:
    """Return a MetaSchedule runner that simulates the output of :func:`simulator_builder`; its seconds are cycles."""
    return _SimulatorRunner()


@functools.lru_cache(maxsize=1)
def _folder(process: int) -> TemporaryFolder:
    """Return the folder that holds the programs of this `process` until it ends: they outlive the builder that wrote
    them."""
    folder = TemporaryFolder()
    atexit.register(folder.close)
    return folder


@derived_object
class _SimulatorBuilder(PyBuilder):
    """Writes each candidate's program to its own folder, because MetaSchedule deletes the folder that a file is in."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """Return a path or a reason for each input."""
        return [self._built(given) for given in build_inputs]

    def _built(self, given: BuilderInput) -> BuilderResult:
        try:
            hardware = hardware_of(given.target)
            program = record(lower_configs(given.mod, hardware), hardware)
        except TilingError as error:
            return BuilderResult(None, str(error))
        path = _folder(os.getpid()).piece() / "candidate.vsim"
        program.save(path)
        return BuilderResult(str(path), None)


@derived_object
class _SimulatorRunner(PyRunner):
    """Times programs sequentially in this process."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Return the cycles of each program, available immediately."""
        return [self._future(str(given.artifact_path)) for given in runner_inputs]

    @staticmethod
    def _future(path: str) -> RunnerFuture:
        try:
            result = RunnerResult([float(simulate(Program.load(path), check=False).cycles)], None)
        except TilingError as error:
            result = RunnerResult(None, str(error))
        return RunnerFuture(lambda: True, lambda: result)
