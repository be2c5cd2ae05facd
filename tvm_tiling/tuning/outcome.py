"""The result of a search, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..decide.configs.config import Config
from ..figures import scaled, times
from ..measure import DOUBTFUL
from ..sizes import Range
from ..workload import ConvWorkload, GemmWorkload
from .shapes.row_range import RowsMeasured
from .trial import Trial

FORMAT, VERSION = "tvm-tiling tuning", 1


@dataclass(frozen=True, kw_only=True)
class TuneReport:
    """The search for one operator, `workload` on `target`.

    Costs are in `unit`: "s", or "cycles" on an accelerator. `cost_before` is that of the analytical decision and
    `cost_after` that of `best`, None if nothing could be measured; `least` is a lower bound for the algorithm of the
    best configuration at the clock in the machine description. On a CPU, before and after are timed alternately in one
    session; `disturbed` is the fraction of it in which other work kept threads off their cores, or None if they were
    measured at different times, and `apart` may say why. `disturbed_trials` counts trials of which more than half of
    the samples were disturbed.

    For symbolic `rows`, costs are geometric means over sizes, and `over_rows` compares the best configuration found
    with the analytical decision at each of them; `best` is that configuration if it is faster beyond noise.

    `trials` are those of this session, `earlier` those that the database had from earlier ones; `log` has each trial of
    this session. `failures` counts their reasons. `stopped` is why the search ended, `seconds` its time by phase.
    """

    workload: GemmWorkload | ConvWorkload
    target: str
    unit: str
    trials: int
    earlier: int
    failures: tuple[tuple[str, int], ...]
    best: Config | None
    cost_before: float | None
    cost_after: float | None
    least: float
    stopped: str
    seconds: tuple[tuple[str, float], ...]
    disturbed: float | None = None
    disturbed_trials: int = 0
    apart: str = ""
    log: tuple[Trial, ...] = ()
    rows: Range | None = None
    over_rows: RowsMeasured | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the machine was too busy for before and after to be reliable."""
        return self.disturbed is not None and self.disturbed > DOUBTFUL

    @property
    def gain(self) -> float | None:
        """Cost before over cost after."""
        if self.cost_before is None or self.cost_after is None:
            return None
        return self.cost_before / self.cost_after

    @property
    def roofline(self) -> float | None:
        """Lower bound over the cost of the best configuration."""
        return None if self.cost_after is None else self.least / self.cost_after

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "workload": self.workload.to_dict(),
            "target": self.target,
            "unit": self.unit,
            "trials": self.trials,
            "earlier": self.earlier,
            "failures": dict(self.failures),
            "best": None if self.best is None else self.best.to_dict(),
            "cost_before": self.cost_before,
            "cost_after": self.cost_after,
            "gain": self.gain,
            "roofline": self.roofline,
            "stopped": self.stopped,
            "seconds": dict(self.seconds),
            "disturbed": self.disturbed,
            "doubtful": self.doubtful,
            "disturbed_trials": self.disturbed_trials,
            "apart": self.apart,
            "rows": None if self.rows is None else [self.rows.first, self.rows.last],
            "over_rows": None if self.over_rows is None else self.over_rows.to_dict(),
            "log": [trial.to_dict() for trial in self.log],
        }

    def __str__(self) -> str:
        rows = [
            ("trials", f"{self.trials}" + (f", {self.earlier} more in earlier sessions" if self.earlier else "")),
            ("stopped", self.stopped),
            ("analytical configuration", cost_text(self.cost_before, self.unit)),
            ("best configuration", f"{cost_text(self.cost_after, self.unit)}{_gain(self)}"),
            ("", self.best.description if self.best is not None else "none"),
            *([("rows", _rows_text(self))] if self.rows is not None else []),
            *([("apart", f"before and after were measured at different times: {self.apart}")] if self.apart else []),
            *([("busy", busy)] if (busy := busy_text([self])) else []),
            *(("failed", f"{times(count)}: {reason}") for reason, count in self.failures),
            ("seconds", ", ".join(f"{phase} {seconds:.1f}" for phase, seconds in self.seconds)),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """One operator of a model: the number of calls per run, and its search; None if there was nothing to gain."""

    name: str
    calls: int
    report: TuneReport


@dataclass(frozen=True, kw_only=True)
class ModelTuneReport:
    """The searches for the operators of a model, those with the largest share of the time first. Costs are as in
    TuneReport, for all calls in one run."""

    tasks: tuple[TaskReport, ...]
    stopped: str
    seconds: tuple[tuple[str, float], ...]

    @property
    def trials(self) -> int:
        """Number of configurations measured in this session."""
        return sum(task.report.trials for task in self.tasks)

    @property
    def cost_before(self) -> float:
        """Total cost of the measured operators with the analytical decisions."""
        return sum(task.calls * (task.report.cost_before or 0.0) for task in self.tasks)

    @property
    def cost_after(self) -> float:
        """Total cost of the measured operators with their best configurations."""
        return sum(task.calls * (task.report.cost_after or 0.0) for task in self.tasks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "trials": self.trials,
            "cost_before": self.cost_before,
            "cost_after": self.cost_after,
            "stopped": self.stopped,
            "seconds": dict(self.seconds),
            "tasks": [{"name": t.name, "calls": t.calls, **t.report.to_dict()} for t in self.tasks],
        }

    def __str__(self) -> str:
        unit = self.tasks[0].report.unit if self.tasks else "s"
        rows = [("operator", "calls", "trials", "before", "after", "gain")]
        for task in self.tasks:
            found = task.report
            gain = "-" if found.gain is None else f"{found.gain:.2f}"
            costs = cost_text(found.cost_before, unit), cost_text(found.cost_after, unit)
            rows.append((task.name, str(task.calls), str(found.trials), *costs, gain))
        total = cost_text(self.cost_before, unit), cost_text(self.cost_after, unit)
        gain = f"{self.cost_before / self.cost_after:.2f}" if self.cost_after else "-"
        rows.append(("all calls", "", str(self.trials), *total, gain))
        failed: Counter[str] = Counter()
        for task in self.tasks:
            failed.update(dict(task.report.failures))
        busy = busy_text([task.report for task in self.tasks])
        return "\n".join(
            [
                *_columns(rows),
                *(f"failed {times(count)}: {reason}" for reason, count in failed.most_common()),
                *([f"busy: {busy}"] if busy else []),
                f"stopped: {self.stopped}",
            ]
        )


def busy_text(reports: Sequence[TuneReport]) -> str:
    """Return what a busy machine makes doubtful, or an empty string if it was not busy."""
    doubtful = sum(report.doubtful for report in reports)
    disturbed, trials = (sum(getattr(report, name) for report in reports) for name in ("disturbed_trials", "trials"))
    parts = []
    if doubtful:
        of = "" if len(reports) == 1 else f" of {doubtful} operators"
        parts.append(f"before and after{of} are doubtful, because other work kept threads off their cores")
    if disturbed:
        parts.append(f"disturbed trials: {disturbed} of {max(trials, disturbed)}")
    return "; ".join([*parts, "repeat this on an idle machine"]) if parts else ""


def cost_text(cost: float | None, unit: str) -> str:
    """Return a cost in readable form."""
    if cost is None:
        return "not measured"
    return scaled(cost, "s", 4) if unit == "s" else f"{cost:.0f} {unit}"


def _gain(report: TuneReport) -> str:
    if report.gain is None or report.roofline is None:
        return ""
    faster = " at the described clock, which is exceeded" if report.roofline > 1 else ""
    return f", speedup {report.gain:.2f}, {report.roofline:.0%} of the roofline{faster}"


def _rows_text(report: TuneReport) -> str:
    """Return the result over the range of rows as text."""
    found = report.over_rows
    if found is None:
        return f"{report.rows}: nothing was better than the analytical configuration, which is kept"
    sizes = ", ".join(f"{gain:.2f} ({rows})" for rows, gain in zip(found.sizes, found.gains, strict=True))
    stays = "" if found.won else "; the analytical configuration is kept"
    return f"{report.rows}: {found}, {found.spread:.1%} either way{stays}; by rows {sizes}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
