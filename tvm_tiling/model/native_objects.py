"""launch.c and plan.c as object files, to be linked into models' libraries."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

from tvm.support import cc

from ..runtime.launcher import SOURCE as LAUNCH
from ..runtime.locks import ForkSafeLock
from ..runtime.plan_runner import SOURCE as PLAN
from ..temporary import temporary_folder
from .kernel_cache import KernelCache

_OPTIONS = ("-x", "c", "-O2", "-fPIC", "-pthread", "-c")
_made: dict[Path, bytes | None] = {}  # None: the compiler failed, which has been reported
_lock = ForkSafeLock()


def make_ahead(cache: KernelCache) -> None:
    """Compile both, or load them from `cache`, before a model is linked."""
    for source in (LAUNCH, PLAN):
        _object(source, cache)


def launch_object(folder: Path, cache: KernelCache | None = None) -> list[str]:
    """The object file of parallel loops, in `folder`, from `cache` if present; empty if it cannot be compiled."""
    return _written(folder, LAUNCH, cache)


def plan_objects(folder: Path) -> list[str]:
    """The object files that run a plan, in `folder`; empty if they cannot be compiled."""
    launch = _written(folder, LAUNCH)
    return [*launch, *_written(folder, PLAN)] if launch else []


def _written(folder: Path, source: Path, cache: KernelCache | None = None) -> list[str]:
    content = _object(source, cache or KernelCache(None))
    if content is None:
        return []
    target = folder / f"{source.stem}.o"
    target.write_bytes(content)
    return [str(target)]


def _object(source: Path, cache: KernelCache) -> bytes | None:
    compiler = cc.get_cc()
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    with _lock:
        if source not in _made:
            key = cache.key(f"{_identity(compiler)} {_OPTIONS} {source.read_text(encoding='utf-8')}")
            content = cache.get(key)
            if content is None:
                content = _compiled(compiler, source)
                if content is not None:
                    cache.put(key, content)
            _made[source] = content
        return _made[source]


def _identity(compiler: str) -> str:
    """A string that changes with the compiler: its path, size and modification time."""
    found = Path(shutil.which(compiler) or compiler).resolve()
    status = found.stat()
    return f"{found} {status.st_size} {status.st_mtime_ns}"


def _compiled(compiler: str, source: Path) -> bytes | None:
    with temporary_folder() as folder:
        target = folder / f"{source.stem}.o"
        made = subprocess.run(
            [compiler, *_OPTIONS, str(source), "-o", str(target)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if made.returncode == 0:
            return target.read_bytes()
    said = next((line for line in made.stderr.splitlines() if "error" in line), f"it ended with {made.returncode}")
    warnings.warn(
        f"{compiler} cannot compile {source.name}, so models run in TVM's thread pool: {said}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
