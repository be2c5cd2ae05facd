"""The page of a simulation: cycles, limits, traffic, memories, energy and the timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..accel.report.report import OPERATORS, SimReport, Table, capacity_text, free_work, tables
from ..accel.timing.event_loop import CAUSES
from ..accel.timing.region_time import RegionTime
from ..decide.tiling import Decision
from ..figures import column, count, percent, scaled, size
from ..model.accel.report import AcceleratorReport, accelerator_report
from ..model.report import nodes_text
from .bars import Bar, bars
from .decisions import decision_body
from .markup import Html, breakable, join, tag
from .page import Cell, Section, Tile, numbered, page, side_by_side, table, text
from .plot import Axis, Series, plot
from .simulation_advice import simulation_advice
from .timeline import timeline

if TYPE_CHECKING:
    from ..accel.report.layer_map import LayerMap  # imports TVM

MOST_NODES = 12
"""Number of nodes of a CPU operator that a table names."""
MOST_BARS = 60
"""Number of operators that are drawn; a table has all of them."""


def simulation_page(
    report: SimReport,
    title: str = "",
    decision: Decision | None = None,
    left: Mapping[str, str] | None = None,
    layer: LayerMap | None = None,
    nodes: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return the whole page of one program on one machine.

    `decision`: the tiling, if the subject is one operator; `left`: for a model, the reasons why operators run on the
    CPU, by name; `layer`: the mapping of the operator to the machine; `nodes`: the model's nodes of the operators on
    the CPU.
    """
    drawn = timeline(report.program, report.timing, report.cycles)
    advised = simulation_advice(report)
    sections = [
        Section("Advice", numbered(advised) if advised else None),
        Section("Where the cycles go", join([_engines(report), drawn])),
        Section("What limits it", _limits(report)),
        Section("Traffic and memory", _memory(report)),
    ]
    if len(report.regions) > 1:
        sections.append(Section("Operators", _operators(report)))
    if layer is not None:
        sections.append(Section("Map", join([tag("pre", layer.text()), _table(layer.table())])))
    if decision is not None:
        sections.append(Section("Decision and reasons", decision_body(decision)))
    if left:
        sections.append(_on_cpu(left, nodes or {}))
    sections.append(Section("All figures", join(_table(each) for each in tables(report) if each.title != OPERATORS)))
    return page(title or f"Simulated on {report.hardware}", _notes(report, title), _tiles(report), sections)


def accelerator_page(report: AcceleratorReport, title: str = "") -> str:
    """Return the page of a model that partly runs on an accelerator."""
    on_cpu = [o for o in report.operators if o.where == "cpu"]
    left, nodes = {o.name: o.why for o in on_cpu}, {o.name: o.nodes for o in on_cpu}
    if report.sim is not None:
        return simulation_page(report.sim, title, left=left, nodes=nodes)
    return page(title or "Simulated", ["No part of the model runs on the accelerator."], [], [_on_cpu(left, nodes)])


def _on_cpu(left: Mapping[str, str], nodes: Mapping[str, Sequence[str]]) -> Section:
    rows = [
        (Cell(name, "name"), Cell(nodes_text(nodes.get(name, ()), MOST_NODES), "name"), why)
        for name, why in left.items()
    ]
    return Section("On the CPU", table(("operator", "nodes", "reason"), rows))


def _notes(report: SimReport, title: str) -> list[str]:
    on = f"Simulated on {report.hardware}. " if title else ""
    return [
        *free_work(report),
        f"{on}{count(report.instructions)} instructions, {count(report.macs)} multiply-accumulates.",
    ]


def _tiles(report: SimReport) -> list[Tile]:
    time = "clock unknown" if report.seconds is None else f"{scaled(report.seconds, 's')} at {report.clock_mhz:g} MHz"
    found = [
        Tile("cycles", count(report.cycles), time),
        Tile("utilisation", percent(report.utilisation), "of the multipliers' peak"),
        Tile("of the roofline", percent(report.roofline), f"{count(report.lower_bound)} cycles of {report.bound}"),
        Tile("overlap", percent(report.overlap), "of the busy cycles"),
        Tile("moved", size(sum(report.bytes.values())), "between chip and memory"),
    ]
    if report.energy_pj:
        found.append(Tile("energy", scaled(report.energy_pj * 1e-12, "J")))
    return found


def _engines(report: SimReport) -> Html:
    causes = [cause for cause in CAUSES if any(engine.stalls[cause] for engine in report.engines.values())]
    series = ["busy", *(f"waits: {cause}" for cause in causes)]
    rows = []
    for name, engine in report.engines.items():
        if not engine.instructions:
            continue
        parts = [(0, float(engine.busy))]
        parts += [(place, float(engine.stalls[cause])) for place, cause in enumerate(causes, start=1)]
        share = engine.busy / report.cycles if report.cycles else 0.0
        rows.append(Bar(name, parts, f"{percent(share)} busy", hover=f"idle {count(engine.idle)} cycles"))
    return bars("Cycles of each engine; blank is idle", series, rows, whole=float(report.cycles))


def _limits(report: SimReport) -> Html:
    bounds = [
        Bar("lower bound", [(0, float(report.lower_bound))], count(report.lower_bound), hover=f"of {report.bound}"),
        Bar("taken", [(0, float(report.cycles))], count(report.cycles)),
        Bar("without overlap", [(0, float(report.upper_bound))], count(report.upper_bound)),
    ]
    energy = [
        Bar(name, [(0, spent)], f"{scaled(spent * 1e-12, 'J')}, {percent(spent / report.energy_pj, 0)}")
        for name, spent in report.energy.items()
        if spent
    ]
    hover = text(
        f"The busiest resource is {report.bound}: it needs at least {count(report.lower_bound)} cycles.",
        f"Without any overlap the program would take {count(report.upper_bound)} cycles.",
    )
    beside = join([bars("Cycles", ["cycles"], bounds), bars("Energy", ["energy"], energy) if energy else None])
    return join([hover, side_by_side(_roofline(report), tag("div", beside))])


def _roofline(report: SimReport) -> Html | None:
    """Plot multiply-accumulates per cycle over multiply-accumulates per byte moved: the roofs of multipliers and
    transfers, as this program uses them, and the program."""
    if not report.macs or not report.intensity or not report.transfer_cycles or not report.utilisation:
        return None
    intensity, reached = report.intensity, report.macs / report.cycles
    peak, slope = reached / report.utilisation, report.macs / intensity / report.transfer_cycles
    ridge = peak / slope
    xs = sorted({min(intensity, ridge) / 8, ridge, max(intensity, ridge) * 8})
    roof = Series("roof", [(x, min(peak, x * slope)) for x in xs], line=True, dots=False)
    hover = f"{intensity:.3g} multiply-accumulates per byte, {reached:.3g} per cycle"
    spots = [roof, Series("program", [(intensity, reached)], hover=[hover], labels=["program"])]
    x = Axis("multiply-accumulates per byte moved", log=True)
    return plot("Roofline", x, Axis("multiply-accumulates per cycle", log=True), spots)


def _memory(report: SimReport) -> Html:
    moved = [Bar(name, [(0, float(amount))], size(amount)) for name, amount in report.bytes.items()]
    held = [
        Bar(name, [(0, use.peak / use.capacity)], f"{size(use.peak)} of {capacity_text(use)}")
        for name, use in report.memories.items()
        if use.capacity
    ]
    series = ["read", "written"]
    through = [
        Bar(name, [(0, float(use.read)), (1, float(use.written))], size(use.read + use.written))
        for name, use in report.memories.items()
    ]
    plots = [
        bars("Between chip and memory, by operand", ["bytes"], moved),
        bars("Through each memory", series, through),
    ]
    if held:
        plots.append(bars("Peak buffer usage", ["share"], held, whole=1.0))
    return side_by_side(*plots)


def _operators(report: SimReport) -> Html:
    regions = report.regions
    shown: Sequence[RegionTime] = sorted(
        sorted(regions, key=lambda region: region.start - region.end)[:MOST_BARS], key=lambda region: region.start
    )
    rows = [
        Bar(r.name, [(0, float(r.end - r.start))], count(r.end - r.start), float(r.start), hover=r.workload)
        for r in shown
    ]
    more = f", the longest {len(shown)} of {len(regions)}" if len(shown) < len(regions) else ""
    drawn = bars(f"From first start to last result, in cycles{more}", ["cycles"], rows, whole=float(report.cycles))
    operators = accelerator_report(report, (), {}).operators
    macs, mac_cells = column("multiply-accumulates", [o.macs for o in operators])
    headings, moved = [], []
    for operand in ("a", "b", "out"):
        heading, cells = column(operand, [(o.bytes or {}).get(operand, 0) for o in operators], binary=True)
        headings.append(heading)
        moved.append(cells)
    rows_of_table = [
        (
            Cell(breakable(o.name), "name"),
            Cell(o.workload, "workload"),
            region.start,
            region.end,
            o.cycles,
            mac_cells[place],
            percent(o.utilisation),
            *(cells[place] for cells in moved),
        )
        for place, (o, region) in enumerate(zip(operators, regions, strict=True))
    ]
    first = ("operator", "workload", "start", "end", "cycles", macs, "utilisation")
    return join([drawn, table((*first, *headings), rows_of_table)])


def _table(each: Table) -> Html:
    return join([tag("h3", each.title), table(each.headings, each.rows)])
