"""Processes that build configurations in parallel, one per core by default."""

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
        self._pool = ThreadPoolExecutor(self.count)

    def submit(self, job: Job, folder: Path) -> Future[Build | str]:
        """Start to build a job into `folder`. The future yields the build, or the reason for its failure, in which case
        the folder is removed."""
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
