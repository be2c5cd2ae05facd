"""A simulation report as an HTML page: where each engine's cycles went, energy, the roofline, and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..timing.event_loop import CAUSES
from .html import Table, page
from .text import headline, tables

if TYPE_CHECKING:
    from .report import SimReport


def report_page(report: SimReport, further: Sequence[Table] = ()) -> str:
    """The whole page, `further` tables at its end. Plots that would be empty are left out."""
    figures = [_engines(report), _roofline(report), _energy(report), _operators(report)]
    shown = [figure for figure in figures if figure["data"]]
    return page(f"Simulated on {report.hardware}", headline(report), [*tables(report), *further], shown)


def _engines(report: SimReport) -> dict[str, Any]:
    """A bar for each engine, its cycles by what it did."""
    names = list(report.engines)
    parts = {"busy": [engine.busy for engine in report.engines.values()]}
    parts |= {f"waits: {cause}": [engine.stalls[cause] for engine in report.engines.values()] for cause in CAUSES}
    parts["idle"] = [engine.idle for engine in report.engines.values()]
    data = [
        {"type": "bar", "orientation": "h", "name": part, "y": names, "x": cycles}
        for part, cycles in parts.items()
        if any(cycles)
    ]
    layout = {"title": {"text": "Engines"}, "barmode": "stack", "xaxis": {"title": {"text": "cycles"}}}
    return {"data": data, "layout": {**layout, "yaxis": {"autorange": "reversed"}}}


def _energy(report: SimReport) -> dict[str, Any]:
    bars = {"type": "bar", "x": list(report.energy), "y": list(report.energy.values()), "name": "energy"}
    data = [bars] if report.energy_pj else []
    return {"data": data, "layout": {"title": {"text": "Energy"}, "yaxis": {"title": {"text": "pJ"}}}}


def _roofline(report: SimReport) -> dict[str, Any]:
    """Multiply-accumulates per cycle over those per byte moved: the roofs of the multipliers and of the transfers, as
    this program uses them, and the program."""
    layout = {
        "title": {"text": "Roofline"},
        "xaxis": {"type": "log", "title": {"text": "multiply-accumulates per byte moved"}},
        "yaxis": {"type": "log", "title": {"text": "multiply-accumulates per cycle"}},
    }
    if not report.macs or not report.intensity or not report.transfer_cycles:
        return {"data": [], "layout": layout}
    intensity, reached = report.intensity, report.macs / report.cycles
    peak, slope = reached / report.utilisation, report.macs / intensity / report.transfer_cycles
    ridge = peak / slope
    xs = sorted({min(intensity, ridge) / 8, ridge, max(intensity, ridge) * 8})
    roof = [min(peak, x * slope) for x in xs]
    data = [
        {"type": "scatter", "mode": "lines", "name": "roof", "x": xs, "y": roof},
        {"type": "scatter", "mode": "markers", "name": "program", "x": [intensity], "y": [reached]},
    ]
    return {"data": data, "layout": layout}


def _operators(report: SimReport) -> dict[str, Any]:
    """A bar for each operator from its first start to its last result, of programs with several."""
    regions = report.regions if len(report.regions) > 1 else ()
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "operators",
        "y": [region.name for region in regions],
        "x": [region.end - region.start for region in regions],
        "base": [region.start for region in regions],
        "text": [region.workload for region in regions],
        "textposition": "none",
    }
    layout = {
        "title": {"text": "Operators, from first start to last result"},
        "xaxis": {"title": {"text": "cycles"}},
        "yaxis": {"autorange": "reversed"},
    }
    return {"data": [bars] if regions else [], "layout": layout}
