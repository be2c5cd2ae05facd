"""The rows of a suite's result, as benchmarks/run.py writes them: plain dictionaries with ours and every peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FORMAT, VERSION = "tvm-tiling-bench", 1

Row = dict[str, Any]


def faster_peer(row: Row) -> tuple[str, float] | None:
    """Name and ratio of the competing peer that ours has the least lead over; None where nothing was compared."""
    ratios = [
        (name, peer["ratio"]) for name, peer in row["peers"].items() if peer["library"] and peer["ratio"] is not None
    ]
    return min(ratios, key=lambda item: item[1], default=None)


def peer_columns(rows: Sequence[Row]) -> list[str]:
    """Every peer that served, failed or was wrong on some row; those skipped everywhere have no column."""
    names = dict.fromkeys(name for row in rows for name in row["peers"])
    return [
        name for name in names if any(row["peers"].get(name, {}).get("status", "skipped") != "skipped" for row in rows)
    ]


def skipped_peers(rows: Sequence[Row]) -> dict[str, str]:
    """Each peer that was skipped on every row, with its reason."""
    names = dict.fromkeys(name for row in rows for name in row["peers"])
    shown = peer_columns(rows)
    return {
        name: next(row["peers"][name]["reason"] for row in rows if name in row["peers"])
        for name in names
        if name not in shown
    }


def remarks(rows: Sequence[Row]) -> list[str]:
    """One sentence for everything that failed, was wrong, or was measured on a machine too busy for it."""
    found = []
    for row in rows:
        for name, entry in (("ours", row["ours"]), *row["peers"].items()):
            if entry["status"] in ("failed", "wrong result"):
                found.append(f"{row['case']}: {name}: {entry['status']}: {entry['reason']}")
            if entry.get("doubtful"):
                found.append(f"{row['case']}: {name}: doubtful, other work kept threads off their cores; measure again")
    return found


def speed(entry: dict[str, Any]) -> str:
    """Giga-operations per second, or what stands in their place."""
    return f"{entry['gops']:.1f}" if entry["gops"] is not None else str(entry["status"])
