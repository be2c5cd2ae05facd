"""launch.c and plan.c as objects of machine code, to be linked into models' libraries."""

from __future__ import annotations

import functools
import subprocess
import sys
import warnings
from pathlib import Path

from tvm.support import cc

from ..runtime.launcher import SOURCE as LAUNCH
from ..runtime.plan_runner import SOURCE as PLAN
from ..temporary import temporary_folder


def launch_object(folder: Path) -> list[str]:
    """The object of parallel loops, in `folder`; none where it cannot be made."""
    return _written(folder, LAUNCH)


def plan_objects(folder: Path) -> list[str]:
    """Those that run a plan, in `folder`; none where they cannot be made."""
    launch = _written(folder, LAUNCH)
    return [*launch, *_written(folder, PLAN)] if launch else []


def _written(folder: Path, source: Path) -> list[str]:
    content = _object(source)
    if content is None:
        return []
    target = folder / f"{source.stem}.o"
    target.write_bytes(content)
    return [str(target)]


@functools.lru_cache(maxsize=2)
def _object(source: Path) -> bytes | None:
    compiler = cc.get_cc()
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    with temporary_folder() as folder:
        target = folder / f"{source.stem}.o"
        command = [compiler, "-x", "c", "-O2", "-fPIC", "-pthread", "-c", str(source), "-o", str(target)]
        made = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if made.returncode == 0:
            return target.read_bytes()
    said = next((line for line in made.stderr.splitlines() if "error" in line), f"it ended with {made.returncode}")
    warnings.warn(
        f"{compiler} does not compile {source.name}, models run in TVM's thread pool: {said}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
