"""A result as one HTML file that needs nothing else: tables, bars for each group, and the roofline.

Plots are drawn by plotly's script, copied into the file once. Without the plotly package the tables stand alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .result import write_whole
from .summary import Row, faster_peer
from .table import number, peer_columns, percent, remarks, skipped_peers, speed

TEMPLATE = "report.html.j2"


def bars(rows: list[Row]) -> list[dict[str, Any]]:
    """One bar chart for each group: speed of ours and of each peer, shape by shape."""
    charts = []
    for group in dict.fromkeys(row["group"] for row in rows):
        part = [row for row in rows if row["group"] == group]
        labels = [row["case"].removeprefix(f"{group} ") for row in part]
        series = [("ours", [row["ours"]["gops"] for row in part])]
        series += [(name, [row["peers"].get(name, {}).get("gops") for row in part]) for name in peer_columns(part)]
        traces: list[dict[str, Any]] = [
            {"type": "bar", "name": name, "x": labels, "y": values} for name, values in series
        ]
        roof = [row["roofline_gops"] for row in part]
        line = {"type": "scatter", "mode": "markers", "name": "roofline", "x": labels, "y": roof}
        traces.append({**line, "marker": {"symbol": "line-ew-open", "size": 18, "color": "#888"}})
        layout = {"title": {"text": group}, "barmode": "group", "yaxis": {"title": {"text": "giga-operations/s"}}}
        charts.append({"data": traces, "layout": layout})
    return charts


def roofline(result: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Speed over operations for each byte, both logarithmic: the roofs of memory and arithmetic, and the shapes."""
    rows = [row for row in result["rows"] if row["dtype"] == dtype]
    peak = result["peak"]
    arithmetic = (peak["gops_int8"] if dtype == "int8" else None) or peak["gflops"]
    intensities = [row["flops"] / row["bytes"] for row in rows]
    left, right = min(intensities) / 2, max(intensities) * 2
    traces: list[dict[str, Any]] = []
    for level in peak["bandwidths"]:
        ridge = arithmetic / level["gbytes"]
        xs = [left, ridge, right] if left < ridge < right else [left, right]
        ys = [min(arithmetic, x * level["gbytes"]) for x in xs]
        traces.append({"type": "scatter", "mode": "lines", "name": f"{level['level']} {level['gbytes']:.0f} GB/s"})
        traces[-1].update(x=xs, y=ys)
    for name in ("ours", *peer_columns(rows)):
        entries = [(row, row["ours"] if name == "ours" else row["peers"].get(name, {})) for row in rows]
        points = [(row, entry["gops"]) for row, entry in entries if entry.get("gops")]
        if points:
            traces.append(
                {"type": "scatter", "mode": "markers", "name": name, "text": [row["case"] for row, _ in points]}
            )
            traces[-1].update(x=[row["flops"] / row["bytes"] for row, _ in points], y=[gops for _, gops in points])
    layout = {
        "title": {"text": f"Roofline, {dtype}"},
        "xaxis": {"type": "log", "title": {"text": "operations per byte, each byte moved once"}},
        "yaxis": {"type": "log", "title": {"text": "giga-operations/s"}},
    }
    return {"data": traces, "layout": layout}


def figures(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Every chart of the report, as plotly's plain data."""
    rows = result["rows"]
    kinds = dict.fromkeys(row["dtype"] for row in rows)
    return [*(roofline(result, dtype) for dtype in kinds), *bars(rows)]


def html(result: dict[str, Any]) -> str:
    """The report as one page without a single reference to anything outside of it."""
    import jinja2

    rows = result["rows"]
    peers = peer_columns(rows)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    script = ""
    if importlib.util.find_spec("plotly") is not None:
        from plotly.offline import get_plotlyjs

        script = get_plotlyjs()
    return environment.get_template(TEMPLATE).render(
        result=result,
        machine=result["machine"],
        peak=result["peak"],
        peers=peers,
        lines=[_line(row, peers) for row in rows],
        skipped=skipped_peers(rows),
        remarks=remarks(rows),
        script=script,
        # "</" would end the script that holds it
        figures=json.dumps(figures(result) if rows else []).replace("</", "<\\/"),
        number=number,
        percent=percent,
    )


def _line(row: Row, peers: list[str]) -> dict[str, Any]:
    best = faster_peer(row)
    return {
        "case": row["case"],
        "ours": speed(row["ours"]),
        "peers": [_peer_cell(row["peers"][name]) if name in row["peers"] else ("", "") for name in peers],
        "ratio": best[1] if best else None,
        "faster": best[0] if best else "",
        "of_roofline": row["ours"]["of_roofline"],
    }


def _peer_cell(entry: dict[str, Any]) -> tuple[str, str]:
    """The cell's text, and what it says when pointed at."""
    told = [entry["note"], entry["reason"]]
    if entry["ratio"] is not None:
        told.append(f"ratio {entry['ratio']:.3f}, spread {entry['spread']:.3f}, {entry['samples']} pairs")
    return speed(entry), "; ".join(part for part in told if part)


def write_html(result: dict[str, Any], path: Path) -> None:
    """Write the report; needs the jinja2 package."""
    write_whole(path, html(result))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a report of a JSON result that was written earlier."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description="A report of a JSON result.")
    parser.add_argument("json", type=Path)
    parser.add_argument("html", type=Path)
    chosen = parser.parse_args(arguments)
    write_html(json.loads(chosen.json.read_text(encoding="utf-8")), chosen.html)
    return 0


if __name__ == "__main__":
    sys.exit(main())
