"""Processes that build cuts, several at once: one for each core unless told otherwise."""

from __future__ import annotations

import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from ...runtime.threads import usable_core_count
from .child import Child, ChildFailed, ChildLost
from .measurer import Build, Job
from .template import BUILDING, Template

BUILD_SECONDS = 60.0


class Builders:
    """Children that build; one that crashes or hangs costs its build alone."""

    def __init__(
        self, template: Template, *, count: int | None = None, seconds: float = BUILD_SECONDS, entry: str = BUILDING
    ) -> None:
        """`count` forks of `template`, left out one for each core, run the function `entry`; a build that takes more
        than `seconds` fails."""
        self.count = count or usable_core_count()
        self._seconds = seconds
        self._children = [Child(entry, "it was built", template) for _ in range(self.count)]
        self._free: SimpleQueue[Child] = SimpleQueue()
        for child in self._children:
            self._free.put(child)
        self._pool = ThreadPoolExecutor(self.count)

    def submit(self, job: Job, folder: Path) -> Future[Build | str]:
        """Begin to build a job into `folder`: what it is built to, or why it is not, and then the folder is
        removed."""
        return self._pool.submit(self._build, job, folder)

    def _build(self, job: Job, folder: Path) -> Build | str:
        child = self._free.get()
        try:
            found: Build = child.ask((job, str(folder)), self._seconds)
            return found
        except (ChildFailed, ChildLost) as error:
            shutil.rmtree(folder, ignore_errors=True)
            return str(error)
        finally:
            self._free.put(child)

    def close(self) -> None:
        """End all processes."""
        for child in self._children:
            child.close()
        self._pool.shutdown(cancel_futures=True)
