"""What `tvm-tiling doctor` says of installed packages, those that this one requires and those of its extras, and of TVM
itself: whether it starts, which one, what it crashes in, its threads. TVM is asked in a child process, since a broken
one may take its process down.

Which versions go together is read from this package's own metadata, so that nothing has to be kept in step with
pyproject.toml.
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
    """`status` is "ok", "warn" (works, but not as well as it could) or "fail"; `remedy` says how to fix it."""

    name: str
    status: str
    found: str
    hint: str = ""


DISTRIBUTION = "tvm-tiling"
# What goes wrong with another version of what is pinned exactly.
WRONG = {
    "apache-tvm": "the names this package uses have moved between releases",
    "apache-tvm-ffi": "TVM 0.27 crashes with other ones: a segmentation fault in save_json, tensorize, MetaSchedule",
    "apache-tvm-ffi-orcjit": "it goes with one apache-tvm-ffi, and others were not tried",
}
# Distributions that bring the same package.
SAME = {"xgboost-cpu": ("xgboost",)}
# What fails without it, where not everything does.
PARTS = {
    "psutil": "tuning with MetaSchedule fails",
    "cloudpickle": "tuning with MetaSchedule fails",
    "apache-tvm-ffi-orcjit": "nothing runs that was compiled without a C compiler",
    "xgboost-cpu": "learning what costs and MetaSchedule's own cost model fail",
    "sqlalchemy": "databases of shapes and tune fail",
}
# Extra -> what it brings that has to be there, and what there is not without it.
EXTRAS = {
    "onnx": ("onnx", "no ONNX models"),
    "torch": ("torch", "no PyTorch models"),
    "tflite": ("tflite", "no TFLite models"),
    "sim": ("numba", "simulations take a hundred times as long"),
    "rpc": ("tornado", "no fleet and no --runner rpc://"),
    "postgres": ("psycopg", "no databases on a PostgreSQL server"),
}


class Asked(NamedTuple):
    """A distribution, the versions that are accepted, such as ">=1.26,<3", and the extra that asks for it."""

    name: str
    versions: SpecifierSet
    extra: str = ""


def requirements(lines: Iterable[str]) -> list[Asked]:
    """What a distribution's metadata ask for on this system and Python, always and for extras."""
    found = []
    for read in map(Requirement, lines):
        for extra in ("", *EXTRAS):
            if read.marker is None or read.marker.evaluate({"extra": extra}):
                found.append(Asked(read.name, read.specifier, extra))
                break
    return found


def installed_version(distribution: str) -> str | None:
    """Its version, None where there is none."""
    for name in (distribution, *SAME.get(distribution, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def own_requirements() -> list[Asked] | None:
    """What this package asks for; None where it is run from source and not installed."""
    try:
        return requirements(metadata.requires(DISTRIBUTION) or ())
    except metadata.PackageNotFoundError:
        return None


def check_packages(asked: list[Asked] | None, installed: Callable[[str], str | None]) -> Iterator[Check]:
    """Everything required, then what the extras bring. `installed` gives a version, None where there is none."""
    if asked is None:
        problem = "run from source, not installed: versions are not checked"
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
        return Check(name, "fail", f"{found}, not {str(asked.versions).lstrip('=')}: {WRONG[name]}", hint)
    return Check(name, "warn", f"{found}, accepted: {asked.versions}", hint)


def _optional(asked: Asked, without: str, found: str | None) -> Check:
    hint = f"pip install '{DISTRIBUTION}[{asked.extra}]'"
    if found is None:
        return Check(asked.name, "ok", f"not installed, optional: {without}", hint)
    if asked.versions.contains(found, prereleases=True):
        return Check(asked.name, "ok", found)
    return Check(asked.name, "warn", f"{found}, accepted: {asked.versions}", hint)


PROBE_SECONDS = 120
# Each line of the answer is as far as it came. The last step crashes where TVM and its FFI do not go together.
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
    """What the child said: versions of TVM and its FFI, threads and place where it started, `error` where it did not
    come to its end, such as "killed by signal 11"."""

    tvm: str = ""
    ffi: str = ""
    threads: int = 0
    place: str = ""
    error: str = ""


def probe() -> Answer:
    """Ask."""
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
    """Its start, the versions that are really loaded, and its threads on a machine of so many cores."""
    if not answer.tvm:
        yield Check("tvm", "fail", f"does not start: {answer.error}", "pip install --force-reinstall tvm-tiling")
        return
    loaded = {"apache-tvm": answer.tvm, "apache-tvm-ffi": answer.ffi}
    other = [
        f"{name} {found}, not the installed {installed(name)}"
        for name, found in loaded.items()
        if installed(name) not in (None, found)
    ]
    if answer.error:
        why = f"starts, and fails when it writes a function as JSON: {answer.error}"
        yield Check("tvm", "fail", f"{why}; apache-tvm-ffi {answer.ffi} does not go with it", _PINS)
    elif other:
        yield Check("tvm", "warn", f"{answer.place} is {'; '.join(other)}", "remove the other copy from PYTHONPATH")
    else:
        yield Check("tvm", "ok", f"{answer.tvm} starts and writes a function as JSON")
    yield _threads(answer, cores, environment)


_PINS = "pip install --force-reinstall tvm-tiling, which pins the versions that go together"


def _threads(answer: Answer, cores: int, environment: Mapping[str, str]) -> Check:
    """TVM's own number of threads; this package asks for all cores by itself."""
    threads, name = answer.threads, "TVM_NUM_THREADS"
    if threads == cores:
        return Check("tvm threads", "ok", f"{threads} of {cores} cores")
    if name in environment:
        found = f"{name}={environment[name]}: {threads} threads on {cores} cores"
        return Check("tvm threads", "warn", found, f"unset {name}, or export {name}={cores}")
    if threads < cores:
        found = f"TVM alone would use {threads} of {cores} cores (it halves the count on x86)"
        return Check("tvm threads", "warn", found, f"this package asks for all; for plain TVM: export {name}={cores}")
    return Check("tvm threads", "warn", f"TVM would start {threads} threads on {cores} cores", f"export {name}={cores}")
