"""Summaries of the rows of a result: the fastest peer of each, and means over groups and networks.

A row is a plain dictionary, as in the JSON file that benchmarks/run.py writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tvm_tiling.report.suite_result import Row, faster_peer


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A group of rows compared with the fastest peer of each. Ratios above 1: ours is faster; None without a
    comparison.

    `share_won` is the share of all rows with a peer's time; rows in which ours failed or was wrong count as lost.
    `time_ratio`, for a network: the time of its layers by the fastest peer of each over our time, each layer weighted
    by its number of occurrences.
    """

    group: str
    rows: int
    compared: int
    ours_not_ok: int
    geometric_mean: float | None
    worst: float | None
    worst_case: str
    share_won: float | None
    time_ratio: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios, all of which must be positive."""
    return math.exp(sum(math.log(value) for value in values) / len(values))


def summarize(group: str, rows: Sequence[Row], network: str | None = None) -> Summary:
    """Summarise these rows, as the layers of `network` if one is named."""
    ratios = {row["case"]: best[1] for row in rows if (best := faster_peer(row)) is not None}
    contested = [row for row in rows if any(p["library"] and p["gops"] is not None for p in row["peers"].values())]
    worst = min(ratios, key=lambda case: ratios[case], default="")
    return Summary(
        group=group,
        rows=len(rows),
        compared=len(ratios),
        ours_not_ok=sum(row["ours"]["status"] != "ok" for row in rows),
        geometric_mean=geometric_mean(list(ratios.values())) if ratios else None,
        worst=ratios.get(worst),
        worst_case=worst,
        share_won=sum(ratio >= 1 for ratio in ratios.values()) / len(contested) if contested else None,
        time_ratio=_time_ratio(rows, network) if network and ratios else None,
    )


def _time_ratio(rows: Sequence[Row], network: str) -> float:
    """Return the time ratio over the layers that were compared."""
    ours = theirs = 0.0
    for row in rows:
        if (best := faster_peer(row)) is not None:
            seconds = row["times"][network] * row["ours"]["seconds"]
            ours += seconds
            theirs += seconds * best[1]
    return theirs / ours


def summaries(rows: Sequence[Row]) -> list[Summary]:
    """Return one summary for each group, element type and packing, in the rows' order, then one for each network over
    all layers that belong to it, and one over everything."""
    groups: dict[str, list[Row]] = {}
    networks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        kind = f"{row['dtype']}{', packed' if row['packed'] else ''}"
        groups.setdefault(f"{row['group']}, {kind}", []).append(row)
        for network in row.get("times", {}):
            networks.setdefault((network, kind), []).append(row)
    return [
        *(summarize(name, part) for name, part in groups.items()),
        *(summarize(f"network {network}, {kind}", part, network) for (network, kind), part in networks.items()),
        summarize("all", rows),
    ]
