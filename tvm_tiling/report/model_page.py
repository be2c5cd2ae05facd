"""The page of a model on a CPU: where its time goes, what was predicted, how near the roofline it is, and each decision
with its reasons."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..model.precision.record import FLOAT32
from ..model.report import MULTIPLYING, OperatorRecord, nodes_text
from .bars import Bar, bars
from .decisions import kept_body
from .figures import percent, scaled, seconds, size
from .machine import machine_table
from .markup import Html, join, tag
from .page import Cell, Section, Tile, folded, page, side_by_side, table, text
from .plot import Axis, Series, plot, roofs_of
from .timed_model import TimedModel, workload_of, workload_text

MOST_BARS = 25
MOST_NODES = 12  # that a table or a hint names
KINDS = (*MULTIPLYING, "other", "runtime")


def model_page(timed: TimedModel) -> str:
    """The whole page."""
    sections = [
        Section("Where the time goes", _where(timed)),
        Section("Predicted against measured", _predicted(timed)),
        Section("Roofline", _roofline(timed)),
        Section("Forms compared", _forms(timed.report.operators)),
        Section("Memory and traffic", _memory(timed)),
        Section("Every operator", _operators(timed)),
        Section("Decisions and reasons", _decisions(timed.report.operators)),
        Section("Machine", machine_table(timed.machine, timed.peak)),
    ]
    cpu = timed.machine.get("cpu") or "this machine"
    notes = [f"On {cpu}, {timed.machine.get('cores', '?')} cores."]
    if timed.report.precision != FLOAT32:
        notes += [line.strip() for line in str(timed.report.precision).splitlines()]
    return page(timed.name, notes, _tiles(timed), sections)


def _time(operator: OperatorRecord) -> float:
    """What an operator takes: measured, or as predicted where nothing was measured."""
    return operator.measured_seconds or operator.predicted_seconds or 0.0


def _tiles(timed: TimedModel) -> list[Tile]:
    report = timed.report
    flops = sum(o.flops for o in report.operators)
    found = []
    if report.seconds is not None:
        spread = "" if timed.spread is None else f"± {seconds(timed.spread / 2)}, {timed.runs} runs"
        found.append(Tile("a run, median", seconds(report.seconds), spread))
        if timed.latency is not None:
            tail = f"p99 {seconds(timed.latency['p99'])}; {scaled(timed.latency['throughput'], 'runs/s')}"
            found.append(Tile("a run, p90", seconds(timed.latency["p90"]), tail))
        peak = timed.peak["gflops"] * 1e9 if timed.peak else None
        fewer = "; Winograd does fewer" if any(o.form == "winograd" for o in report.operators) else ""
        share = "" if peak is None else f"{percent(flops / report.seconds / peak)} of the peak{fewer}"
        found.append(Tile("speed", scaled(flops / report.seconds, "op/s"), share))
    rival = timed.rival or {}
    if rival.get("ratio"):
        found.append(Tile("onnxruntime", f"{rival['ratio']:.2f} ×", "its time beside ours, in turns"))
    if report.outside is not None:
        found.append(Tile("outside products", percent(report.outside), "of the time"))
    calls = sum(o.calls for o in report.operators)
    found.append(Tile("operators", str(calls), f"{len(report.operators)} kinds, {scaled(flops, 'op')} a run"))
    found.append(Tile("memory", size(report.memory.total), f"activations {size(report.memory.activations)}"))
    if report.compile_seconds:
        found.append(Tile("compiled in", seconds(report.compile_seconds)))
    return found


def _where(timed: TimedModel) -> Html:
    """Time by form, then by operator."""
    operators = [o for o in timed.report.operators if _time(o)]
    total = sum(_time(o) for o in operators) or 1.0
    kinds = [kind for kind in KINDS if any(o.kind == kind for o in operators)]
    forms: dict[tuple[str, str], float] = {}
    for o in operators:
        forms[o.kind, o.form or o.kind] = forms.get((o.kind, o.form or o.kind), 0.0) + _time(o)
    by_form = [
        Bar(form if form == kind else f"{form} ({kind})", [(kinds.index(kind), spent)], _share(spent, total))
        for (kind, form), spent in sorted(forms.items(), key=lambda item: -item[1])
    ]
    shown, rest = operators[:MOST_BARS], operators[MOST_BARS:]
    by_operator = [
        Bar(_bar_name(o), [(kinds.index(o.kind), _time(o))], _share(_time(o), total), hover=_told(o)) for o in shown
    ]
    if rest:
        spent = [(kinds.index(kind), sum(_time(o) for o in rest if o.kind == kind)) for kind in kinds]
        by_operator.append(Bar(f"{len(rest)} more", spent, _share(sum(_time(o) for o in rest), total)))
    measured = "Predicted; nothing was measured."
    if timed.report.seconds is not None:
        measured = f"Timed one by one they take {seconds(total)} together, a run {seconds(timed.report.seconds)}."
    note = text(measured, "All calls of an operator in one run are one bar.")
    return join([note, bars("By form", kinds, by_form), bars("By operator, the longest first", kinds, by_operator)])


def _share(spent: float, total: float) -> str:
    return f"{seconds(spent)}, {percent(spent / total)}"


def _label(operator: OperatorRecord) -> str:
    calls = f", {operator.calls} calls" if operator.calls > 1 else ""
    return f"{workload_text(workload_of(operator)) or operator.name}{calls}"


def _bar_name(operator: OperatorRecord) -> str:
    """The operator's first node, or else its sizes."""
    if not operator.nodes:
        return _label(operator)
    return nodes_text(operator.nodes, 1)


def _told(operator: OperatorRecord) -> str:
    nodes = f" Nodes: {nodes_text(operator.nodes, MOST_NODES)}." if operator.nodes else ""
    return f"{operator.name}: {operator.form or operator.kind}, {_label(operator)}. {operator.why}{nodes}".strip()


def _predicted(timed: TimedModel) -> Html | None:
    pairs = [
        (o, o.predicted_seconds, o.measured_seconds)
        for o in timed.report.operators
        if o.predicted_seconds and o.measured_seconds
    ]
    if not pairs:
        return None
    kinds = [kind for kind in KINDS if any(o.kind == kind for o, _, _ in pairs)]
    ends = [min(min(p, m) for _, p, m in pairs), max(max(p, m) for _, p, m in pairs)]
    equal = Series("equal", [(end, end) for end in ends], line=True, dots=False, dashed=True)
    spots = [
        Series(
            kind,
            [(p, m) for o, p, m in pairs if o.kind == kind],
            hover=[
                f"{_label(o)}: {seconds(p)} predicted, {seconds(m)} measured" for o, p, m in pairs if o.kind == kind
            ],
        )
        for kind in kinds
    ]
    drawn = plot(
        "Time of each operator",
        Axis("predicted", log=True, unit="s"),
        Axis("measured", log=True, unit="s"),
        [*spots, equal],
    )
    ratios = [m / p for _, p, m in pairs]
    off = statistics.median(abs(math.log2(ratio)) for ratio in ratios)
    predicted, measured = sum(p for _, p, _ in pairs), sum(m for _, _, m in pairs)
    rows = [
        (Cell(_label(o), "name"), o.form or "", seconds(p), seconds(m), f"{m / p:.2f}")
        for o, p, m in sorted(pairs, key=lambda pair: -abs(math.log(pair[2] / pair[1])))[:8]
    ]
    furthest = table(("furthest off", "form", "predicted", "measured", "ratio"), rows)
    note = text(
        f"Together {seconds(measured)} measured where {seconds(predicted)} was predicted, {measured / predicted:.2f}",
        f"times as much. Half of the operators are within a factor of {2**off:.2f} of their prediction.",
    )
    return join([note, side_by_side(drawn, furthest)])


def _roofline(timed: TimedModel) -> Html | None:
    """Speed over operations for each byte that has to be moved once."""
    spots: dict[str, list[tuple[float, float, str]]] = {}
    for o in timed.report.operators:
        workload = workload_of(o)
        if workload is not None and o.measured_seconds:
            speed = o.flops / o.measured_seconds
            hover = f"{_label(o)}: {scaled(speed, 'op/s')}"
            spots.setdefault(o.form or o.kind, []).append((workload.flops / workload.bytes, speed, hover))
    if timed.peak is None or not spots:
        return None
    intensities = [x for points in spots.values() for x, _, _ in points]
    roofs = roofs_of(timed.peak, timed.peak["gflops"], min(intensities) / 2, max(intensities) * 2)
    series = [
        *(
            Series(form, [(x, y) for x, y, _ in points], hover=[t for _, _, t in points])
            for form, points in spots.items()
        ),
        *roofs,
    ]
    x, y = Axis("operations per byte, each byte moved once", log=True), Axis("operations per second", log=True)
    note = text(
        "The roofs are measured here: multiply-adds in registers, and a copy at each level of memory.",
        "Operations are those of the plain sums: Winograd's form does fewer, and may lie above the roof."
        if "winograd" in spots
        else "",
    )
    return join([note, plot("Convolutions and products", x, y, series)])


def _forms(operators: Sequence[OperatorRecord]) -> Html | None:
    """The predicted time of each form that was compared; the chosen one in bold."""
    compared = [o for o in operators if o.decision and len(o.decision.get("candidates") or ()) > 1]
    if not compared:
        return None
    forms = list(dict.fromkeys(form for o in compared if o.decision for form, _, _ in o.decision["candidates"]))
    rows = []
    for o in compared:
        found = {form: (time, why) for form, time, why in (o.decision or {})["candidates"]}
        cells = []
        for form in forms:
            time, why = found.get(form, (None, ""))
            cells.append(Cell(seconds(time), "chosen" if form == o.form else "", why))
        rows.append((Cell(_label(o), "name"), *cells))
    note = text("Predicted time of one call in each form; the chosen one is bold, a dash is a form that was refused.")
    return join([note, table(("operator", *forms), rows)])


def _memory(timed: TimedModel) -> Html:
    memory = timed.report.memory
    parts = {"activations": memory.activations, "packed weights": memory.weights, "other constants": memory.constants}
    held = bars("Held while it runs", ["bytes"], [Bar(name, [(0, float(n))], size(n)) for name, n in parts.items()])
    moved = []
    for o in timed.report.operators:
        workload = workload_of(o)
        if workload is not None:
            moved.append((workload.bytes * o.calls, o))
    if not moved:
        return held
    moved.sort(key=lambda item: -item[0])
    rows = []
    for least, o in moved[:10]:
        rate = f", {scaled(least / o.measured_seconds, 'B/s')}" if o.measured_seconds else ""
        rows.append(Bar(_label(o), [(0, float(least))], f"{size(least)}{rate}"))
    title = f"Least traffic of a run, {size(sum(least for least, _ in moved))}; the ten largest"
    return side_by_side(held, bars(title, ["bytes"], rows))


def _operators(timed: TimedModel) -> Html:
    report = timed.report
    headings = ("operator", "nodes", "sizes", "form", "calls", "Gop", "predicted", "measured", "share", "Gop/s", "why")
    rows = [
        (
            Cell(o.name, "name"),
            Cell(nodes_text(o.nodes, MOST_NODES), "name"),
            workload_text(workload_of(o)),
            o.form or o.kind,
            o.calls,
            f"{o.flops / 1e9:.3g}" if o.flops else "",
            seconds(o.predicted_seconds),
            seconds(o.measured_seconds),
            percent(report.share(o)),
            f"{o.flops / o.measured_seconds / 1e9:.0f}" if o.flops and o.measured_seconds else "",
            o.why,
        )
        for o in report.operators
    ]
    return table(headings, rows)


def _decisions(operators: Sequence[OperatorRecord]) -> Html | None:
    """One line for each decision, which opens."""
    decided = [o for o in operators if o.decision]
    parts = []
    for o in decided:
        named = " — ".join(filter(None, (o.name, nodes_text(o.nodes))))
        line = join([tag("strong", o.form or o.kind), f" {_label(o)} ", tag("span", named, class_="faint")])
        parts.append(folded(line, kept_body(o.decision or {})))
    return join([text("Each line opens; on paper all of them are open."), *parts]) if parts else None
