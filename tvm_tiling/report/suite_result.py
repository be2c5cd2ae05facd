"""The rows of a suite's result, as benchmarks/run.py writes them: plain dictionaries with our result and every
peer's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FORMAT, VERSION = "tvm-tiling-bench", 1

Row = dict[str, Any]


def faster_peer(row: Row) -> tuple[str, float] | None:
    """Name and ratio of the fastest peer; None if nothing was compared."""
    ratios = [
        (name, peer["ratio"]) for name, peer in row["peers"].items() if peer["library"] and peer["ratio"] is not None
    ]
    return min(ratios, key=lambda item: item[1], default=None)


def peer_columns(rows: Sequence[Row]) -> list[str]:
    """Return the peers that ran, failed or were wrong on some row; peers skipped on all rows have no column."""
    names = dict.fromkeys(name for row in rows for name in row["peers"])
    return [
        name for name in names if any(row["peers"].get(name, {}).get("status", "skipped") != "skipped" for row in rows)
    ]


def skipped_peers(rows: Sequence[Row]) -> dict[str, str]:
    """Return each peer that was skipped on all rows, with its reason."""
    names = dict.fromkeys(name for row in rows for name in row["peers"])
    shown = peer_columns(rows)
    return {
        name: next(row["peers"][name]["reason"] for row in rows if name in row["peers"])
        for name in names
        if name not in shown
    }


def remarks(rows: Sequence[Row]) -> list[str]:
    """Return one sentence for everything that failed, was wrong, or was measured on a busy machine."""
    found = []
    for row in rows:
        for name, entry in (("ours", row["ours"]), *row["peers"].items()):
            if entry["status"] in ("failed", "wrong result"):
                found.append(f"{row['case']}: {name}: {entry['status']}: {entry['reason']}")
            if entry.get("doubtful"):
                found.append(f"{row['case']}: {name}: doubtful, other work kept threads off their cores; measure again")
    return found


def speed(entry: dict[str, Any]) -> str:
    """Format giga-operations per second, or the status if there is no figure."""
    return f"{entry['gops']:.1f}" if entry["gops"] is not None else str(entry["status"])
