"""Print a result as tables in a terminal."""

from __future__ import annotations

import sys
from typing import Any

from tvm_tiling.report.suite_result import faster_peer, peer_columns, remarks, skipped_peers, speed

PIPE_WIDTH = 160  # columns where standard output is not a terminal


def number(value: float | None, digits: int = 2) -> str:
    """Format a figure, or a dash if there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """Format a share in percent, or a dash if there is none."""
    return "-" if value is None else f"{100 * value:.0f}%"


def print_result(result: dict[str, Any]) -> None:
    """Print the rows, the summary, and what was skipped or failed."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False)
    rows = result["rows"]
    peers = peer_columns(rows)
    table = Table(box=box.SIMPLE_HEAD, title="GFLOP/s (int8: giga-operations/s); a ratio above 1: ours is faster")
    for heading in ("case", "ours", *peers, "to fastest peer", "of roofline"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    for row in rows:
        best = faster_peer(row)
        speeds = [speed(row["peers"][name]) if name in row["peers"] else "" for name in peers]
        ratio = f"{best[1]:.2f} {best[0]}" if best else "-"
        table.add_row(row["case"], speed(row["ours"]), *speeds, ratio, percent(row["ours"]["of_roofline"]))
    console.print(table)
    table = Table(box=box.SIMPLE_HEAD)
    for heading in (
        "group",
        "cases",
        "geometric mean",
        "worst",
        "share won",
        "whole network",
        "ours not ok",
        "worst case",
    ):
        table.add_column(heading, justify="left" if heading in ("group", "worst case") else "right")
    for s in result["summary"]:
        ratios = (number(s["geometric_mean"]), number(s["worst"]), percent(s["share_won"]), number(s["time_ratio"]))
        figures = (*ratios, str(s["ours_not_ok"]))
        table.add_row(s["group"], str(s["rows"]), *figures, s["worst_case"])
    console.print(table)
    for name, reason in skipped_peers(rows).items():
        console.print(f"skipped {name}: {reason}")
    for remark in remarks(rows):
        console.print(remark)
