"""Accuracy of a database's estimates and of their intervals: python -m benchmarks.estimates --op gemm

Generates a database from random shapes, on this CPU or with --hardware on a simulated machine, and measures shapes that
are not in it: multiples of its entries, with the entries' configurations, and others, with the analytical
configuration. --database stores the measurements; the same command continues the run.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tvm_tiling.decide.as_scheduled import as_scheduled
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.measuring.measurer import Job, Measurer
from tvm_tiling.tuning.measuring.steady import measurer_for_shapes
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.estimate import Estimate
from tvm_tiling.tuning.shapes.key import Workload

from .held_out import resized
from .random_database import RANGES, drawn, generate, hardware_named, parser, prepacked_on

FACTORS = (2, 3, 4, 5, 6, 8)
MOST_MACS = 2**29
NARROW = 0.1


@dataclass(frozen=True, kw_only=True)
class Told:
    """A shape that is not in the database, its estimated cost and its measured cost."""

    workload: Workload
    estimate: Estimate
    cost: float

    @property
    def error(self) -> float:
        """Relative error of the estimate, positive if it is too high."""
        return self.estimate.cost / self.cost - 1

    @property
    def inside(self) -> bool:
        """Whether the interval contains the measured cost."""
        low, high = self.estimate.interval
        return low <= self.cost <= high

    @property
    def width(self) -> float:
        """Relative distance of the interval's upper end from the estimate."""
        return self.estimate.interval[1] / self.estimate.cost - 1


class Asked:
    """A database and a machine that measures the shapes it estimates."""

    def __init__(self, database: ShapeDatabase, hardware: Hardware, measurer: Measurer, op: str, seed: int) -> None:
        self._database, self._hardware, self._measurer, self._op = database, hardware, measurer, op
        self._rng = random.Random(seed)
        self.prepacked = prepacked_on(hardware)

    def multiples(self, count: int) -> Iterator[Told]:
        """Generate random multiples of entries along one or more axes."""
        kept = [entry for _, entry in self._database.entries(target=self._hardware) if entry.config.op == self._op]
        axes = list(RANGES[self._op])
        for _ in range(100 * count if kept else 0):
            if not count:
                break
            own, longer = self._rng.choice(kept).workload, self._rng.sample(axes, self._rng.randint(1, len(axes)))
            shape = resized(own, {axis: getattr(own, axis) * self._rng.choice(FACTORS) for axis in longer})
            if shape.macs > MOST_MACS:
                continue
            hit = self._database.match(shape, target=self._hardware, prepacked=self.prepacked)
            if hit is None or hit.estimated is None:
                continue
            for told in self._told(shape, hit.estimated):
                count -= 1
                yield told

    def others(self, count: int) -> Iterator[Told]:
        """Generate random shapes, executed as they are with the database."""
        for _ in range(count):
            yield from self.told_of(drawn(self._op, 1, self._rng).workloads(self._hardware))

    def told_of(self, shapes: Iterable[Workload]) -> Iterator[Told]:
        """Generate shapes that the database estimates, executed as they are with the database."""
        for shape in shapes:
            found = self._database.estimate(shape, target=self._hardware, prepacked=self.prepacked)
            if found is not None:
                yield from self._told(as_scheduled(shape, self._hardware), found)

    def _told(self, shape: Workload, estimate: Estimate) -> Iterator[Told]:
        job = Job(workload=shape, config=estimate.config, hardware=self._hardware, prepacked=self.prepacked)
        for measured in self._measurer.measure([job]):
            if measured.cost is not None:
                yield Told(workload=shape, estimate=estimate, cost=measured.cost)


def figures(name: str, told: Sequence[Told]) -> dict[str, object]:
    """Return the columns of the table for some shapes."""
    errors = sorted(abs(one.error) for one in told)
    return {
        "shapes": name,
        "count": len(told),
        "median_error": statistics.median(errors) if errors else None,
        "error_of_nine_tenths": errors[int(0.9 * (len(errors) - 1))] if errors else None,
        "within_a_quarter": sum(error <= 0.25 for error in errors),
        "inside": sum(one.inside for one in told),
        "narrow": sum(one.width <= NARROW for one in told),
        "median_width": statistics.median(one.width for one in told) if told else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser(__doc__, asked=40).parse_args(arguments)
    hardware = hardware_named(given.hardware)
    measurer = measurer_for_shapes(hardware)
    with contextlib.closing(measurer), ShapeDatabase(given.database) as database:
        asked = Asked(database, hardware, measurer, given.op, given.seed)
        generate(database, hardware, measurer, given)
        for name, told in (("multiples", asked.multiples(given.asked)), ("others", asked.others(given.asked))):
            print(json.dumps(figures(name, list(told))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
