"""The page of a search: best cost so far over trials, predicted and measured costs, failures and their reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..figures import count, percent, seconds
from ..tuning import outcome, trial
from ..tuning.trial import Trial
from .markup import Html
from .page import Cell, Section, Tile, page, side_by_side, table, text
from .plot import Axis, Series, plot

FORMATS = {outcome.FORMAT: (outcome.VERSION,), trial.FORMAT: (trial.VERSION,)}
MOST_PLOTS = 12
WIDE = 8  # ratio of the largest to the smallest cost from which the axis is logarithmic
BUSY = (
    "Doubtful: other work kept threads off their cores while the times before and after tuning were measured; repeat "
    "the measurement on an idle machine."
)

Record = Mapping[str, Any]


def tuning_page(result: Record, title: str = "") -> str:
    """Return the whole page for a report of tune() as plain values, or for a log of trials."""
    operators = operators_of(result)
    trials = [record for own in operators for record in own["log"]]
    notes = [f"Stopped: {result['stopped']}."] if "stopped" in result else []
    doubts = [BUSY] if any(own.get("doubtful") for own in operators) else []
    sections = [
        Section("Convergence", _plots(operators)),
        Section("Operators", _summary(operators) if len(operators) > 1 else None),
        Section("Failures", _failures(trials)),
        Section("Every trial", _trials(trials, several=len(operators) > 1)),
    ]
    return page(title or "Tuning", notes, _tiles(result, operators, trials), sections, doubts)


def operators_of(result: Record) -> list[Record]:
    """Return the operators of a result, with their Trials under "log". Raises KeyError, TypeError or DatabaseError if
    it is not a result."""
    if result["format"] == trial.FORMAT:
        trials = [Trial.from_dict(record) for record in result["log"]]
        names = dict.fromkeys(own.operator for own in trials)
        return [{"name": name, "log": [own for own in trials if own.operator == name]} for name in names]
    found: list[Record] = []
    for own in result.get("tasks", [result]):
        log = [Trial.from_dict(record) for record in own["log"]]
        found.append({"name": log[0].operator if log else "", **own, "log": log})
    return found


def cost(value: float | None, unit: str) -> str:
    """Format a cost, or a dash if there is none."""
    if value is None:
        return "–"
    return seconds(value) if unit == "s" else count(round(value))


def _tiles(result: Record, operators: Sequence[Record], trials: Sequence[Trial]) -> list[Tile]:
    failed = sum(record.cost is None for record in trials)
    found = [Tile("trials", count(len(trials)), f"{failed} failed")]
    before, after = result.get("cost_before"), result.get("cost_after")
    if before and after:
        unit = operators[0].get("unit", "s")
        roofline = result.get("roofline")
        found.append(Tile("before", cost(before, unit), "the analytical configuration"))
        found.append(
            Tile("after", cost(after, unit), "" if roofline is None else f"{percent(roofline)} of the roofline")
        )
        found.append(Tile("speedup", f"{before / after:.2f}", "before over after"))
    return found


def _plots(operators: Sequence[Record]) -> Html | None:
    drawn = [_convergence(own["name"], own["log"]) for own in operators[:MOST_PLOTS]]
    return side_by_side(*drawn) if any(drawn) else None


def _convergence(name: str, trials: Sequence[Trial]) -> Html | None:
    """Plot the best cost so far as a line, with the costs of trials and their predictions."""
    measured = [(own, own.cost) for own in trials if own.cost is not None]
    if not measured:
        return None
    unit = measured[0][0].unit
    best = [(float(own.number), own.best) for own in trials if own.best is not None]
    costs = [(float(own.number), found) for own, found in measured]
    predicted = [(float(own.number), own.predicted) for own, _ in measured if own.predicted is not None]
    told = [f"trial {own.number}: {cost(found, unit)} {own.config or ''}" for own, found in measured]
    series = [
        Series("best so far", best, line=True, dots=False),
        Series("measured", costs, hover=told),
        Series("predicted", predicted, hover=[f"predicted {cost(found, unit)}" for _, found in predicted]),
    ]
    values = [y for _, y in costs + predicted]
    wide = max(values) > WIDE * min(values)
    up = Axis("cost" if unit == "s" else unit, log=wide, unit="s" if unit == "s" else "")
    return plot(name, Axis("trial"), up, series)


def _summary(operators: Sequence[Record]) -> Html | None:
    rows = []
    for own in operators:
        unit, before, after = own.get("unit", "s"), own.get("cost_before"), own.get("cost_after")
        gain = f"{before / after:.2f}" if before and after else "–"
        calls = own.get("calls", 1)
        rows.append((own["name"], calls, len(own["log"]), cost(before, unit), cost(after, unit), gain))
    return table(("operator", "calls", "trials", "before", "after", "speedup"), rows)


def _failures(trials: Sequence[Trial]) -> Html | None:
    reasons = Counter(record.reason for record in trials if record.cost is None)
    return (
        table(("times", "reason"), [(number, reason) for reason, number in reasons.most_common()]) if reasons else None
    )


def _trials(trials: Sequence[Trial], *, several: bool) -> Html | None:
    if not trials:
        return text("No trials in this session.")
    headings = (
        "trial",
        *(["operator"] if several else []),
        "predicted",
        "measured",
        "best so far",
        "disturbed",
        "configuration, or reason of the failure",
    )
    rows = []
    for record in trials:
        unit = record.unit
        failed = record.cost is None
        what = Cell(str(record.reason), "lost") if failed else record.config
        named = [record.operator] if several else []
        costs = [cost(getattr(record, name), unit) for name in ("predicted", "cost", "best")]
        rows.append((record.number, *named, *costs, percent(record.disturbed, 0), what))
    return table(headings, rows)
