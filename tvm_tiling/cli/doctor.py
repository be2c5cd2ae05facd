"""`tvm-tiling doctor`: is this installation whole, and does it use the machine? Every line says how to mend it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from ..errors import HardwareError, TilingError
from ..hardware import Cpu
from ..hardware.detect import detect_cpu
from ..hardware.usable import affinity, cpu_limit
from ..model.cache_folder import CacheFolder
from .output import print_json, print_table

OLDEST_PYTHON = (3, 10)

# What pyproject.toml pins exactly, and what goes wrong with another version.
PINNED = {
    "apache-tvm": ("0.27.0.post1", "the names this package uses have moved between releases"),
    "apache-tvm-ffi": (
        "0.1.14.post1",
        "with later ones TVM 0.27 crashes with a segmentation fault in save_json, tensorize and MetaSchedule",
    ),
}
# Distribution -> what fails without it, and whether everything does.
REQUIRED = {
    "numpy": ("nothing runs", True),
    "psutil": ("tuning with MetaSchedule fails", False),
    "cloudpickle": ("tuning with MetaSchedule fails", False),
    "xgboost": ("MetaSchedule's own cost model fails", False),
}
# Distribution -> the extra that brings it.
OPTIONAL = {"torch": "torch", "numba": "sim", "onnx": "onnx"}

PROBE = "import json, tvm; print(json.dumps([tvm.__version__, int(tvm.get_global_func('runtime.NumThreads')())]))"
PROBE_SECONDS = 120


@dataclass(frozen=True)
class Check:
    """One line: `status` is "ok", "warn" (works, but not as well as it could) or "fail"."""

    name: str
    status: str
    found: str
    remedy: str = ""


EXAMPLES = ("tvm-tiling doctor", "tvm-tiling doctor --json")


def command(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Check versions, threads, caches and optional parts; exit with 1 if something fails."""
    checks = list(all_checks())
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        print_table(("", "check", "found", "remedy"), [(c.status, c.name, c.found, c.remedy) for c in checks])
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


def all_checks() -> Iterator[Check]:
    """Every check on the running system."""
    yield check_python(sys.version_info[:2])
    yield from check_packages(_version)
    yield check_compile_cache()
    try:
        cpu = detect_cpu()
    except HardwareError as error:
        yield Check("cpu", "fail", str(error), "use such a machine, or a simulated target")
        return
    yield check_cpu(cpu)
    yield check_caches(cpu)
    yield check_limit(cpu_limit(Path("/")), len(affinity()))
    yield check_tvm(_probe_tvm(), cpu.cores)


def check_python(found: tuple[int, ...]) -> Check:
    """The interpreter, given as (major, minor)."""
    text = ".".join(map(str, found))
    if found < OLDEST_PYTHON:
        return Check("python", "fail", text, "install Python 3.10 or later")
    return Check("python", "ok", text)


def check_packages(installed: Callable[[str], str | None]) -> Iterator[Check]:
    """Pinned, required and optional distributions; `installed` gives a version, None where there is none."""
    for name, (wanted, why) in PINNED.items():
        found = installed(name)
        if found == wanted:
            yield Check(name, "ok", found)
        else:
            yield Check(name, "fail", f"{found or 'missing'}, not {wanted}: {why}", f"pip install {name}=={wanted}")
    for name, (without, everything) in REQUIRED.items():
        found = installed(name)
        if found is not None:
            yield Check(name, "ok", found)
        else:
            yield Check(name, "fail" if everything else "warn", f"missing: {without}", f"pip install {name}")
    for name, extra in OPTIONAL.items():
        found = installed(name)
        remedy = "" if found else f"pip install 'tvm-tiling[{extra}]'"
        yield Check(name, "ok", found or "not installed (optional)", remedy)


def check_cpu(cpu: Cpu) -> Check:
    """The processor; a warning where anything but its caches had to be assumed."""
    found = (
        f"{cpu.mcpu or f'{cpu.arch}, model not known'}: {cpu.cores} cores, {cpu.threads} threads, "
        f"{cpu.vector_bits}-bit vectors, {cpu.fma_units} FMA per cycle"
    )
    assumed = [field for field in cpu.assumed if not field.startswith("caches")]
    if assumed:
        return Check("cpu", "warn", f"{found}; assumed: {', '.join(assumed)}", _DESCRIBE)
    return Check("cpu", "ok", found)


def check_caches(cpu: Cpu) -> Check:
    """Cache geometry: read from the system, or assumed."""
    found = ", ".join(f"L{cache.level} {cache.size // 1024} KiB {cache.ways}-way" for cache in cpu.caches)
    assumed = [field for field in cpu.assumed if field.startswith("caches")]
    if assumed:
        return Check("caches", "warn", f"{found}; the system hides {', '.join(assumed)}", _DESCRIBE)
    return Check("caches", "ok", found)


_DESCRIBE = "correct the output of `tvm-tiling hardware detect --toml` in a file and pass that as --hardware"


def check_compile_cache() -> Check:
    """The folder of compiled models: its size against its limit, and whether others may write to it."""
    try:
        folder = CacheFolder()
    except TilingError as error:
        return Check("compile cache", "fail", str(error), "set TVM_TILING_CACHE_SIZE to a size, or not at all")
    held = folder.held()
    found = f"{held.models} models, {held.bytes >> 20} of {folder.limit >> 20} MiB in {folder.path}"
    if why := folder.refused():
        return Check("compile cache", "warn", f"not used: {why}; {folder.path}", f"chmod go-w {folder.path}, or chown")
    parent = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return Check("compile cache", "warn", f"{found}: cannot be written", "set TVM_TILING_CACHE to another folder")
    return Check("compile cache", "ok", found)


def check_limit(limit: float | None, processors: int) -> Check:
    """The container's CPU limit against the processors of the affinity mask."""
    if limit is None or limit >= processors:
        return Check("cpu limit", "ok", f"none below the {processors} processors of the affinity mask")
    return Check(
        "cpu limit",
        "warn",
        f"control groups allow {limit:g} of {processors} processors",
        "raise the container's limit (--cpus, resources.limits.cpu) to a whole number of processors, or all of them",
    )


def check_tvm(probe: tuple[str, int] | str, cores: int) -> Check:
    """TVM's own start: `probe` is its version and thread count, or what went wrong."""
    if isinstance(probe, str):
        return Check("tvm", "fail", f"does not start: {probe}", "pip install --force-reinstall tvm-tiling")
    release, threads = probe
    if threads < cores:
        return Check(
            "tvm threads",
            "warn",
            f"TVM {release} alone would use {threads} of {cores} cores (it halves the count on x86)",
            f"this package asks for all of them; for plain TVM: export TVM_NUM_THREADS={cores}",
        )
    if threads > cores:
        return Check(
            "tvm threads",
            "warn",
            f"TVM {release} would start {threads} threads on {cores} cores",
            f"export TVM_NUM_THREADS={cores}",
        )
    return Check("tvm threads", "ok", f"TVM {release} uses {threads} of {cores} cores")


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _probe_tvm() -> tuple[str, int] | str:
    """TVM's version and thread count, asked of a child process, since a broken TVM may take its process down."""
    try:
        child = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"no answer after {PROBE_SECONDS} s"
    if child.returncode < 0:
        return f"killed by signal {-child.returncode}"
    if child.returncode:
        return (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    release, threads = json.loads(child.stdout.splitlines()[-1])
    return release, threads
