"""What `tvm-tiling doctor` says of installed packages: those that this one requires, and those of its extras.

Which versions go together is read from this package's own metadata, so that nothing has to be kept in step with
pyproject.toml.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from .doctor_check import Check

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
        told = "run from source, not installed: versions are not checked"
        yield Check(DISTRIBUTION, "warn", told, "pip install --editable .")
        return
    yield from (_required(each, installed(each.name)) for each in asked if not each.extra)
    by_extra = {(each.extra, each.name): each for each in asked}
    for extra, (name, without) in EXTRAS.items():
        if (extra, name) in by_extra:
            yield _optional(by_extra[extra, name], without, installed(name))


def _required(asked: Asked, found: str | None) -> Check:
    name, remedy = asked.name, f"pip install '{asked.name}{asked.versions}'"
    if found is None:
        why = PARTS.get(name, "nothing works")
        return Check(name, "warn" if name in PARTS else "fail", f"missing: {why}", remedy)
    if asked.versions.contains(found, prereleases=True):
        return Check(name, "ok", found)
    if name in WRONG:
        return Check(name, "fail", f"{found}, not {str(asked.versions).lstrip('=')}: {WRONG[name]}", remedy)
    return Check(name, "warn", f"{found}, accepted: {asked.versions}", remedy)


def _optional(asked: Asked, without: str, found: str | None) -> Check:
    remedy = f"pip install '{DISTRIBUTION}[{asked.extra}]'"
    if found is None:
        return Check(asked.name, "ok", f"not installed, optional: {without}", remedy)
    if asked.versions.contains(found, prereleases=True):
        return Check(asked.name, "ok", found)
    return Check(asked.name, "warn", f"{found}, accepted: {asked.versions}", remedy)
