"""Measurement of configurations on this CPU: built by one process per core, then timed by one process on all cores.

Nothing is built during timing. On two cores, a concurrent build, even at the lowest priority, made the confidence
interval of a program's ratio to itself more than ten times as wide; docs/distribution.md has the figures.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...decide.gemm.open_rows import at_rows
from ...hardware.description import Hardware
from ...model.workers import Result
from ...peak import Peak
from ...temporary import TemporaryFolder
from ...workload import GemmWorkload
from ..least_cost import least_seconds
from .builders import BUILD_SECONDS, Builders
from .child import Child, ChildFailed, ChildLost
from .incumbents import Incumbents, TrialFailed, paired_of
from .measurer import Build, Job, Measured, PeakAsked, Request, SideBySide, Subject
from .paired_benchmark import Alone, PairedResult
from .template import BUILDING, TIMING, Template

RUN_SECONDS = 30.0
AT_ONCE = 4  # builds ahead of the timing, per building process


@dataclass(frozen=True)
class _Made:
    """The build of a job, or the reason for its failure, and the folder dedicated to it."""

    build: Result[Build | str]
    folder: Path


class LocalBench:
    """Builds and times configurations in child processes; each build has its own folder, removed on release."""

    def __init__(
        self,
        *,
        builders: int | None = None,
        build_seconds: float = BUILD_SECONDS,
        run_seconds: float = RUN_SECONDS,
        building: str = BUILDING,
        timing: str = TIMING,
        template: Template | None = None,
    ) -> None:
        """`builders` is the number of building processes (default: one per core). A build or paired benchmark that
        takes more than `build_seconds` or `run_seconds` fails. `building` and `timing` name the functions of the
        children, which are forks of `template` if given."""
        self._run_seconds = run_seconds
        self._folder = TemporaryFolder()
        self._template = template or Template.of(timing, building)
        self._builders = Builders(self._template, count=builders, seconds=build_seconds, entry=building)
        self._timer = Child(timing, "running", self._template)
        self._made: dict[Job, _Made] = {}
        self._peaks: dict[Hardware, Peak] = {}
        self._lock = threading.Lock()

    @property
    def builders(self) -> int:
        """Number of building processes."""
        return self._builders.count

    def start(self) -> None:
        """Start the template process, so that it imports in the background."""
        self._template.start()

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Build `jobs` in parallel; a failed build is reported when its job is measured."""
        for made in [self._obtain(job) for job in jobs]:
            made.build.get()

    def begin(self, job: Job) -> None:
        """Build one job while preparing the timing process for it; failures are reported when it is measured."""
        made = self._obtain(job)
        with contextlib.suppress(ChildFailed, ChildLost, TrialFailed):
            subject = Subject(workload=job.workload, epilogue=job.epilogue, cores=_cores(job.hardware))
            self._timer.ask(subject, self._run_seconds)
        made.build.get()

    def hold(
        self, candidate: Job, incumbent: Job | None, thorough: bool, rows: int | None = None
    ) -> Alone | PairedResult:
        """Time a job together with the incumbent; both are built first if necessary. Alone and `thorough`, the result
        includes the job's lower bound from peaks measured here. Kernels with a dynamic number of rows are timed with
        `rows`. TrialFailed says why that was not possible."""
        workload = candidate.workload
        if rows is not None:
            assert isinstance(workload, GemmWorkload)
            workload = at_rows(workload, rows)
        request = Request(
            workload=workload,
            epilogue=candidate.epilogue,
            candidate=self._build(candidate),
            incumbent=None if incumbent is None else self._build(incumbent),
            cores=_cores(candidate.hardware),
            thorough=thorough,
        )
        found: Alone | PairedResult = self._ask(request)
        if thorough and isinstance(found, Alone):
            return replace(found, least=self._least(candidate, found.seconds))
        return found

    def _ask(self, message: Request | PeakAsked) -> Any:
        try:
            return self._timer.ask(message, self._run_seconds)
        except (ChildFailed, ChildLost) as error:
            raise TrialFailed(str(error)) from None

    def _least(self, job: Job, seconds: float) -> float:
        """Return a lower bound on the time of a job on this machine. Its peak is measured once, and again if `seconds`
        are lower, since the clock may have risen."""
        cpu = job.hardware.cpu
        assert cpu is not None
        known = self._peaks.get(job.hardware)
        if known is not None and seconds >= least_seconds(job.workload, job.config, cpu, known):
            return least_seconds(job.workload, job.config, cpu, known)
        found: Peak = self._ask(PeakAsked(hardware=job.hardware))
        self._peaks[job.hardware] = found if known is None else known.or_better(found)
        return least_seconds(job.workload, job.config, cpu, self._peaks[job.hardware])

    def release(self, job: Job) -> None:
        """Remove the build of a job."""
        with self._lock:
            found = self._made.pop(job, None)
        if found is not None:
            shutil.rmtree(found.folder, ignore_errors=True)

    def close(self) -> None:
        """End all processes and remove all builds."""
        self._timer.close()
        self._builders.close()
        self._template.close()
        self._folder.close()

    def _build(self, job: Job) -> Build:
        found = self._obtain(job).build.get()
        if isinstance(found, str):
            raise TrialFailed(found)
        return found

    def _obtain(self, job: Job) -> _Made:
        """Return the build of a job, starting it if necessary."""
        with self._lock:
            if job not in self._made:
                folder = self._folder.piece()
                self._made[job] = _Made(self._builders.submit(job, folder), folder)
            return self._made[job]


def _cores(hardware: Hardware) -> int:
    if hardware.cpu is None:
        raise TrialFailed(f"{hardware.name} is not a CPU; its configurations are simulated")
    return hardware.cpu.cores


class LocalMeasurer:
    """The Measurer of this CPU. Costs are seconds: those of the incumbent divided by the ratio of paired runs
    (incumbents.py)."""

    def __init__(self, bench: LocalBench | None = None) -> None:
        self.bench = bench or LocalBench()
        self.bench.start()
        self._incumbents = Incumbents()

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """Yield one Measured for each of `jobs`, in order."""
        first, most = 0, self.bench.builders * AT_ONCE
        step = most
        while first < len(jobs):
            # First results early, then enough builds ahead of the measurements to keep all cores busy.
            if self._incumbents.of(jobs[first]) is None:
                step = 1
                self.bench.begin(jobs[first])
            else:
                self.bench.prepare(jobs[first : first + step])
            batch = jobs[first : first + step]
            first, step = first + step, min(2 * step, most)
            for job in batch:
                before = self._incumbents.of(job)
                yield self._incumbents.measured(job, self.bench.hold)
                for done in (job, before):
                    if done is not None and done != self._incumbents.of(job):
                        self.bench.release(done)

    def alone(self, job: Job) -> float:
        """Return the seconds of a job by itself. TrialFailed if it cannot be run or its time is impossible."""
        return self._incumbents.alone(job, self.bench.hold).seconds

    def compare(self, first: Job, second: Job) -> SideBySide | str:
        """Time both alternately in one session. Return the result, or the reason for a failure."""
        try:
            return self._incumbents.side_by_side(first, second, self.bench.hold)
        finally:
            for job in (first, second):
                if job != self._incumbents.of(job):
                    self.bench.release(job)

    def over_rows(
        self, candidates: Sequence[Job], incumbent: Job, sizes: Sequence[int], thorough: bool = False
    ) -> Iterator[tuple[Job, tuple[PairedResult, ...] | str]]:
        """Yield the comparison of each candidate with the incumbent for each number of rows, or the reason for a
        failure."""
        self.bench.prepare([incumbent, *candidates])
        for job in candidates:
            try:
                yield job, tuple(paired_of(self.bench.hold(job, incumbent, thorough, rows)) for rows in sizes)
            except TrialFailed as error:
                yield job, str(error)
            finally:
                if job != incumbent:
                    self.bench.release(job)

    def close(self) -> None:
        """End all processes and remove all builds."""
        self.bench.close()

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
