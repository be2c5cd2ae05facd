"""Cuts measured on this CPU: built by as many processes as there are cores, then timed by one on all cores.

Nothing is built while something is timed. On two cores a build beside it, even one of the lowest priority, made the
interval of a program's ratio to itself more than ten times as wide; docs/distribution.md has the figures.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from ...hardware.description import Hardware
from ...lowering.threads import usable_core_count
from .child import Child, ChildFailed, ChildLost
from .contest import Alone, Contest
from .measurer import Job, Measured
from .referee import Referee, TrialFailed
from .request import Build, Request, Subject
from .session_folder import SessionFolder
from .template import BUILDING, TIMING, Template

BUILD_SECONDS = 60.0
RUN_SECONDS = 30.0
AT_ONCE = 4  # builds ahead of the timing, for each building process


@dataclass(frozen=True)
class _Made:
    """A build and the folder that holds nothing else."""

    build: Build
    folder: Path


class LocalBench:
    """Builds and times cuts in child processes; each build is in a folder of its own, removed when it is released."""

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
        """`builders`: processes that build, left out one for each core. A build or a contest that takes more than
        `build_seconds` or `run_seconds` fails. `building` and `timing` name the children's functions; children are
        forks of `template` where one is under way."""
        self.builders = builders or usable_core_count()
        self._build_seconds, self._run_seconds = build_seconds, run_seconds
        self._folder = SessionFolder()
        self._template = template or Template.of(timing, building)
        self._children = [Child(building, "it was built", self._template) for _ in range(self.builders)]
        self._free: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            self._free.put(child)
        self._timer = Child(timing, "it ran", self._template)
        self._pool = ThreadPoolExecutor(self.builders)
        self._made: dict[Job, _Made | str] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start what all processes come from, so that it imports what they need while others think."""
        self._template.start()

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Build `jobs`, several at once; one that cannot be built fails when it is measured."""
        list(self._pool.map(self._obtain, jobs))

    def begin(self, job: Job) -> None:
        """Build one job and meanwhile make the timing process ready for it; what fails does so when it is measured."""
        ready = self._pool.submit(self._make_ready, job)
        self._obtain(job)
        ready.result()

    def _make_ready(self, job: Job) -> None:
        with contextlib.suppress(ChildFailed, ChildLost, TrialFailed):
            subject = Subject(workload=job.workload, epilogue=job.epilogue, cores=_cores(job.hardware))
            self._timer.ask(subject, self._run_seconds)

    def hold(self, candidate: Job, incumbent: Job | None, thorough: bool) -> Alone | Contest:
        """Time a job beside the incumbent; both are built here if they are not. TrialFailed says why that was not
        possible."""
        request = Request(
            workload=candidate.workload,
            epilogue=candidate.epilogue,
            candidate=self._build(candidate),
            incumbent=None if incumbent is None else self._build(incumbent),
            cores=_cores(candidate.hardware),
            thorough=thorough,
        )
        try:
            found: Alone | Contest = self._timer.ask(request, self._run_seconds)
        except (ChildFailed, ChildLost) as error:
            raise TrialFailed(str(error)) from None
        return found

    def release(self, job: Job) -> None:
        """Remove what was built of a job."""
        with self._lock:
            found = self._made.pop(job, None)
        if isinstance(found, _Made):
            shutil.rmtree(found.folder, ignore_errors=True)

    def close(self) -> None:
        """End all processes and remove all builds."""
        for child in (self._timer, *self._children):
            child.close()
        self._template.close()
        self._pool.shutdown(cancel_futures=True)
        self._folder.close()

    def _build(self, job: Job) -> Build:
        found = self._obtain(job)
        if isinstance(found, str):
            raise TrialFailed(found)
        return found.build

    def _obtain(self, job: Job) -> _Made | str:
        """What a job was built to, or why it was not."""
        with self._lock:
            if job in self._made:
                return self._made[job]
            folder = self._folder.piece()
        child = self._free.get()
        found: _Made | str
        try:
            found = _Made(child.ask((job, str(folder)), self._build_seconds), folder)
        except (ChildFailed, ChildLost) as error:
            shutil.rmtree(folder, ignore_errors=True)
            found = str(error)
        finally:
            self._free.put(child)
        with self._lock:
            self._made[job] = found
        return found


def _cores(hardware: Hardware) -> int:
    if hardware.cpu is None:
        raise TrialFailed(f"{hardware.name} has no cpu; its cuts are simulated")
    return hardware.cpu.cores


class LocalMeasurer:
    """The Measurer of this CPU. Costs are seconds: the incumbent's over the ratio of paired runs (referee.py)."""

    def __init__(self, bench: LocalBench | None = None) -> None:
        self.bench = bench or LocalBench()
        self.bench.start()
        self._referee = Referee()

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """One Measured for each of `jobs`, in their order."""
        first, most = 0, self.bench.builders * AT_ONCE
        step = most
        while first < len(jobs):
            # The first results soon, then as many builds before measuring as keep all cores at work.
            if self._referee.incumbent(jobs[first]) is None:
                step = 1
                self.bench.begin(jobs[first])
            else:
                self.bench.prepare(jobs[first : first + step])
            batch = jobs[first : first + step]
            first, step = first + step, min(2 * step, most)
            for job in batch:
                before = self._referee.incumbent(job)
                yield self._referee.judge(job, self.bench.hold)
                for done in (job, before):
                    if done is not None and done != self._referee.incumbent(job):
                        self.bench.release(done)

    def close(self) -> None:
        """End all processes and remove all builds."""
        self.bench.close()

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
