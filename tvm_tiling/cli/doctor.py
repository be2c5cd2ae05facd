"""`tvm-tiling doctor`: is this installation whole, and does it use the machine? Every line says how to fix it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import typer

from ..errors import HardwareError, TilingError
from ..hardware import Cpu
from ..hardware.cpu import ARCHITECTURES
from ..hardware.detect import detect_cpu
from ..hardware.instruction_sets import host_arch
from ..hardware.usable import affinity, cpu_limit
from ..model.cache_folder import CacheFolder
from ..model.toolchain import cross_compiler, missing, package, variable
from .doctor_checks import Check, check_packages, check_tvm, installed_version, own_requirements, probe
from .output import JSON, print_json, working
from .table import print_table

OLDEST_PYTHON = (3, 10)

EXAMPLES = ("tvm-tiling doctor", "tvm-tiling doctor --json")


def command(as_json: bool = JSON) -> None:
    """Check versions, threads, caches and optional parts; exit with 1 if something fails."""
    with working("checking"):
        checks = list(all_checks())
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        print_table(("", "check", "found", "remedy"), [(c.status, c.name, c.found, c.hint) for c in checks])
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


def all_checks() -> Iterator[Check]:
    """Every check on the running system."""
    yield check_python(sys.version_info[:2])
    yield from check_packages(own_requirements(), installed_version)
    yield check_compiler(os.environ)
    yield from check_cross_compilers()
    yield check_compile_cache()
    try:
        cpu = detect_cpu()
    except HardwareError as error:
        yield Check("cpu", "fail", str(error), "use such a machine, or a simulated target")
        return
    yield check_cpu(cpu)
    yield check_caches(cpu)
    yield check_affinity(len(affinity()), os.cpu_count() or 1)
    yield check_limit(cpu_limit(Path("/")), len(affinity()))
    yield from check_tvm(probe(), cpu.cores, installed_version, os.environ)


def check_python(found: tuple[int, ...]) -> Check:
    """The interpreter, given as (major, minor)."""
    text = ".".join(map(str, found))
    if found < OLDEST_PYTHON:
        return Check("python", "fail", text, "install Python 3.10 or later")
    return Check("python", "ok", text)


def check_compiler(environment: Mapping[str, str]) -> Check:
    """The C compiler that links compiled models; TVM looks for it in these variables and under these names."""
    named = [environment[name] for name in ("CXX", "CC") if environment.get(name)]
    found = next(
        (path for name in (*named, "g++", "gcc", "clang++", "clang", "c++", "cc") if (path := shutil.which(name))), ""
    )
    if found:
        return Check("c compiler", "ok", found)
    without = "missing: models run in TVM's thread pool, behind other libraries' threads where those spin"
    return Check("c compiler", "warn", without, "apt install gcc, or what your system has")


def check_cross_compilers() -> Iterator[Check]:
    """What links models for other architectures; missing, it fails nothing."""
    for arch in ARCHITECTURES:
        if arch == host_arch():
            continue
        name, found = f"cross compiler ({arch})", cross_compiler(arch)
        if found is not None:
            yield Check(name, "ok", " ".join(found))
        elif variable(arch) in os.environ:
            yield Check(name, "warn", missing(arch), f"correct {variable(arch)}, or unset it")
        else:
            without = f"not installed, optional: models for {arch} are exported and not saved"
            yield Check(name, "ok", without, f"apt install {package(arch)}, or name a command in {variable(arch)}")


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
    found = (
        f"{held.models} models, {held.kernels} kernels, {held.bytes >> 20} of {folder.limit >> 20} MiB in {folder.path}"
    )
    if why := folder.refused():
        return Check("compile cache", "warn", f"not used: {why}; {folder.path}", f"chmod go-w {folder.path}, or chown")
    parent = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return Check("compile cache", "warn", f"{found}: cannot be written", "set TVM_TILING_CACHE to another folder")
    return Check("compile cache", "ok", found)


def check_affinity(allowed: int, there: int) -> Check:
    """The processors that this process may run on, of those that are there."""
    if allowed >= there:
        return Check("affinity", "ok", f"all {there} processors")
    fix = "run it without taskset or the container's cpuset, if it is to use all of them"
    return Check("affinity", "warn", f"this process may use {allowed} of {there} processors", fix)


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
