"""The page that compares a model with a baseline: the speedup, and the operators that cause the difference."""

from __future__ import annotations

from collections.abc import Sequence

from ..figures import column, percent, quantity, seconds, size
from ..model.report import nodes_text
from ..other_work import doubt
from .bars import Bar, bars
from .decisions import Row
from .machine import machine_table
from .markup import Html, breakable, join, tag
from .page import Cell, Section, Tile, page, side_by_side, table, text
from .plot import Axis, Series, plot
from .timed_model import TimedModel, workload_of, workload_text
from .versus import Both, Versus, differing_choices, differing_machines, matched

MOST_BARS = 20
NODES_SHOWN = 3
SIDES = ("subject", "baseline")


def versus_page(versus: Versus) -> str:
    """Return the whole page."""
    operators = matched(versus.subject.report.operators, versus.baseline.report.operators)
    sections = [
        Section("What makes the difference", _differences(operators)),
        Section("Time of each operator", _times(operators)),
        Section("Every operator", _operators(operators)),
        Section("Decisions that differ", _decisions(operators)),
        Section("Machines", _machines(versus)),
    ]
    names = [timed.name for timed in (versus.subject, versus.baseline)]
    title = f"{names[0]} beside {names[1]}" if names[0] != names[1] else f"{names[0]}: two runs"
    return page(title, _notes(versus), _tiles(versus), sections, _doubts(versus))


def _notes(versus: Versus) -> list[str]:
    pairs = versus.paired
    if pairs is not None:
        how = f"Paired runs, {pairs['pairs']} pairs: the speedup is the median of the pairs' ratios."
    else:
        how = "Measured one after the other, not in paired runs: changes of the machine's load affect the difference."
    return [f"Subject: {versus.subject.name}. Baseline: {versus.baseline.name}. {how}"]


def _doubts(versus: Versus) -> list[str]:
    found = []
    for name, timed in zip(SIDES, (versus.subject, versus.baseline), strict=True):
        if said := doubt(timed.report.others):
            found.append(f"{name.capitalize()}: {said}")
    if (versus.paired or {}).get("doubtful"):
        found.append("The speedup is doubtful: other work kept threads off their cores in more than half of the pairs.")
    ours, theirs = versus.subject.machine, versus.baseline.machine
    if any(ours.get(name) != theirs.get(name) for name in ("cpu", "cores")):
        found.append("Subject and baseline were measured on different processors or numbers of cores.")
    return found


def _tiles(versus: Versus) -> list[Tile]:
    found = []
    if versus.speedup is not None:
        spread = f", spread {versus.paired['spread']:.2f}" if versus.paired is not None else ""
        found.append(Tile("speedup", f"{versus.speedup:.2f}", f"time of the baseline over the subject's{spread}"))
    for name, timed in zip(SIDES, (versus.subject, versus.baseline), strict=True):
        if timed.report.seconds is not None:
            spread = (
                "" if timed.spread is None else f"± {seconds(timed.spread / 2)}, {quantity(timed.runs or 0, 'run')}"
            )
            found.append(Tile(f"latency, {name}", seconds(timed.report.seconds), spread))
    for name, timed in zip(SIDES, (versus.subject, versus.baseline), strict=True):
        found.append(Tile(f"memory, {name}", size(timed.report.memory.total), str(timed.report.precision.precision)))
    return found


def _label(both: Both) -> str:
    record = both.record
    return nodes_text(record.nodes, 1) if record.nodes else workload_text(workload_of(record)) or record.name


def _differences(operators: Sequence[Both]) -> Html | None:
    """Bars of time saved and lost, largest first."""
    shown = [(n, both) for n, both in enumerate(operators, start=1) if both.saved][:MOST_BARS]
    if not shown:
        return None
    rows = [
        Bar(
            f"{n}  {_label(both)}",
            [(0 if both.saved > 0 else 1, abs(both.saved))],
            f"{'−' if both.saved > 0 else '+'}{seconds(abs(both.saved))}",
            hover=both.record.name,
        )
        for n, both in shown
    ]
    gained = sum(both.saved for both in operators if both.saved > 0)
    lost = -sum(both.saved for both in operators if both.saved < 0)
    note = text(f"Per run, the subject saves {seconds(gained)} in some operators and loses {seconds(lost)} in others.")
    series = ("subject is faster", "subject is slower")
    return join([note, bars("Difference of the measured times of a run, largest first", series, rows)])


def _times(operators: Sequence[Both]) -> Html | None:
    points = [
        (n, both, theirs, ours)
        for n, both in enumerate(operators, start=1)
        for ours, theirs in (both.seconds,)
        if ours and theirs
    ]
    if not points:
        return None
    values = [value for *_, b, s in points for value in (b, s)]
    ends = min(values), max(values)
    equal = Series("equal", [(end, end) for end in ends], line=True, dots=False, dashed=True)
    hover = [f"{n}: {_label(both)}: {seconds(s)}, baseline {seconds(b)}" for n, both, b, s in points]
    spots = Series("operators", [(b, s) for *_, b, s in points], hover=hover, labels=[str(n) for n, *_ in points])
    x, y = Axis("baseline", log=True, unit="s"), Axis("subject", log=True, unit="s")
    return plot("Below the line the subject is faster", x, y, [spots, equal])


def _operators(operators: Sequence[Both]) -> Html:
    times = [time for both in operators for time in both.seconds]
    ours, our_cells = column("subject", [both.seconds[0] for both in operators], "s", beside=times)
    theirs, their_cells = column("baseline", [both.seconds[1] for both in operators], "s", beside=times)
    saved, saved_cells = column("difference", [-both.saved for both in operators], "s", beside=times)
    total = sum(both.seconds[1] or 0.0 for both in operators)
    rows = []
    for place, both in enumerate(operators):
        forms = [record.form or record.kind if record else "–" for record in (both.subject, both.baseline)]
        kind = "won" if both.saved > 0 else "lost" if both.saved < 0 else ""
        rows.append(
            (
                place + 1,
                Cell(_named(both), "name", ", ".join(both.record.nodes)),
                Cell(workload_text(workload_of(both.record)), "sizes"),
                forms[0],
                forms[1],
                our_cells[place],
                their_cells[place],
                Cell(saved_cells[place], kind),
                percent(both.saved / total) if total else "–",
                _ratio(both),
            )
        )
    first = ("#", "operator", "sizes", "algorithm, subject", "algorithm, baseline")
    return table((*first, ours, theirs, saved, "saved of the whole", "speedup"), rows)


def _ratio(both: Both) -> str:
    ours, theirs = both.seconds
    return f"{theirs / ours:.2f}" if ours and theirs else "–"


def _named(both: Both) -> Html:
    record = both.record
    only = "" if both.subject and both.baseline else f" (only {SIDES[0] if both.subject else SIDES[1]})"
    if not record.nodes:
        return join([breakable(record.name), only])
    name = tag("span", breakable(record.name), class_="faint")
    return join([breakable(nodes_text(record.nodes, NODES_SHOWN)), only, tag("br"), name])


def _decisions(operators: Sequence[Both]) -> Html | None:
    rows: list[Row] = []
    for n, both in enumerate(operators, start=1):
        label = f"{n}  {_label(both)}"
        for choice, ours, theirs in differing_choices(both):
            rows.append((label, choice, ours, theirs))
            label = ""
    return table(("operator", "choice", *SIDES), rows) if rows else None


def _machines(versus: Versus) -> Html:
    differing = differing_machines(versus)
    found = text("Processor, versions and commit are the same for both.")
    if differing:
        found = table(
            ("property", *SIDES), [(what, breakable(ours), breakable(theirs)) for what, ours, theirs in differing]
        )
    sides = (_machine(name, timed) for name, timed in zip(SIDES, (versus.subject, versus.baseline), strict=True))
    return join([found, side_by_side(*sides)])


def _machine(name: str, timed: TimedModel) -> Html:
    return tag("div", tag("h3", name.capitalize()), machine_table(timed.machine, timed.peak))
