"""The log of trials of a search: records, and a file of JSON lines that grows as they arrive."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

from ..atomic_file import refuse_unwritable
from ..decide.configs.config import Config
from ..errors import DatabaseError, TilingError, other_version
from ..measure import first_line
from ..plain_text import plain_json

FORMAT, VERSION = "tvm-tiling trials", 1
MOST_HEADER = 1000  # bytes of the first line


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A measured configuration, `config`; None for a trial of MetaSchedule by other rules.

    `number` counts the trials of its `operator`, including earlier sessions with the same database. `predicted` is the
    analytical prediction, `cost` the measurement, None if it failed, with the reason in `reason`; `best` is the lowest
    cost so far. All are in `unit`, "s" or "cycles". `disturbed` is the fraction of its samples in which other work kept
    threads off their cores; `seconds` is how long the trial took. Trials of MetaSchedule omit what it does not report.
    """

    number: int
    operator: str
    config: Config | None
    unit: str
    predicted: float | None
    cost: float | None
    best: float | None
    reason: str | None
    disturbed: float | None
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "number": self.number,
            "operator": self.operator,
            "config": None if self.config is None else self.config.to_dict(),
            "unit": self.unit,
            "predicted": self.predicted,
            "cost": self.cost,
            "best": self.best,
            "reason": self.reason,
            "disturbed": self.disturbed,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Trial:
        """Read the output of `to_dict`. KeyError, TypeError or DatabaseError for anything else."""
        config = record["config"]
        trial = cls(**{**record, "config": None if config is None else Config.from_dict(config)})
        for name, kinds in _KINDS.items():
            if not isinstance(getattr(trial, name), kinds):
                raise TypeError(f"{name} = {getattr(trial, name)!r}")
        for name in ("predicted", "cost", "best"):
            if (value := getattr(trial, name)) is not None and not 0 < value < math.inf:
                raise TypeError(f"{name} = {value!r}")
        return trial


_NUMBER, _NONE = (int, float), type(None)
_KINDS: dict[str, tuple[type, ...]] = {
    "number": (int,),
    "operator": (str,),
    "unit": (str,),
    "predicted": (*_NUMBER, _NONE),
    "cost": (*_NUMBER, _NONE),
    "best": (*_NUMBER, _NONE),
    "reason": (str, _NONE),
    "disturbed": (*_NUMBER, _NONE),
    "seconds": (*_NUMBER, _NONE),
}
Told: TypeAlias = Callable[[Trial], None]


class TrialFile:
    """A file with a line of JSON for each trial, after a header line. An existing log is continued, without its last
    line if a killed process left it incomplete. OSError if it cannot be written or contains something else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        refuse_unwritable(path)
        self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115
        self._file.seek(0)
        first = self._file.readline(MOST_HEADER)
        if first and is_log(first):
            self._file.truncate(len(first) + self._file.read().rfind(b"\n") + 1)
        elif first:
            self._file.close()
            raise FileExistsError(f"{path} exists and is not a log of trials; expected a log of trials, or a new path")
        if not first:
            self._put({"format": FORMAT, "version": VERSION})

    def __call__(self, trial: Trial) -> None:
        """Append a trial; it is in the file when this returns."""
        self._put(trial.to_dict())

    def _put(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record).encode() + b"\n")
        self._file.flush()

    def __enter__(self) -> TrialFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def is_log(first: str | bytes) -> bool:
    """Return whether a file with this first line is a log of trials, of any version."""
    try:
        record = plain_json(first)
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("format") == FORMAT


def read_trials(path: str | os.PathLike[str]) -> list[Trial]:
    """Return the trials of the log at `path`, from all searches that were written to it. Raises DatabaseError, which
    names the invalid line. An incomplete last line, left by a killed process, is ignored.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().split("\n")
    if not is_log(lines[0]):
        raise DatabaseError(f"{path}, line 1: not a log of trials; expected a file written by `tvm-tiling tune --log`")
    version = plain_json(lines[0]).get("version")
    if version != VERSION:
        raise DatabaseError(f"{path} has {other_version(version, (VERSION,), 'start a new log')}")
    found = []
    for number, line in enumerate(lines[1:-1], start=2):
        try:
            found.append(Trial.from_dict(plain_json(line)))
        except (ValueError, KeyError, TypeError, TilingError) as error:
            accepted = "expected a file written by `tvm-tiling tune --log`"
            raise DatabaseError(f"{path}, line {number}: invalid trial ({first_line(error)}); {accepted}") from None
    return found
