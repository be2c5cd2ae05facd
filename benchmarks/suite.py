"""Suites of shapes, read from TOML: groups of products, the short ones first.

A file has a `title` and tables `[[group]]`:

    name, why             what the group is called, and what it is there to show
    short, full           shapes [m, k, n], or [m, k, n, ld] with one leading dimension for A, B and C; `short` is the
                          quick run, the whole run adds `full`
    dtypes                element types, each shape in each (left out: float32)
    packed                whether B is known ahead of time: [false], [true] or both (left out: both)
    peers                 further peers for this group alone
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_tiling.errors import TilingError, nearest
from tvm_tiling.workload import GemmWorkload

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "suites"
GROUP_FIELDS = frozenset({"name", "why", "short", "full", "dtypes", "packed", "peers"})


class SuiteError(TilingError, ValueError):
    """A suite is unknown, or its file is not as the format asks."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One product to be measured. `packed`: B is constant and may be laid out ahead of time, outside of the timing."""

    group: str
    workload: GemmWorkload
    packed: bool
    short: bool
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Names the case within its suite, for people and for resuming a run."""
        w = self.workload
        strided = f" ld {w.ldb}" if (w.lda, w.ldb, w.ldc) != (w.k, w.n, w.n) else ""
        return f"{self.group} {w.m}x{w.k}x{w.n}{strided} {w.dtype}{' packed' if self.packed else ''}"


def suite_names() -> list[str]:
    """The suites there are."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_suite(name: str) -> list[Case]:
    """All cases of a suite, in the order of its file; SuiteError names what is wrong and where."""
    if name not in suite_names():
        raise SuiteError(f"no suite {name!r}: {nearest(name, suite_names())}")
    path = FOLDER / f"{name}.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{path.name}: {error}") from None
    return [case for group in data.get("group", []) for case in _cases(path.name, group)]


def _cases(file: str, group: dict[str, Any]) -> list[Case]:
    where = f"{file}: group {group.get('name', '?')!r}"
    if unknown := set(group) - GROUP_FIELDS:
        raise SuiteError(f"{where}: unknown field {min(unknown)!r}: {nearest(min(unknown), GROUP_FIELDS)}")
    cases = []
    for short, shapes in ((True, group.get("short", [])), (False, group.get("full", []))):
        for shape in shapes:
            for dtype in group.get("dtypes", ["float32"]):
                for packed in group.get("packed", [False, True]):
                    cases.append(
                        Case(
                            group=group["name"],
                            workload=_workload(where, shape, dtype),
                            packed=packed,
                            short=short,
                            peers=tuple(group.get("peers", ())),
                        )
                    )
    if not cases:
        raise SuiteError(f"{where}: no shapes; give `short` or `full` a list of [m, k, n]")
    return cases


def _workload(where: str, shape: list[int], dtype: str) -> GemmWorkload:
    if len(shape) not in (3, 4):
        raise SuiteError(f"{where}: shape {shape}, must be [m, k, n] or [m, k, n, ld]")
    m, k, n = shape[:3]
    ld = shape[3] if len(shape) == 4 else None
    try:
        return GemmWorkload(m=m, k=k, n=n, dtype=dtype, lda=ld, ldb=ld, ldc=ld)
    except TilingError as error:
        raise SuiteError(f"{where}: shape {shape}: {error}") from None
