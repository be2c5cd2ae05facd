"""Two results of a model compared operator by operator: operators are matched by the model's nodes, or else by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..model.report import OperatorRecord
from .timed_model import TimedModel, timed_from_dict

FORMAT, VERSION = "tvm-tiling-versus", 1


@dataclass(frozen=True, kw_only=True)
class Versus:
    """A model and a `baseline`: another build, other options or another machine. `paired`: paired runs of both, a
    Paired as plain values with the baseline as the peer; None if they were measured one after the other."""

    subject: TimedModel
    baseline: TimedModel
    paired: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "subject": self.subject.to_dict(),
            "baseline": self.baseline.to_dict(),
            "paired": self.paired,
        }

    @property
    def speedup(self) -> float | None:
        """The baseline's time over the subject's: the median of the pairs, or the ratio of the medians; None if
        unknown."""
        if self.paired is not None:
            return self.paired["ratio"]
        ours, theirs = self.subject.report.seconds, self.baseline.report.seconds
        return theirs / ours if ours and theirs else None


def versus_from_dict(plain: Mapping[str, Any], where: str) -> Versus:
    """Return the object from what `to_dict` wrote. Raises KeyError or ModelFormatError for anything else."""
    return Versus(
        subject=timed_from_dict(plain["subject"], where),
        baseline=timed_from_dict(plain["baseline"], where),
        paired=plain["paired"],
    )


@dataclass(frozen=True)
class Both:
    """An operator of the subject and the matching one of the baseline; None if only one of them has it."""

    subject: OperatorRecord | None
    baseline: OperatorRecord | None

    @property
    def seconds(self) -> tuple[float | None, float | None]:
        """Measured time of the subject and of the baseline; None where it is missing or was not measured."""
        ours, theirs = self.subject, self.baseline
        return ours.measured_seconds if ours else None, theirs.measured_seconds if theirs else None

    @property
    def saved(self) -> float:
        """Seconds per run by which the subject is faster than the baseline; the whole time if only one of them has
        it."""
        ours, theirs = self.seconds
        return (theirs or 0.0) - (ours or 0.0)

    @property
    def record(self) -> OperatorRecord:
        """The subject's operator, or else the baseline's."""
        found = self.subject or self.baseline
        assert found is not None, "one of them has it"
        return found


def matched(subject: Sequence[OperatorRecord], baseline: Sequence[OperatorRecord]) -> list[Both]:
    """Return all operators of both, largest difference first."""
    left: dict[tuple[Any, ...], list[OperatorRecord]] = {}
    for record in baseline:
        left.setdefault(_key(record), []).append(record)
    found = []
    for record in subject:
        same = left.get(_key(record))
        found.append(Both(record, same.pop(0) if same else None))
    found += [Both(None, record) for records in left.values() for record in records]
    return sorted(found, key=lambda both: -abs(both.saved))


def _key(record: OperatorRecord) -> tuple[Any, ...]:
    return ("nodes", *record.nodes) if record.nodes else ("name", record.name)


def differing_choices(both: Both) -> Iterator[tuple[str, str, str]]:
    """Return (choice, subject's value, baseline's value) of the decisions that differ."""
    ours, theirs = (_choices(record) for record in (both.subject, both.baseline))
    if both.subject is None or both.baseline is None:
        return
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name) != theirs.get(name):
            yield name, ours.get(name, "–"), theirs.get(name, "–")


def _choices(record: OperatorRecord | None) -> dict[str, str]:
    decision = (record.decision if record else None) or {}
    parts = (decision, decision.get("product") or {})
    return {str(name): str(value) for part in parts for name, value, _ in part.get("reasons", ())}


def differing_machines(versus: Versus) -> list[tuple[str, str, str]]:
    """Return (property, subject's value, baseline's value) of processor, cores, versions and commit where they
    differ."""
    ours, theirs = versus.subject.machine, versus.baseline.machine
    found = [(name, str(ours.get(name)), str(theirs.get(name))) for name in ("cpu", "cores", "mcpu", "commit")]
    versions = [machine.get("versions") or {} for machine in (ours, theirs)]
    for package in dict.fromkeys((*versions[0], *versions[1])):
        found.append((package, *(str(each.get(package, "–")) for each in versions)))
    return [row for row in found if row[1] != row[2]]
