"""The report page of a model on a CPU: time per operator, predictions, rooflines, and each decision with its reasons.

Operators are numbered on the page, slowest first; plots refer to them by these numbers.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ..figures import column, percent, quantity, scaled, seconds, size
from ..model.precision.record import FLOAT32
from ..model.report import MULTIPLYING, OperatorRecord, nodes_text
from ..other_work import doubt
from .advice import advice, sentence
from .bars import Bar, bars
from .decisions import kept_body
from .graph_view import graph_view
from .machine import machine_table
from .markup import Html, breakable, join, tag
from .operator_work import executed_flops, peak_of, peak_seconds, type_of
from .page import Cell, Section, Tile, folded, numbered, page, side_by_side, table, text
from .plot import Axis, Series, plot, roofs_of
from .profile_view import operators_view, threads_view
from .timed_model import TimedModel, workload_of, workload_text

MOST_BARS = 25
MOST_NODES = 12  # nodes named in a tooltip
NODES_IN_TABLE = 3
MOST_ROWS = 8  # of a table next to a plot
KINDS = (*MULTIPLYING, "other", "runtime")

Numbered = Sequence[tuple[int, OperatorRecord]]


def model_page(timed: TimedModel) -> str:
    """Return the whole page."""
    operators = list(enumerate(timed.report.operators, start=1))
    sections = [
        Section("Advice", _advice(timed)),
        Section("Where the time goes", _where(timed, operators)),
        *_profile(timed, operators),
        Section("Graph", graph_view(timed.report.graph, {o.name: (n, o) for n, o in operators})),
        Section("Predicted against measured", _predicted(operators)),
        Section("Roofline", _rooflines(timed, operators)),
        Section("Algorithms compared", _algorithms(operators)),
        Section("Memory and traffic", _memory(timed, operators)),
        Section("Every operator", _operators(timed, operators)),
        Section("Decisions and reasons", _decisions(operators)),
        Section("Machine", machine_table(timed.machine, timed.peak)),
    ]
    cpu = timed.machine.get("cpu") or "this machine"
    notes = [f"On {cpu}, {timed.machine.get('cores', '?')} cores."]
    if timed.report.precision != FLOAT32:
        notes += [line.strip() for line in str(timed.report.precision).splitlines()]
    return page(timed.name, notes, _tiles(timed), sections, doubts_of(timed))


def doubts_of(timed: TimedModel) -> list[str]:
    """Return why times are unreliable; empty if nothing was measured or the machine was idle."""
    found = [doubt(timed.report.others)] if timed.report.seconds is not None else []
    if (timed.rival or {}).get("doubtful"):
        found.append(
            "The comparison with onnxruntime is doubtful: other work kept threads off their cores in more than half of "
            "the pairs."
        )
    return [sentence for sentence in found if sentence]


def _profile(timed: TimedModel, operators: Numbered) -> list[Section]:
    """Show the activity of each thread, if a run was profiled."""
    if timed.profile is None:
        return []
    numbers = {o.name: n for n, o in operators}
    return [
        Section("Threads over time", threads_view(timed.profile, numbers)),
        Section("Operators by thread", operators_view(timed.profile, numbers)),
    ]


def _advice(timed: TimedModel) -> Html | None:
    """Show the advice, largest possible gain first."""
    found = advice(timed)
    if not found:
        return None
    note = text(
        "The largest predicted gain first. Gains are upper limits computed from measured times, peaks and bandwidths; "
        "they were not measured. Numbers are those of the operators on this page."
    )
    return join([note, numbered([sentence(each, timed) for each in found])])


def _time(operator: OperatorRecord) -> float:
    """Seconds of an operator: measured, or predicted if nothing was measured."""
    return operator.measured_seconds or operator.predicted_seconds or 0.0


def _tiles(timed: TimedModel) -> list[Tile]:
    report = timed.report
    flops = sum(o.flops for o in report.operators)
    found = []
    if report.seconds is not None:
        spread = "" if timed.spread is None else f"± {seconds(timed.spread / 2)}, {quantity(timed.runs or 0, 'run')}"
        doubtful = " (doubtful)" if doubt(report.others) else ""
        found.append(Tile(f"latency, median{doubtful}", seconds(report.seconds), spread))
        if timed.latency is not None:
            tail = f"p99 {seconds(timed.latency['p99'])}; {scaled(timed.latency['throughput'], 'runs/s')}"
            found.append(Tile("latency, p90", seconds(timed.latency["p90"]), tail))
        found.append(Tile("speed", scaled(flops / report.seconds, "op/s"), "operations as the model defines them"))
        least = [peak_seconds(o, timed.peak) for o in report.operators if o.flops]
        if least and None not in least:
            share = sum(each or 0.0 for each in least) / report.seconds
            fewer = "; Winograd's are fewer" if any(o.form == "winograd" for o in report.operators) else ""
            found.append(Tile("of the peak", percent(share), f"of multiply-adds that are executed{fewer}"))
    rival = timed.rival or {}
    if rival.get("ratio"):
        doubtful = " (doubtful)" if rival.get("doubtful") else ""
        ratio = f"{rival['ratio']:.2f}"
        found.append(Tile(f"speedup{doubtful}", ratio, "time of onnxruntime over ours, paired runs"))
    if report.outside is not None:
        found.append(Tile("other operators", percent(report.outside), "of the time: no matrix multiplications"))
    calls = sum(o.calls for o in report.operators)
    kinds = quantity(len(report.operators), "kind")
    found.append(Tile("operators", str(calls), f"{kinds}, {scaled(flops, 'op')} per run"))
    found.append(Tile("memory", size(report.memory.total), f"activations {size(report.memory.activations)}"))
    if report.compile_seconds:
        found.append(Tile("compiled in", seconds(report.compile_seconds)))
    return found


def _where(timed: TimedModel, operators: Numbered) -> Html:
    """Show the time by algorithm, then by operator."""
    timing = [(number, o) for number, o in operators if _time(o)]
    total = sum(_time(o) for _, o in timing) or 1.0
    kinds = [kind for kind in KINDS if any(o.kind == kind for _, o in timing)]
    algorithms: dict[tuple[str, str], float] = {}
    for _, o in timing:
        algorithms[o.kind, o.form or o.kind] = algorithms.get((o.kind, o.form or o.kind), 0.0) + _time(o)
    by_algorithm = [
        Bar(form if form == kind else f"{form} ({kind})", [(kinds.index(kind), spent)], _share(spent, total))
        for (kind, form), spent in sorted(algorithms.items(), key=lambda item: -item[1])
    ]
    shown, rest = timing[:MOST_BARS], timing[MOST_BARS:]
    by_operator = [
        Bar(f"{n}  {_bar_name(o)}", [(kinds.index(o.kind), _time(o))], _share(_time(o), total), hover=_hover(o))
        for n, o in shown
    ]
    if rest:
        spent = [(kinds.index(kind), sum(_time(o) for _, o in rest if o.kind == kind)) for kind in kinds]
        by_operator.append(Bar(f"{len(rest)} more", spent, _share(sum(_time(o) for _, o in rest), total)))
    measured = "Predicted; nothing was measured."
    if timed.report.seconds is not None:
        run = seconds(timed.report.seconds)
        measured = f"Measured one by one, operators take {seconds(total)} in total; a run takes {run}."
    note = text(measured, "A bar covers all calls of an operator in one run.")
    return join(
        [note, bars("By algorithm", kinds, by_algorithm), bars("By operator, slowest first", kinds, by_operator)]
    )


def _share(spent: float, total: float) -> str:
    return f"{seconds(spent)}, {percent(spent / total)}"


def _label(operator: OperatorRecord) -> str:
    calls = f", {operator.calls} calls" if operator.calls > 1 else ""
    return f"{workload_text(workload_of(operator)) or operator.name}{calls}"


def _bar_name(operator: OperatorRecord) -> str:
    """The operator's first node, or its sizes if it has none."""
    if not operator.nodes:
        return _label(operator)
    return nodes_text(operator.nodes, 1)


def _hover(operator: OperatorRecord) -> str:
    nodes = f" Nodes: {nodes_text(operator.nodes, MOST_NODES)}." if operator.nodes else ""
    return f"{operator.name}: {operator.form or operator.kind}, {_label(operator)}. {operator.why}{nodes}".strip()


def _predicted(operators: Numbered) -> Html | None:
    pairs = [
        (n, o, o.predicted_seconds, o.measured_seconds)
        for n, o in operators
        if o.predicted_seconds and o.measured_seconds
    ]
    if not pairs:
        return None
    kinds = [kind for kind in KINDS if any(o.kind == kind for _, o, _, _ in pairs)]
    ends = [min(min(p, m) for *_, p, m in pairs), max(max(p, m) for *_, p, m in pairs)]
    equal = Series("equal", [(end, end) for end in ends], line=True, dots=False, dashed=True)
    spots = []
    for kind in kinds:
        own = [pair for pair in pairs if pair[1].kind == kind]
        hover = [f"{n}: {_label(o)}: {seconds(p)} predicted, {seconds(m)} measured" for n, o, p, m in own]
        spots.append(
            Series(kind, [(p, m) for *_, p, m in own], hover=hover, labels=[str(number) for number, *_ in own])
        )
    drawn = plot(
        "Time of each operator",
        Axis("predicted", log=True, unit="s"),
        Axis("measured", log=True, unit="s"),
        [*spots, equal],
    )
    ratios = [m / p for *_, p, m in pairs]
    off = statistics.median(abs(math.log2(ratio)) for ratio in ratios)
    predicted, measured = sum(p for *_, p, _ in pairs), sum(m for *_, m in pairs)
    furthest = sorted(pairs, key=lambda pair: -abs(math.log(pair[3] / pair[2])))[:MOST_ROWS]
    both = [time for *_, p, m in furthest for time in (p, m)]
    p_heading, p_cells = column("predicted", [p for *_, p, _ in furthest], "s", beside=both)
    m_heading, m_cells = column("measured", [m for *_, m in furthest], "s", beside=both)
    rows = [
        (n, Cell(_label(o), "sizes"), o.form or "", p, m, f"{o_m / o_p:.2f}")
        for (n, o, o_p, o_m), p, m in zip(furthest, p_cells, m_cells, strict=True)
    ]
    beside = table(("#", "furthest off", "algorithm", p_heading, m_heading, "ratio"), rows)
    note = text(
        f"In total {seconds(measured)} measured and {seconds(predicted)} predicted, a ratio of "
        f"{measured / predicted:.2f}.",
        f"Half of the operators are within a factor of {2**off:.2f} of their prediction.",
    )
    return join([note, side_by_side(drawn, beside)])


def _rooflines(timed: TimedModel, operators: Numbered) -> Html | None:
    """Show a roofline for each operand type."""
    types = dict.fromkeys(type_of(o) for _, o in operators if o.workload is not None)
    drawn = [_roofline(timed, [(n, o) for n, o in operators if type_of(o) == dtype], dtype) for dtype in types]
    if not any(drawn):
        return None
    note = text(
        "The roofs are measured on this machine: multiply-adds in registers, and a copy at each level of memory.",
        "Points count executed multiply-adds, of which Winograd convolutions need fewer."
        if any(o.form == "winograd" for _, o in operators)
        else "",
    )
    return join([note, *drawn])


def _roofline(timed: TimedModel, operators: Numbered, dtype: str) -> Html | None:
    """Executed operations per second over operations per byte, with each byte moved once."""
    arithmetic = peak_of(timed.peak, dtype)
    found = [
        (n, o, executed_flops(o) / o.measured_seconds, executed_flops(o) / (o.calls * workload.bytes))
        for n, o in operators
        if o.measured_seconds and (workload := workload_of(o)) is not None
    ]
    if timed.peak is None or arithmetic is None or not found:
        return None
    intensities = [x for *_, x in found]
    series = []
    for form in dict.fromkeys(o.form or o.kind for _, o, _, _ in found):
        own = [each for each in found if (each[1].form or each[1].kind) == form]
        hover = [f"{n}: {_label(o)}: {scaled(speed, 'op/s')}" for n, o, speed, _ in own]
        labels = [str(n) for n, *_ in own]
        series.append(Series(form, [(x, speed) for *_, speed, x in own], hover=hover, labels=labels))
    roofs = roofs_of(timed.peak, arithmetic / 1e9, min(intensities) / 2, max(intensities) * 2)
    x, y = Axis("operations per byte, each byte moved once", log=True), Axis("executed operations per second", log=True)
    return side_by_side(plot(f"Roofline, {dtype}", x, y, [*series, *roofs]), _beside_roofline(found, arithmetic))


def _beside_roofline(found: Sequence[tuple[int, OperatorRecord, float, float]], arithmetic: float) -> Html:
    """Show the figures of the points as a table."""
    heading, speeds = column("speed", [speed for *_, speed, _ in found], "op/s")
    rows = [
        (n, Cell(_label(o), "sizes"), o.form or o.kind, f"{x:.3g}", cell, percent(speed / arithmetic))
        for (n, o, speed, x), cell in zip(found, speeds, strict=True)
    ]
    return table(("#", "sizes", "algorithm", "op/byte", heading, "of peak"), rows[: 2 * MOST_ROWS])


def _algorithms(operators: Numbered) -> Html | None:
    """Show the predicted time of each algorithm that was compared; the chosen one in bold."""
    compared = [(n, o) for n, o in operators if o.decision and len(o.decision.get("candidates") or ()) > 1]
    if not compared:
        return None
    candidates = [candidate for _, o in compared for candidate in (o.decision or {})["candidates"]]
    forms = list(dict.fromkeys(form for form, time, _ in candidates if time is not None))
    found = [{form: (time, why) for form, time, why in (o.decision or {})["candidates"]} for _, o in compared]
    times = [time for own in found for time, _ in own.values()]
    headings, columns = [], []
    for form in forms:
        heading, cells = column(form, [own.get(form, (None, ""))[0] for own in found], "s", beside=times)
        headings.append(heading)
        columns.append(cells)
    rows = [
        (
            n,
            Cell(_label(o), "sizes"),
            *(
                Cell(cells[row], "chosen" if form == o.form else "", found[row].get(form, (None, ""))[1])
                for form, cells in zip(forms, columns, strict=True)
            ),
        )
        for row, (n, o) in enumerate(compared)
    ]
    note = text(
        "Predicted time of one call. The chosen algorithm is bold; a dash marks an algorithm that does not apply."
    )
    return join([note, table(("#", "operator", *headings), rows)])


def _memory(timed: TimedModel, operators: Numbered) -> Html:
    memory = timed.report.memory
    parts = {"activations": memory.activations, "packed weights": memory.weights, "other constants": memory.constants}
    held = bars("Held during a run", ["bytes"], [Bar(name, [(0, float(n))], size(n)) for name, n in parts.items()])
    moved = []
    for n, o in operators:
        workload = workload_of(o)
        if workload is not None:
            moved.append((workload.bytes * o.calls, n, o))
    if not moved:
        return held
    moved.sort(key=lambda item: -item[0])
    rows = []
    for least, n, o in moved[:10]:
        rate = f", {scaled(least / o.measured_seconds, 'B/s')}" if o.measured_seconds else ""
        rows.append(Bar(f"{n}  {_label(o)}", [(0, float(least))], f"{size(least)}{rate}"))
    title = f"Least traffic of a run, {size(sum(least for least, *_ in moved))}; the ten largest"
    return side_by_side(held, bars(title, ["bytes"], rows))


def _operators(timed: TimedModel, operators: Numbered) -> Html:
    report = timed.report
    work, works = column("work", [o.flops or None for _, o in operators], "op")
    times = [time for _, o in operators for time in (o.predicted_seconds, o.measured_seconds)]
    predicted, predictions = column("predicted", [o.predicted_seconds for _, o in operators], "s", beside=times)
    measured, measurements = column("measured", [o.measured_seconds for _, o in operators], "s", beside=times)
    speeds = [o.flops / o.measured_seconds if o.flops and o.measured_seconds else None for _, o in operators]
    speed, speed_cells = column("speed", speeds, "op/s")
    columns = zip(operators, works, predictions, measurements, speed_cells, strict=True)
    rows = [
        (
            n,
            Cell(_named(o), "name", ", ".join(o.nodes) if len(o.nodes) > NODES_IN_TABLE else ""),
            Cell(workload_text(workload_of(o)), "sizes"),
            o.form or o.kind,
            o.calls,
            flops,
            predicted_cell,
            measured_cell,
            percent(report.share(o)),
            speed_cell,
            _of_peak(o, timed),
            o.why,
        )
        for (n, o), flops, predicted_cell, measured_cell, speed_cell in columns
    ]
    headings = ("#", "operator", "sizes", "algorithm", "calls", work, predicted, measured, "share", speed, "of peak")
    return table((*headings, "reason"), rows)


def _of_peak(operator: OperatorRecord, timed: TimedModel) -> str:
    """Share of the time that the executed operations would take at the peak of their type."""
    least = peak_seconds(operator, timed.peak) if operator.flops and operator.measured_seconds else None
    return "–" if least is None or not operator.measured_seconds else percent(least / operator.measured_seconds)


def _named(operator: OperatorRecord) -> Html:
    """The operator's nodes with its function below them; the function alone if it has no nodes."""
    if not operator.nodes:
        return breakable(operator.name)
    nodes = breakable(nodes_text(operator.nodes, NODES_IN_TABLE))
    return join([nodes, tag("br"), tag("span", breakable(operator.name), class_="faint")])


def _decisions(operators: Numbered) -> Html | None:
    """Show each decision as one expandable line."""
    parts = []
    for n, o in operators:
        if o.decision:
            named = " — ".join(filter(None, (o.name, nodes_text(o.nodes))))
            line = join(
                [tag("strong", f"{n}  {o.form or o.kind}"), f" {_label(o)} ", tag("span", named, class_="faint")]
            )
            parts.append(folded(line, kept_body(o.decision)))
    return join([text("Click a line to expand it; in print all lines are expanded."), *parts]) if parts else None
