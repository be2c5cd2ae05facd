"""launch.c and plan.c as object files, to be linked into models' libraries.

`arch` is the architecture that they are for, None for this computer's.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

from tvm.support import cc

from ..hardware.instruction_sets import host_arch
from ..runtime.launcher import SOURCE as LAUNCH
from ..runtime.locks import ForkSafeLock
from ..runtime.plan_runner import SOURCE as PLAN
from ..temporary import temporary_folder
from .kernel_cache import KernelCache
from .toolchain import cross_compiler

_OPTIONS = ("-x", "c", "-O2", "-fPIC", "-pthread", "-c")
_made: dict[tuple[Path, tuple[str, ...]], bytes | None] = {}  # None: the compiler failed, which has been reported
_lock = ForkSafeLock()


def compiler_for(arch: str | None) -> tuple[str, ...] | None:
    """The command of the C compiler and its options; None if there is none."""
    if arch is not None and arch != host_arch():
        return cross_compiler(arch)
    own = cc.get_cc()
    return None if own is None else (own,)


def make_ahead(cache: KernelCache, arch: str | None = None) -> None:
    """Compile both, or load them from `cache`, before a model is linked."""
    for source in (LAUNCH, PLAN):
        _object(source, cache, arch)


def launch_object(folder: Path, arch: str | None, cache: KernelCache | None = None) -> list[str]:
    """The object file of parallel loops, in `folder`, from `cache` if present; empty if it cannot be compiled."""
    return _written(folder, LAUNCH, arch, cache)


def plan_objects(folder: Path, arch: str | None) -> list[str]:
    """The object files that run a plan, in `folder`; empty if they cannot be compiled."""
    launch = _written(folder, LAUNCH, arch)
    return [*launch, *_written(folder, PLAN, arch)] if launch else []


def _written(folder: Path, source: Path, arch: str | None, cache: KernelCache | None = None) -> list[str]:
    content = _object(source, cache or KernelCache(None), arch)
    if content is None:
        return []
    target = folder / f"{source.stem}.o"
    target.write_bytes(content)
    return [str(target)]


def _object(source: Path, cache: KernelCache, arch: str | None) -> bytes | None:
    compiler = compiler_for(arch)
    if compiler is None or not (sys.platform.startswith("linux") or arch not in (None, host_arch())):
        return None
    with _lock.current:
        if (source, compiler) not in _made:
            text = source.read_text(encoding="utf-8")
            key = cache.key(f"{_identity(compiler[0])} {(*compiler[1:], *_OPTIONS)} {text}")
            content = cache.get(key)
            if content is None:
                content = _compiled(compiler, source)
                if content is not None:
                    cache.put(key, content)
            _made[source, compiler] = content
        return _made[source, compiler]


def _identity(compiler: str) -> str:
    """A string that changes with the compiler: its path, size and modification time."""
    found = Path(shutil.which(compiler) or compiler).resolve()
    status = found.stat()
    return f"{found} {status.st_size} {status.st_mtime_ns}"


def _compiled(compiler: tuple[str, ...], source: Path) -> bytes | None:
    with temporary_folder() as folder:
        target = folder / f"{source.stem}.o"
        made = subprocess.run(
            [*compiler, *_OPTIONS, str(source), "-o", str(target)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if made.returncode == 0:
            return target.read_bytes()
    said = next((line for line in made.stderr.splitlines() if "error" in line), f"it ended with {made.returncode}")
    warnings.warn(
        f"{compiler[0]} cannot compile {source.name}, so models run in TVM's thread pool: {said}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
