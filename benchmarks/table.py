"""A result as tables in a terminal."""

from __future__ import annotations

import sys
from typing import Any

from .summary import Row, faster_peer

SKIPPED = {"status": "skipped"}
PIPE_WIDTH = 160  # columns where standard output is no terminal


def number(value: float | None, digits: int = 2) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def speed(entry: dict[str, Any]) -> str:
    """Giga-operations per second, or what stands in their place."""
    return number(entry["gops"], 1) if entry["gops"] is not None else entry["status"]


def peer_columns(rows: list[Row]) -> list[str]:
    """Every peer that served, failed or was wrong on some row; those skipped everywhere have no column."""
    names = dict.fromkeys(name for row in rows for name in row["peers"])
    return [
        name for name in names if any(row["peers"].get(name, {}).get("status", "skipped") != "skipped" for row in rows)
    ]


def skipped_peers(rows: list[Row]) -> dict[str, str]:
    """Each peer that was skipped on every row, with its reason."""
    names = dict.fromkeys(name for row in rows for name in row["peers"])
    shown = peer_columns(rows)
    return {
        name: next(row["peers"][name]["reason"] for row in rows if name in row["peers"])
        for name in names
        if name not in shown
    }


def remarks(rows: list[Row]) -> list[str]:
    """One sentence for everything that failed, was wrong, or was measured on a machine too busy for it."""
    found = []
    for row in rows:
        for name, entry in (("ours", row["ours"]), *row["peers"].items()):
            if entry["status"] in ("failed", "wrong result"):
                found.append(f"{row['case']}: {name}: {entry['status']}: {entry['reason']}")
            if entry.get("doubtful"):
                found.append(f"{row['case']}: {name}: doubtful, other work kept threads off their cores; measure again")
    return found


def print_result(result: dict[str, Any]) -> None:
    """The rows, the summary, and what was skipped or went wrong, on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False)
    rows = result["rows"]
    peers = peer_columns(rows)
    table = Table(box=box.SIMPLE_HEAD, title="GFLOP/s (int8: giga-operations/s); a ratio above 1: ours is faster")
    for heading in ("case", "ours", *peers, "to faster peer", "of roofline"):
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
