"""Checks of installed packages, required and optional, and of TVM: whether it starts, its version, its threads. TVM is
tested in a child process, because a broken installation may crash.

Accepted versions come from this package's metadata, that is, from pyproject.toml.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet


@dataclass(frozen=True)
class Check:
    """The result of a check. `status`: "ok", "warn" (works with limitations) or "fail". `hint`: how to fix it."""

    name: str
    status: str
    found: str
    hint: str = ""


DISTRIBUTION = "tvm-tiling"
# Effects of another version of a package that is pinned exactly.
WRONG = {
    "apache-tvm": "its internal API changes between releases",
    "apache-tvm-ffi": "TVM 0.27 crashes with other versions (segmentation fault in save_json, tensorize, MetaSchedule)",
    "apache-tvm-ffi-orcjit": "other versions are untested with this apache-tvm-ffi",
}
# Distributions that provide the same package.
SAME = {"xgboost-cpu": ("xgboost",)}
# Features that fail without a package; without any other one, nothing works.
PARTS = {
    "psutil": "tuning with MetaSchedule fails",
    "cloudpickle": "tuning with MetaSchedule fails",
    "apache-tvm-ffi-orcjit": "models compiled without a C compiler do not run",
    "xgboost-cpu": "learned cost models and MetaSchedule's cost model fail",
    "sqlalchemy": "shape databases and tune fail",
}
# Extra -> its main package, and what is missing without it.
EXTRAS = {
    "onnx": ("onnx", "no ONNX models"),
    "torch": ("torch", "no PyTorch models"),
    "tflite": ("tflite", "no TFLite models"),
    "sim": ("numba", "simulations are up to 100x slower"),
    "rpc": ("tornado", "no fleet and no --runner rpc://"),
    "postgres": ("psycopg", "no PostgreSQL databases"),
}


class Asked(NamedTuple):
    """A requirement: a distribution, its accepted versions, such as ">=1.26,<3", and the extra that requires it."""

    name: str
    versions: SpecifierSet
    extra: str = ""


def requirements(lines: Iterable[str]) -> list[Asked]:
    """The requirements in a distribution's metadata for this system and Python, including extras."""
    found = []
    for read in map(Requirement, lines):
        for extra in ("", *EXTRAS):
            if read.marker is None or read.marker.evaluate({"extra": extra}):
                found.append(Asked(read.name, read.specifier, extra))
                break
    return found


def installed_version(distribution: str) -> str | None:
    """The installed version; None if the distribution is not installed."""
    for name in (distribution, *SAME.get(distribution, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def own_requirements() -> list[Asked] | None:
    """The requirements of this package; None if it is run from source and not installed."""
    try:
        return requirements(metadata.requires(DISTRIBUTION) or ())
    except metadata.PackageNotFoundError:
        return None


def check_packages(asked: list[Asked] | None, installed: Callable[[str], str | None]) -> Iterator[Check]:
    """Check required packages, then those of extras. `installed` maps a distribution to its version or None."""
    if asked is None:
        problem = "run from source, not installed; versions are not checked"
        yield Check(DISTRIBUTION, "warn", problem, "pip install --editable .")
        return
    yield from (_required(each, installed(each.name)) for each in asked if not each.extra)
    by_extra = {(each.extra, each.name): each for each in asked}
    for extra, (name, without) in EXTRAS.items():
        if (extra, name) in by_extra:
            yield _optional(by_extra[extra, name], without, installed(name))


def _required(asked: Asked, found: str | None) -> Check:
    name, hint = asked.name, f"pip install '{asked.name}{asked.versions}'"
    if found is None:
        why = PARTS.get(name, "nothing works")
        return Check(name, "warn" if name in PARTS else "fail", f"missing: {why}", hint)
    if asked.versions.contains(found, prereleases=True):
        return Check(name, "ok", found)
    if name in WRONG:
        return Check(name, "fail", f"{found}; expected {str(asked.versions).lstrip('=')}: {WRONG[name]}", hint)
    return Check(name, "warn", f"{found}; expected {asked.versions}", hint)


def _optional(asked: Asked, without: str, found: str | None) -> Check:
    hint = f"pip install '{DISTRIBUTION}[{asked.extra}]'"
    if found is None:
        return Check(asked.name, "ok", f"not installed, optional: {without}", hint)
    if asked.versions.contains(found, prereleases=True):
        return Check(asked.name, "ok", found)
    return Check(asked.name, "warn", f"{found}; expected {asked.versions}", hint)


PROBE_SECONDS = 120
# Each line of output marks a step that succeeded. The last step crashes if TVM and its FFI are incompatible.
PROBE = """
import json
import tvm, tvm_ffi
threads = int(tvm.get_global_func('runtime.NumThreads')())
print(json.dumps([tvm.__version__, tvm_ffi.__version__, threads, tvm.__file__]), flush=True)
from tvm import te
a = te.placeholder((2,), name='a')
tvm.ir.save_json(te.create_prim_func([a, te.compute((2,), lambda i: a[i] + 1)]))
print('saved', flush=True)
"""


@dataclass(frozen=True)
class Answer:
    """The child's answer: versions of TVM and its FFI, threads and location if TVM started; `error` if the child
    failed, such as "killed by signal 11"."""

    tvm: str = ""
    ffi: str = ""
    threads: int = 0
    place: str = ""
    error: str = ""


def probe() -> Answer:
    """Test TVM in a child process."""
    try:
        child = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return Answer(error=f"no answer after {PROBE_SECONDS} s")
    error = ""
    if child.returncode < 0:
        error = f"killed by signal {-child.returncode}"
    elif child.returncode:
        error = (child.stderr.strip().splitlines() or [f"exit code {child.returncode}"])[-1]
    lines = child.stdout.splitlines()
    if not lines:
        return Answer(error=error or "no answer")
    release, ffi, threads, place = json.loads(lines[0])
    return Answer(release, ffi, threads, place, error)


def check_tvm(
    answer: Answer, cores: int, installed: Callable[[str], str | None], environment: Mapping[str, str]
) -> Iterator[Check]:
    """Check that TVM starts, the versions that are loaded, and its threads against `cores`."""
    if not answer.tvm:
        yield Check("tvm", "fail", f"does not start: {answer.error}", "pip install --force-reinstall tvm-tiling")
        return
    loaded = {"apache-tvm": answer.tvm, "apache-tvm-ffi": answer.ffi}
    other = [
        f"{name} {found} instead of the installed {installed(name)}"
        for name, found in loaded.items()
        if installed(name) not in (None, found)
    ]
    if answer.error:
        why = f"starts, but fails to serialise a function: {answer.error}"
        yield Check("tvm", "fail", f"{why}; apache-tvm-ffi {answer.ffi} is incompatible", _PINS)
    elif other:
        yield Check("tvm", "warn", f"{answer.place} is {'; '.join(other)}", "remove the other copy from PYTHONPATH")
    else:
        yield Check("tvm", "ok", f"{answer.tvm} starts and serialises a function")
    yield _threads(answer, cores, environment)


_PINS = "pip install --force-reinstall tvm-tiling, which pins compatible versions"


def _threads(answer: Answer, cores: int, environment: Mapping[str, str]) -> Check:
    """TVM's own number of threads; this package sets all cores itself."""
    threads, name = answer.threads, "TVM_NUM_THREADS"
    if threads == cores:
        return Check("tvm threads", "ok", f"{threads} of {cores} cores")
    if name in environment:
        found = f"{name}={environment[name]}: {threads} threads on {cores} cores"
        return Check("tvm threads", "warn", found, f"unset {name}, or export {name}={cores}")
    if threads < cores:
        found = f"TVM alone uses {threads} of {cores} cores (it halves the count on x86)"
        return Check("tvm threads", "warn", found, f"only for TVM without this package: export {name}={cores}")
    return Check("tvm threads", "warn", f"TVM starts {threads} threads on {cores} cores", f"export {name}={cores}")
