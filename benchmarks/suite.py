"""Suites of shapes, read from TOML: groups of matrix multiplications and of convolutions.

A file has a `title` and tables `[[group]]`:

    name, why             name of the group and its purpose
    short, full           shapes in the notation of benchmarks/shape.py; a short run has `short` only, a full one both
    dtypes                element types to measure each shape in (default: float32)
    full_dtypes           further types for full runs
    packed                whether the second operand is prepacked: [false], [true] or both (default: both for matrix
                          multiplications, [true] for convolutions, whose kernels are constants of a network)
    network               the network that the counts `times` of its shapes belong to (default: the group's name)
    peers                 further peers for this group only
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_tiling.errors import TilingError, nearest
from tvm_tiling.plain_text import plain_toml
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from . import shape as notation

FOLDER = Path(__file__).parent / "suites"
GROUP_FIELDS = frozenset({"name", "why", "short", "full", "dtypes", "full_dtypes", "packed", "network", "peers"})


class SuiteError(TilingError, ValueError):
    """A suite is unknown, or its file is malformed."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One workload to measure.

    `packed`: the second operand is constant and may be laid out ahead of time, outside of the timing. `times`: how
    often each network computes it.
    """

    group: str
    workload: GemmWorkload | ConvWorkload
    packed: bool
    short: bool
    times: Mapping[str, int] = field(default_factory=dict)
    peers: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name of the case within its suite, for display and for resuming a run."""
        w = self.workload
        return f"{self.group} {notation.text(w)} {w.dtype}{' packed' if self.packed else ''}"


def suite_names() -> list[str]:
    """Return the names of the available suites."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_suite(name: str) -> list[Case]:
    """Return all cases of a suite, one of `suite_names` or a TOML file, in the order of the file.

    Raises SuiteError that names the fault and its place.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if path.parent == FOLDER and name not in suite_names():
        raise SuiteError(f"no suite {name!r}; {nearest(name, suite_names())}, or a TOML file")
    try:
        data = plain_toml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # not TOML, or not UTF-8
        raise SuiteError(f"{path.name}: {getattr(error, 'strerror', None) or error}") from None
    return [case for group in data.get("group", []) for case in _cases(path.name, group)]


def _cases(file: str, group: dict[str, Any]) -> list[Case]:
    where = f"{file}: group {group.get('name', '?')!r}"
    if unknown := set(group) - GROUP_FIELDS:
        raise SuiteError(f"{where}: unknown field {min(unknown)!r}; {nearest(min(unknown), GROUP_FIELDS)}")
    cases = []
    for short, shapes in ((True, group.get("short", [])), (False, group.get("full", []))):
        for shape in shapes:
            for dtype in (*group.get("dtypes", ["float32"]), *group.get("full_dtypes", [])):
                workload = _workload(where, shape, dtype)
                usual = [True] if isinstance(workload, ConvWorkload) else [False, True]
                for packed in group.get("packed", usual):
                    cases.append(
                        Case(
                            group=group["name"],
                            workload=workload,
                            packed=packed,
                            short=short and dtype not in group.get("full_dtypes", []),
                            times=_times(where, shape, group.get("network", group["name"])),
                            peers=tuple(group.get("peers", ())),
                        )
                    )
    if not cases:
        raise SuiteError(f"{where}: no shapes; give `short` or `full` a list of [m, k, n] or of tables")
    return cases


def _workload(where: str, shape: Any, dtype: str) -> GemmWorkload | ConvWorkload:
    try:
        return notation.workload(shape, dtype)
    except TilingError as error:
        raise SuiteError(f"{where}: shape {shape}: {error}") from None


def _times(where: str, shape: Any, network: str) -> dict[str, int]:
    times = shape.get("times", {}) if isinstance(shape, dict) else {}
    counts = times if isinstance(times, dict) else {network: times}
    if any(type(count) is not int or count < 1 for count in counts.values()):
        raise SuiteError(f"{where}: shape {shape}: times = {times}, must be whole numbers of at least 1")
    return counts
