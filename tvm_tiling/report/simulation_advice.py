"""Advice for a simulated program: what its matrix engine waits for, longest wait first."""

from __future__ import annotations

from collections.abc import Iterator

from ..accel.report.report import SimReport
from ..accel.timing.event_loop import CAUSES
from ..figures import count, percent

LEAST_SHARE = 0.02  # of the cycles
NEAR_BOUND = 0.9  # share of the lower bound above which waiting matters little

CHANGES = {
    "data": "its operands arrive late. Sweep the bandwidth and latency of the memories that it loads from, or prefer "
    "less traffic (--prefer traffic).",
    "space": "the buffer that it writes to is still being read. Sweep the capacity of that buffer.",
    "token": "synchronisation takes time. Sweep the cost of a token and the size of tiles.",
    "latency": "a result of its own is still in the pipeline. Sweep its latency.",
    "port": "another transfer uses the port. Sweep the number of ports or their bandwidth.",
    "dispatch": "instructions are issued too slowly. Sweep the cost of issuing one and the depth of the queue.",
}


def simulation_advice(report: SimReport) -> list[str]:
    """Return sentences ordered by the cycles that they refer to; empty for a program that takes no time."""
    if not report.cycles:
        return []
    engine = computing(report)
    found = sorted(_waits(report, engine), reverse=True) if engine and report.roofline < NEAR_BOUND else []
    return [*(text for _, text in found), _limit(report)]


def computing(report: SimReport) -> str | None:
    """Return the name of the busiest engine, transfers excluded; None if there is none."""
    engines = {name: time for name, time in report.engines.items() if not name.startswith(("load", "store"))}
    busiest = max(engines, key=lambda name: engines[name].busy, default=None)
    return busiest if busiest is not None and engines[busiest].busy else None


def _waits(report: SimReport, engine: str) -> Iterator[tuple[int, str]]:
    for cause in CAUSES:
        cycles = report.engines[engine].stalls[cause]
        if cycles >= LEAST_SHARE * report.cycles:
            share = percent(cycles / report.cycles, 0)
            yield cycles, f"{engine} waits {share} of the cycles ({count(cycles)}) because {CHANGES[cause]}"


def _limit(report: SimReport) -> str:
    """Return the limit if nothing waited."""
    rest = f"{report.bound} needs {count(report.lower_bound)} cycles, {percent(report.roofline, 0)} of those taken"
    if report.roofline >= NEAR_BOUND:
        helps = f"Only more throughput of {report.bound}, or less work for it, helps."
        return f"The program is {_kind(report)}: {rest}. {helps}"
    return f"The lower bound is {_kind(report)}: {rest}."


def _kind(report: SimReport) -> str:
    if report.bound == "dispatch":
        return "dispatch-bound"
    moves = report.bound.startswith(("port", "load", "store"))
    return "memory-bound" if moves else "compute-bound"
