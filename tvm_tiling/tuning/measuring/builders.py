"""Processes that build configurations in parallel, one per core by default."""

from __future__ import annotations

import shutil
from pathlib import Path
from queue import SimpleQueue

from ...model.workers import Result, Workers
from ...runtime.threads import usable_core_count
from .child import Child, ChildFailed, ChildLost
from .measurer import Build, Job
from .template import BUILDING, Template

BUILD_SECONDS = 60.0
_CLOSED = "ended while building"


class Builders:
    """Child processes that build; a crash or a hang loses only its own build."""

    def __init__(
        self, template: Template, *, count: int | None = None, seconds: float = BUILD_SECONDS, entry: str = BUILDING
    ) -> None:
        """`count` forks of `template` (default: one per core) run the function `entry`; a build that takes more than
        `seconds` fails."""
        self.count = count or usable_core_count()
        self._seconds = seconds
        self._children = [Child(entry, "building", template) for _ in range(self.count)]
        self._free: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            self._free.put(child)
        self._workers = Workers(self.count)
        self._closed = False

    def submit(self, job: Job, folder: Path) -> Result[Build | str]:
        """Start to build a job into `folder`. The result is the build, or the reason for its failure, in which case the
        folder is removed."""
        result: Result[Build | str] = Result()

        def build() -> None:
            result.compute(lambda: self._build(job, folder))

        if self._closed:
            build()  # no thread is left
        else:
            self._workers.add(0, build)
        return result

    def _build(self, job: Job, folder: Path) -> Build | str:
        child = self._free.get()
        try:
            if self._closed:
                raise ChildLost(_CLOSED)
            found: Build = child.ask((job, str(folder)), self._seconds)
            return found
        except (ChildFailed, ChildLost) as error:
            shutil.rmtree(folder, ignore_errors=True)
            return str(error)
        except BaseException:
            if self._closed:  # close() ended the process between any two steps of the question
                return _CLOSED
            raise
        finally:
            self._free.put(child)

    def close(self) -> None:
        """End all processes. Builds in progress and those that wait fail."""
        self._closed = True
        self._end_processes()
        for job in self._workers.end():
            job()
        self._end_processes()  # and those started meanwhile

    def _end_processes(self) -> None:
        for child in self._children:
            child.close()
