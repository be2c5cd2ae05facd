"""The page of a comparison on a suite of shapes: speedups, shapes, and shares of the roofline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..figures import count, percent, scaled, seconds
from .bars import Bar, bars
from .machine import machine_table
from .markup import Html, join, tag
from .page import Cell, Section, Tile, page, side_by_side, table, text
from .plot import Axis, Series, plot, roofs_of
from .suite_result import Row, faster_peer, peer_columns, remarks, skipped_peers, speed

HOW = (
    "Ratios are medians of paired runs (ours, peer, ours, peer, ...); above 1, ours is faster. Outputs were compared "
    "with a float64 reference first: float32 on operands in [-1, 1) may differ by 4k·2⁻²⁴ for a matrix multiplication, "
    "by 10⁻⁴ of the largest output for a convolution (to allow Winograd), int8 must be equal. Every library's "
    "threads are pinned to one core each. Speeds are in Gop/s, as the model defines the operations."
)
NETWORKS = (
    "The line of a network covers all of its layers; “whole network” weights each by its occurrences: time by the "
    "fastest peer of each layer over our time."
)


def comparison_page(result: Mapping[str, Any]) -> str:
    """Return the whole page of a result of benchmarks/run.py."""
    rows, settings = result["rows"], result["settings"]
    wrong = remarks(rows)
    sections = [
        Section("Ours against the faster peer", _ratios(rows)),
        Section("Groups", join([text(NETWORKS), _summary(result["summary"])])),
        Section("Roofline", _rooflines(result)),
        Section("Speed, shape by shape", _speeds(rows)),
        Section("Every case", _cases(rows)),
        Section("Failed, wrong or doubtful", tag("ul", *(tag("li", remark) for remark in wrong)) if wrong else None),
        Section("Machine", machine_table(result["machine"], result["peak"])),
    ]
    skipped = [f"Skipped {name}: {reason}." for name, reason in skipped_peers(rows).items()]
    kind = f"{', short set' if settings['short'] else ''}{', caches flushed' if settings['cold'] else ''}"
    return page(
        f"Speed on the suite “{settings['suite']}”{kind}", [HOW, *skipped], _tiles(result), sections, _doubts(rows)
    )


def _doubts(rows: Sequence[Row]) -> list[str]:
    """Return the number of cases that were measured on a busy machine."""
    doubtful = sum(any(entry.get("doubtful") for entry in (row["ours"], *row["peers"].values())) for row in rows)
    if not doubtful:
        return []
    return [
        f"Doubtful: in {doubtful} of {len(rows)} cases other work kept threads off their cores while they were "
        "measured; repeat them on an idle machine."
    ]


def _tiles(result: Mapping[str, Any]) -> list[Tile]:
    whole = result["summary"][-1]
    found = [Tile("cases", count(whole["rows"]), f"{whole['compared']} compared")]
    if whole["geometric_mean"] is not None:
        found.append(Tile("speedup", f"{whole['geometric_mean']:.2f}", "geometric mean, faster peer of each"))
        found.append(Tile("won", percent(whole["share_won"], 0), "of the cases"))
        found.append(Tile("worst", f"{whole['worst']:.2f}", whole["worst_case"]))
    if whole["ours_not_ok"]:
        found.append(Tile("ours not ok", count(whole["ours_not_ok"])))
    return found


def _ratios(rows: Sequence[Row]) -> Html | None:
    """Plot the ratios of all cases, worst first, coloured by group."""
    found = [(row, best) for row in rows if (best := faster_peer(row)) is not None]
    if not found:
        return None
    found.sort(key=lambda item: item[1][1])
    groups = list(dict.fromkeys(row["group"] for row in rows))
    series = []
    for group in groups:
        own = [(place, row, best) for place, (row, best) in enumerate(found, start=1) if row["group"] == group]
        hover = [f"{row['case']}: {best[1]:.2f} compared with {best[0]}" for _, row, best in own]
        series.append(Series(group, [(float(place), best[1]) for place, _, best in own], hover=hover))
    level = Series("as fast", [(1.0, 1.0), (float(len(found)), 1.0)], line=True, dots=False, dashed=True)
    drawn = plot(
        "Every case, worst first",
        Axis("cases"),
        Axis("speedup over the faster peer", log=True),
        [*series, level],
    )
    rows_of_worst = [
        (Cell(row["case"], "name"), Cell(f"{ratio:.2f}", "won" if ratio >= 1 else "lost"), name)
        for row, (name, ratio) in found[:8]
    ]
    return side_by_side(drawn, table(("worst cases", "ratio", "peer"), rows_of_worst))


def _summary(summaries: Sequence[Mapping[str, Any]]) -> Html:
    headings = ("group", "cases", "geometric mean", "worst", "won", "whole network", "ours not ok", "worst case")
    rows = [
        (
            Cell(s["group"], "name"),
            s["rows"],
            _number(s["geometric_mean"]),
            _number(s["worst"]),
            percent(s["share_won"], 0),
            _number(s.get("time_ratio")),
            s["ours_not_ok"],
            s["worst_case"],
        )
        for s in summaries
    ]
    return table(headings, rows)


def _rooflines(result: Mapping[str, Any]) -> Html | None:
    rows = result["rows"]
    kinds = list(dict.fromkeys(row["dtype"] for row in rows))
    if not rows:
        return None
    numbers = {row["case"]: number for number, row in enumerate(rows, start=1)}
    drawn = (_roofline(result["peak"], [row for row in rows if row["dtype"] == kind], kind, numbers) for kind in kinds)
    return join([text("Numbers are those of the cases in the table below."), side_by_side(*drawn)])


def _roofline(peak: Mapping[str, Any], rows: Sequence[Row], dtype: str, numbers: Mapping[str, int]) -> Html | None:
    """Plot speed over operations per byte, both logarithmic: ours and every peer, with the roofs."""
    arithmetic = (peak["gops_int8"] if dtype in ("int8", "uint8") else None) or peak["gflops"]
    intensities = [row["flops"] / row["bytes"] for row in rows]
    series = []
    for name in ("ours", *peer_columns(rows)):
        entries = [(row, row["ours"] if name == "ours" else row["peers"].get(name, {})) for row in rows]
        supported = [(row, entry["gops"]) for row, entry in entries if entry.get("gops")]
        points = [(row["flops"] / row["bytes"], gops * 1e9) for row, gops in supported]
        labels = [str(numbers[row["case"]]) for row, _ in supported] if name == "ours" else []
        hover = [f"{row['case']}: {name}, {gops:.0f}" for row, gops in supported]
        if points:
            series.append(Series(name, points, hover=hover, labels=labels))
    roofs = roofs_of(peak, arithmetic, min(intensities) / 2, max(intensities) * 2)
    x, y = Axis("operations per byte, each byte moved once", log=True), Axis("operations per second", log=True)
    return plot(f"Roofline, {dtype}", x, y, [*series, *roofs])


def _speeds(rows: Sequence[Row]) -> Html | None:
    """For each group, plot ours and every peer shape by shape."""
    parts = []
    for group in dict.fromkeys(row["group"] for row in rows):
        own = [row for row in rows if row["group"] == group]
        names = ["ours", *peer_columns(own)]
        longest = max((_gops(row, name) for row in own for name in names), default=0.0)
        drawn = [
            Bar(
                row["case"].removeprefix(f"{group} ") if name == "ours" else "",
                [(place, _gops(row, name))],
                f"{_gops(row, name):.0f}" if _gops(row, name) else "–",
                hover=f"{row['case']}: {name}",
            )
            for row in own
            for place, name in enumerate(names)
        ]
        parts.append(bars(f"{group}, giga-operations per second", names, drawn, whole=longest or None))
    return join(parts) if parts else None


def _gops(row: Row, name: str) -> float:
    entry = row["ours"] if name == "ours" else row["peers"].get(name, {})
    return float(entry.get("gops") or 0.0)


def _cases(rows: Sequence[Row]) -> Html:
    peers = peer_columns(rows)
    lines: list[tuple[str | Cell, ...]] = []
    for number, row in enumerate(rows, start=1):
        best = faster_peer(row)
        ratio = Cell("–") if best is None else Cell(f"{best[1]:.2f}", "won" if best[1] >= 1 else "lost")
        lines.append(
            (
                str(number),
                Cell(row["case"], "name"),
                speed(row["ours"]),
                *(_peer(row["peers"][name]) if name in row["peers"] else Cell("") for name in peers),
                ratio,
                best[0] if best else "",
                percent(row["ours"]["of_roofline"], 0),
            )
        )
    return table(("#", "case", "ours", *peers, "ratio", "faster peer", "of roofline"), lines)


def _peer(entry: Mapping[str, Any]) -> Cell:
    """A peer's speed with its tooltip."""
    hover = [entry["note"], entry["reason"]]
    if entry["ratio"] is not None:
        hover.append(f"ratio {entry['ratio']:.3f}, spread {entry['spread']:.3f}, {entry['samples']} pairs")
    if entry.get("p99") is not None:  # missing in results of earlier versions
        hover.append(
            f"p90 {seconds(entry['p90'])}, p99 {seconds(entry['p99'])}, {scaled(entry['throughput'], 'calls/s')}"
        )
    return Cell(speed(dict(entry)), hover="; ".join(part for part in hover if part))


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.2f}"
