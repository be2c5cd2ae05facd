"""What `tvm-tiling doctor` says of installed packages: those that this one requires, and those of its extras.

Which versions go together is read from this package's own metadata, so that nothing has to be kept in step with
pyproject.toml.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import NamedTuple

from .doctor_check import Check

DISTRIBUTION = "tvm-tiling"
# What goes wrong with another version of what is pinned exactly.
WRONG = {
    "apache-tvm": "the names this package uses have moved between releases",
    "apache-tvm-ffi": "TVM 0.27 crashes with other ones: a segmentation fault in save_json, tensorize, MetaSchedule",
}
# Distributions that bring the same package.
SAME = {"xgboost": ("xgboost-cpu",)}
# What fails without it, where not everything does.
PARTS = {
    "psutil": "tuning with MetaSchedule fails",
    "cloudpickle": "tuning with MetaSchedule fails",
    "xgboost": "learning what costs and MetaSchedule's own cost model fail",
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


class Requirement(NamedTuple):
    """A distribution, the versions that are accepted, such as ">=1.26,<3", and the extra that asks for it."""

    name: str
    versions: str
    extra: str = ""


def requirements(lines: Iterable[str]) -> list[Requirement]:
    """What a distribution's metadata ask for, markers other than of extras left aside."""
    found = []
    for line in lines:
        named = re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*([^;]*)(?:;(.*))?$", line)
        if named is None:
            continue
        extra = re.search(r"extra == [\"']([\w-]+)[\"']", named[3] or "")
        if named[3] and extra is None:
            continue  # for other Pythons
        found.append(Requirement(named[1], named[2].strip(" ()"), extra[1] if extra else ""))
    return found


def accepted(version: str, versions: str) -> bool:
    """Whether a version is among them. Only what this package uses is understood: ==, >= and < of numbers; a version
    that is pinned has to be the same text."""
    for part in filter(None, versions.split(",")):
        how, bound = part[:2] if part[1] == "=" else part[0], part.lstrip("<>=")
        if how == "==" and version != bound:
            return False
        if how == ">=" and _numbers(version) < _numbers(bound):
            return False
        if how == "<" and _numbers(version) >= _numbers(bound):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The release as numbers without zeros at its end: 2.13.0+cpu is (2, 13)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def installed_version(distribution: str) -> str | None:
    """Its version, None where there is none."""
    for name in (distribution, *SAME.get(distribution, ())):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def own_requirements() -> list[Requirement] | None:
    """What this package asks for; None where it is run from source and not installed."""
    try:
        return requirements(metadata.requires(DISTRIBUTION) or ())
    except metadata.PackageNotFoundError:
        return None


def check_packages(asked: list[Requirement] | None, installed: Callable[[str], str | None]) -> Iterator[Check]:
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


def _required(asked: Requirement, found: str | None) -> Check:
    name, remedy = asked.name, f"pip install '{asked.name}{asked.versions}'"
    if found is None:
        why = PARTS.get(name, "nothing works")
        return Check(name, "warn" if name in PARTS else "fail", f"missing: {why}", remedy)
    if accepted(found, asked.versions):
        return Check(name, "ok", found)
    if name in WRONG:
        return Check(name, "fail", f"{found}, not {asked.versions.lstrip('=')}: {WRONG[name]}", remedy)
    return Check(name, "warn", f"{found}, accepted: {asked.versions}", remedy)


def _optional(asked: Requirement, without: str, found: str | None) -> Check:
    remedy = f"pip install '{DISTRIBUTION}[{asked.extra}]'"
    if found is None:
        return Check(asked.name, "ok", f"not installed, optional: {without}", remedy)
    if accepted(found, asked.versions):
        return Check(asked.name, "ok", found)
    return Check(asked.name, "warn", f"{found}, accepted: {asked.versions}", remedy)
