"""Measurement of configurations on the simulated accelerator: scheduled, recorded as a program and timed, without
execution."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from ...errors import TilingError
from .measurer import Job, Measured


class SimulatorMeasurer:
    """Measures cycles and energy of jobs on accelerators, sequentially in this process. A simulation has no spread."""

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """Yield one Measured for each job, in order."""
        for job in jobs:
            start = time.monotonic()
            try:
                cycles, energy = self._simulated(job)
            except TilingError as error:
                yield Measured(job=job, reason=str(error), seconds_spent=time.monotonic() - start)
            else:
                spent = time.monotonic() - start
                yield Measured(job=job, cost=float(cycles), energy_pj=energy, seconds_spent=spent)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""

    @staticmethod
    def _simulated(job: Job) -> tuple[int, float]:
        from ...accel.timing.simulate import simulate
        from ...accel.workload_program import workload_program  # imports TVM

        program = workload_program(job.workload, job.hardware, config=job.config, epilogue=job.epilogue)
        report = simulate(program, check=False)  # the builder placed its tokens
        return report.cycles, report.energy_pj
