"""Scaling of costs with sizes, and accuracy of estimates: python -m benchmarks.database -o database.html

Generates a database from random shapes, on a simulated accelerator or on this CPU with --target llvm. Then measures
multiples and fractions of its shapes, and held-out multiples. The HTML page has two plots: cost against size, both
relative to the database entry, and measured against estimated cost. The figures are printed as well.

--database and --measured store what was measured. --seconds ends a run early; the same command continues it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tvm_tiling.hardware.description import Hardware
from tvm_tiling.report.markup import Html, join
from tvm_tiling.report.page import Section, page, side_by_side, table, write_page
from tvm_tiling.report.plot import Axis, Series, plot
from tvm_tiling.target import hardware_of
from tvm_tiling.tuning.measuring.measurer import Job, Measured, Measurer
from tvm_tiling.tuning.measuring.steady import measurer_for_shapes
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.generate import GenerationProgress
from tvm_tiling.tuning.shapes.random_shapes import RandomShapes

from . import shape
from .held_out import MOST_MACS, held_out, resized, share_within
from .result import earlier_entries, write_whole

FORMAT, VERSION = "tvm-tiling-database-costs", 1
FACTORS = (2, 4, 8)  # of the series, up and down
SERIES = 3  # entries of each operator to measure series of, those with the most proportional axes first
# Large enough for most axes to be reduced, and small enough to be measured often.
RANGES = {
    "gemm": {axis: (256, 1024) for axis in ("m", "n", "k")},
    "conv": {"h": (28, 56), "w": (28, 56), "ci": (64, 256), "co": (64, 256)},
}
MULTIPLE = {"gemm": 64, "conv": 16}
LIMITS = {"cycles": 0.05, "seconds": 0.1}  # of an estimate's error, by the unit of costs


class TimeUp(Exception):
    """The run has reached its time limit."""


class Costs:
    """Costs of jobs, measured once and stored in a file, until the time limit."""

    def __init__(self, measurer: Measurer, path: Path | None, seconds: float | None) -> None:
        self._measurer, self._path = measurer, path
        self._end = math.inf if seconds is None else time.monotonic() + seconds
        self._known = {own["job"]: own["cost"] for own in earlier_entries(path, FORMAT, VERSION, "costs")}

    def measure(self, jobs: Sequence[Job]) -> Iterator[Measured]:
        """Implements Measurer."""
        for job in jobs:
            name = f"{job.hardware.name}: {json.dumps(job.workload.to_dict())} {job.config} {job.prepacked}"
            if name in self._known:
                yield Measured(job=job, cost=self._known[name])
                continue
            self.check_time()
            for measured in self._measurer.measure([job]):
                self._known[name] = measured.cost
                self._write()
                yield measured

    def close(self) -> None:
        """Do nothing: no process was started."""

    def check_time(self, _: GenerationProgress | None = None) -> None:
        """Raise TimeUp if the time limit is reached."""
        if time.monotonic() > self._end:
            raise TimeUp

    def _write(self) -> None:
        if self._path is not None:
            costs = [{"job": job, "cost": cost} for job, cost in self._known.items()]
            write_whole(self._path, json.dumps({"format": FORMAT, "version": VERSION, "costs": costs}))


def random_shapes(op: str, count: int, seed: int = 0, dtype: str | None = None) -> RandomShapes:
    """Return shapes of which most axes can be reduced."""
    return RandomShapes(op=op, count=count, ranges=RANGES[op], multiple=MULTIPLE[op], seed=seed, dtype=dtype)


def series(entry: Entry, hardware: Hardware, costs: Measurer) -> list[dict[str, Any]]:
    """Return sizes and costs, relative to the entry, of its fractions and multiples along each proportional axis and
    along all of them at once."""
    found = []
    single = [(axis,) for axis in entry.proportional]
    for axes in (*single, entry.proportional) if len(single) > 1 else single:
        for factor in (*(1 / own for own in reversed(FACTORS)), *FACTORS):
            own = {axis: getattr(entry.workload, axis) for axis in axes}
            if any(extent * factor % 1 for extent in own.values()):
                continue
            workload = resized(entry.workload, {axis: int(extent * factor) for axis, extent in own.items()})
            job = Job(workload=workload, config=entry.config, hardware=hardware, prepacked=entry.prepacked)
            cost = next(iter(costs.measure([job]))).cost
            if cost is not None:
                size = factor ** len(axes)
                found.append({"axes": " ".join(axes), "size": size, "cost": cost / entry.cost})
    return found


def measure(
    op: str, hardware: Hardware, database: ShapeDatabase, costs: Costs, given: argparse.Namespace
) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return the series of some entries, by shape, and the held-out shapes of one operator."""
    prepacked = hardware.cpu is not None  # as in a model
    database.generate(
        target=hardware,
        random=random_shapes(op, given.shapes, dtype=given.dtype),
        limit=12,
        candidates=given.candidates,
        threshold=None,
        tolerance=0.8 * LIMITS["cycles" if hardware.cpu is None else "seconds"],
        prepacked=prepacked,
        measurer=costs,
        progress=costs.check_time,
    )
    kept = [
        entry
        for _, entry in database.entries(target=hardware)
        if (entry.config.op, entry.prepacked) == (op, prepacked) and entry.proportional
    ]
    kept.sort(key=lambda entry: (-len(entry.proportional), entry.kind != "initial"))
    found = {shape.text(entry.workload): series(entry, hardware, costs) for entry in kept[:SERIES]}
    held = [
        {
            "shape": shape.text(own.workload),
            "entry": shape.text(own.hit.entry.workload),
            "estimate": own.hit.estimate,
            "cost": own.cost,
            "error": own.error,
        }
        for own in held_out(
            database, hardware, costs, given.held_out, op=op, most_macs=given.most_macs, prepacked=prepacked
        )
    ]
    return found, held


def linearity_plot(op: str, found: dict[str, list[dict[str, Any]]]) -> Html | None:
    """Plot cost against size, both relative to the entry, and the line of proportionality."""
    lines = []
    sizes = [point["size"] for points in found.values() for point in points]
    if sizes:
        ends = [(end, end) for end in (min(sizes), max(sizes))]
        lines.append(Series("in proportion", ends, line=True, dots=False, dashed=True))
    for name, points in found.items():
        for axes in dict.fromkeys(point["axes"] for point in points):
            own = sorted(
                (p["size"], p["cost"]) for p in [*points, {"axes": axes, "size": 1, "cost": 1}] if p["axes"] == axes
            )
            lines.append(Series(f"{name}: {axes}", own, line=True))
    x, y = Axis("size relative to the entry", log=True), Axis("cost relative to the entry", log=True)
    return plot(f"{op}: cost against size", x, y, lines)


def estimates_plot(op: str, held: Sequence[dict[str, Any]], unit: str) -> Html | None:
    """Plot measured against estimated cost."""
    if not held:
        return None
    ends = [(end, end) for end in (min(own["estimate"] for own in held), max(own["estimate"] for own in held))]
    points = [(own["estimate"], own["cost"]) for own in held]
    series = [
        Series("held-out shapes", points, hover=[own["shape"] for own in held]),
        Series("equal", ends, line=True, dots=False, dashed=True),
    ]
    x, y = Axis(f"estimate, {unit}", log=True), Axis(f"actual, {unit}", log=True)
    return plot(f"{op}: measured against estimated", x, y, series)


def figures(op: str, found: dict[str, list[dict[str, Any]]], held: Sequence[dict[str, Any]], limit: float) -> str:
    """Format the figures of one operator in one line."""
    errors = [own["error"] for own in held]
    told = f"{op}: {share_within(errors, limit):.0%} of {len(errors)} estimates within {limit:.0%}"
    if errors:
        told += f", median error {statistics.median(map(abs, errors)):.1%}, maximum {max(map(abs, errors)):.1%}"
    for kind, larger in (("multiples", True), ("fractions", False)):
        of_kind = (point for points in found.values() for point in points if (point["size"] > 1) == larger)
        off = [point["cost"] / point["size"] - 1 for point in of_kind]
        if off:
            told += f"; {share_within(off, limit):.0%} of {len(off)} {kind} of entries in proportion"
    return told


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="write the HTML page to this file")
    parser.add_argument("--target", default="vsim/vta", help="vsim/<preset or TOML file>, or llvm for this CPU")
    parser.add_argument(
        "--op", choices=("gemm", "conv"), action="append", help="measure this operator only; default: both"
    )
    parser.add_argument("--shapes", type=int, default=4, help="number of random shapes per operator")
    parser.add_argument("--candidates", type=int, default=2, help="number of tilings to measure per shape")
    parser.add_argument("--held-out", type=int, default=40, help="number of held-out shapes per operator")
    parser.add_argument(
        "--most-macs", type=int, default=MOST_MACS, help="maximum multiply-accumulates of a held-out shape"
    )
    parser.add_argument("--dtype", help="default: int8 on accelerators, float32 on CPUs")
    parser.add_argument("--database", default="sqlite://", help="store the database in this file; default: in memory")
    parser.add_argument("--measured", type=Path, help="store all costs in this file and continue from it")
    parser.add_argument("--seconds", type=float, help="stop after this time; the same command continues")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page. Returns 1 if the time limit was reached before all was measured."""
    given = parsed(arguments)
    hardware = hardware_of(given.target)
    unit = "cycles" if hardware.cpu is None else "seconds"
    sections, told = [], []
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(ShapeDatabase(given.database))
        measurer = stack.enter_context(contextlib.closing(measurer_for_shapes(hardware)))
        costs = Costs(measurer, given.measured, given.seconds)
        for op in given.op or ("gemm", "conv"):
            try:
                found, held = measure(op, hardware, database, costs, given)
            except TimeUp:
                print(f"{op}: time limit reached; run the same command to continue")
                return 1
            rows = [
                (own["shape"], own["entry"], f"{own['estimate']:.4g}", f"{own['cost']:.4g}", f"{own['error']:+.1%}")
                for own in held
            ]
            plots = side_by_side(linearity_plot(op, found), estimates_plot(op, held, unit))
            shapes = table(("shape", "entry", "estimate", "actual", "error"), rows)
            sections.append(Section(f"{op}: held-out shapes", join([plots, shapes])))
            told.append(figures(op, found, held, LIMITS[unit]))
            print(told[-1])
    write_page(given.output, page(f"Estimates of the shape database on {hardware.name}", told, [], sections))
    return 0


if __name__ == "__main__":
    sys.exit(main())
