"""`tvm-tiling doctor`: check the installation and its use of the machine; every problem comes with a fix."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import typer

from ..errors import HardwareError, TilingError
from ..figures import quantity
from ..hardware import Cpu, Hardware
from ..hardware.cpu import ARCHITECTURES
from ..hardware.detect import detect_cpu
from ..hardware.instruction_sets import host_arch
from ..hardware.this_machine import VARIABLE
from ..hardware.usable import affinity, cpu_limit
from ..model.cache_folder import CacheFolder
from ..model.toolchain import cross_compiler, missing, package, variable
from ..runtime.native_file import foreign_folder
from .doctor_checks import Check, check_packages, check_tvm, installed_version, own_requirements, probe
from .output import JSON, print_json, working
from .table import print_table

OLDEST_PYTHON = (3, 10)

EXAMPLES = ("tvm-tiling doctor", "tvm-tiling doctor --json")


def command(as_json: bool = JSON) -> None:
    """Check versions, threads, caches and optional dependencies; exit with code 1 if a check fails."""
    with working("checking"):
        checks = list(all_checks())
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        print_table(("", "check", "found", "fix"), [(c.status, c.name, c.found, c.hint) for c in checks])
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
        yield Check("cpu", "fail", str(error), "use a supported CPU, or simulate an accelerator")
        return
    yield check_cpu(cpu)
    yield check_caches(cpu)
    yield check_calibration()
    yield check_affinity(len(affinity()), os.cpu_count() or 1)
    yield check_limit(cpu_limit(Path("/")), len(affinity()))
    yield from check_tvm(probe(), cpu.cores, installed_version, os.environ)


def check_python(found: tuple[int, ...]) -> Check:
    """The version of the interpreter, (major, minor)."""
    text = ".".join(map(str, found))
    if found < OLDEST_PYTHON:
        return Check("python", "fail", text, "install Python 3.10 or later")
    return Check("python", "ok", text)


def check_compiler(environment: Mapping[str, str]) -> Check:
    """The C compiler that links compiled models, found by the same variables and names as in TVM."""
    named = [environment[name] for name in ("CXX", "CC") if environment.get(name)]
    found = next(
        (path for name in (*named, "g++", "gcc", "clang++", "clang", "c++", "cc") if (path := shutil.which(name))), ""
    )
    if found:
        return Check("c compiler", "ok", found)
    without = "missing: models run in TVM's thread pool, which is slower when threads of other libraries spin"
    return Check("c compiler", "warn", without, "apt install gcc, or your system's equivalent")


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
    """The processor; a warning if properties other than its caches are assumed."""
    found = (
        f"{cpu.mcpu or f'{cpu.arch}, unknown model'}: {quantity(cpu.cores, 'core')}, "
        f"{quantity(cpu.threads, 'thread')}, {cpu.vector_bits}-bit vectors, {cpu.fma_units} FMA per cycle"
    )
    assumed = [field for field in cpu.assumed if not field.startswith("caches")]
    if assumed:
        return Check("cpu", "warn", f"{found}; assumed: {', '.join(assumed)}", _DESCRIBE)
    return Check("cpu", "ok", found)


def check_caches(cpu: Cpu) -> Check:
    """Cache geometry; a warning if the system does not report it."""
    found = ", ".join(f"L{cache.level} {cache.size // 1024} KiB {cache.ways}-way" for cache in cpu.caches)
    assumed = [field for field in cpu.assumed if field.startswith("caches")]
    if assumed:
        return Check("caches", "warn", f"{found}; not reported by the system: {', '.join(assumed)}", _DESCRIBE)
    return Check("caches", "ok", found)


def check_calibration() -> Check:
    """Whether the constants of this machine were measured, and can be read."""
    try:
        calibration = Hardware.detect().calibration
    except HardwareError as error:
        return Check("calibration", "fail", str(error), f"remove the file, or set {VARIABLE}=off")
    return Check("calibration", "ok", calibration.label if calibration else "none: constants of the microarchitecture")


_DESCRIBE = "write `tvm-tiling hardware detect --toml` to a file, correct it, and use --target FILE"


def check_compile_cache() -> Check:
    """The directory of compiled models: size, limit and permissions."""
    try:
        folder = CacheFolder()
    except TilingError as error:
        return Check("compile cache", "fail", str(error), "set TVM_TILING_CACHE_SIZE to a size, or unset it")
    if why := folder.refused():
        foreign = foreign_folder(folder.path)
        fix = f"chmod go-w {folder.path}, or chown" if foreign else "set TVM_TILING_CACHE to another directory"
        return Check("compile cache", "warn", f"not used: {why}", fix)
    held = folder.held()
    found = (
        f"{quantity(held.models, 'model')} and {quantity(held.kernels, 'kernel')}, "
        f"{held.bytes >> 20} of {folder.limit >> 20} MiB used, in {folder.path}"
    )
    parent = next(path for path in (folder.path, *folder.path.parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return Check("compile cache", "warn", f"{found}: not writable", "set TVM_TILING_CACHE to another directory")
    return Check("compile cache", "ok", found)


def check_affinity(allowed: int, there: int) -> Check:
    """The processors of the affinity mask against those of the system."""
    if allowed >= there:
        return Check("affinity", "ok", f"all {quantity(there, 'processor')}")
    fix = "to use all of them, run without taskset and without a cpuset of the container"
    return Check("affinity", "warn", f"this process may use {allowed} of {quantity(there, 'processor')}", fix)


def check_limit(limit: float | None, processors: int) -> Check:
    """The CPU limit of the control group against the processors of the affinity mask."""
    if limit is None or limit >= processors:
        return Check("cpu limit", "ok", f"none, or at least the {processors} processors of the affinity mask")
    return Check(
        "cpu limit",
        "warn",
        f"control groups limit this process to {limit:g} of {quantity(processors, 'processor')}",
        "raise the limit of the container (--cpus, resources.limits.cpu) to a whole number of processors",
    )
