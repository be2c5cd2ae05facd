"""Effect of a database on shapes that it was not made from: python -m benchmarks.never_slower --op gemm

Generates a database from random shapes, on this CPU or with --hardware on a simulated machine; with --tuned some of
them are tuned as well. Then looks up random shapes and random multiples of its entries. Where the database's
configuration differs from the analytical one, both are measured, on the CPU in a paired benchmark. Ratios above 1.05
are measured twice more, and those above it every time are reported with both configurations. --database stores what was
measured; the same command continues the run.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import tvm_tiling as tt
from tvm_tiling.decide.as_scheduled import as_scheduled
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.errors import TilingError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.measuring.local import LocalMeasurer
from tvm_tiling.tuning.measuring.measurer import Job, Measurer
from tvm_tiling.tuning.measuring.simulator import SimulatorMeasurer
from tvm_tiling.tuning.measuring.steady import SteadyMeasurer
from tvm_tiling.tuning.shapes.choice import decision_for
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.key import Workload, extents_of, key_of
from tvm_tiling.tuning.shapes.random_shapes import RandomShapes

from .held_out import resized
from .random_database import RANGES, drawn, generate, hardware_named, parser, prepacked_on
from .summary import geometric_mean

FACTORS = (1, 2, 3, 4, 5, 6, 7, 8)
MOST_MACS = 2**30
NEAR = 8  # an entry is near a shape that is at most 8 times as large
SLOWER = 1.05
AGAIN = 2  # further measurements of slower configurations


@dataclass(frozen=True, kw_only=True)
class Told:
    """A shape, and its time with the database relative to that without, for each measurement; empty if both decide the
    same. `tuned`: the shape is covered by a tuned entry that is at most NEAR times smaller. `without` is the
    configuration without the database, `with_it` the one with it."""

    workload: Workload
    ratios: tuple[float, ...]
    tuned: bool
    without: Config
    with_it: Config | None

    @property
    def ratio(self) -> float:
        """Median of the ratios; 1 if both decide the same."""
        return sorted(self.ratios)[len(self.ratios) // 2] if self.ratios else 1.0

    @property
    def is_slower(self) -> bool:
        """Whether every measurement was slower by more than SLOWER."""
        return bool(self.ratios) and min(self.ratios) > SLOWER


class Asked:
    """A database, a machine, and the measurers for it."""

    def __init__(self, database: ShapeDatabase, hardware: Hardware, op: str, seed: int) -> None:
        self._database, self._hardware, self._op = database, hardware, op
        self.searched: set[Workload] = set()
        self._rng = random.Random(seed)
        self.prepacked = prepacked_on(hardware)
        self._local = LocalMeasurer() if hardware.cpu is not None else None
        self.measurer: Measurer = SteadyMeasurer(self._local) if self._local else SimulatorMeasurer()

    def random(self, count: int) -> Iterator[Told]:
        """Random shapes."""
        return self._told(drawn(self._op, count, self._rng).workloads(self._hardware))

    def multiples(self, count: int, *, searched: bool = False) -> Iterator[Told]:
        """Generate random multiples of entries along one or more axes; with `searched`, near multiples of tuned
        ones."""
        return self._told(self._multiples(count, searched))

    def _multiples(self, count: int, searched: bool) -> Iterator[Workload]:
        kept = [entry for _, entry in self._database.entries(target=self._hardware) if entry.config.op == self._op]
        kept = [entry for entry in kept if not searched or entry.workload in self.searched]
        axes, seen = list(RANGES[self._op]), {entry.workload for entry in kept}
        for _ in range(100 * count if kept else 0):
            if not count:
                return
            own = self._rng.choice(kept).workload
            shape = resized(own, {axis: getattr(own, axis) * self._rng.choice(FACTORS) for axis in axes})
            if shape in seen or shape.macs > (NEAR * own.macs if searched else MOST_MACS):
                continue
            seen.add(shape)
            count -= 1
            yield shape

    def _told(self, shapes: Iterable[Workload]) -> Iterator[Told]:
        for shape in shapes:
            workload = as_scheduled(shape, self._hardware)
            with contextlib.suppress(TilingError):
                own = decision_for(workload, self._hardware, prepacked=self.prepacked)
                kept = self._database.config_for(workload, self._hardware, prepacked=self.prepacked)
                hit = self._database.match(workload, target=self._hardware, prepacked=self.prepacked)
                tuned = hit is not None and hit.entry.workload in self.searched and _times(workload, hit.entry) <= NEAR
                ratios = [] if kept is None or kept == own else list(self._ratios(workload, own, kept))
                yield Told(workload=workload, ratios=tuple(ratios), tuned=tuned, without=own, with_it=kept)

    def _ratios(self, workload: Workload, own: Config, kept: Config) -> Iterator[float]:
        """Return the time of `kept` relative to `own`: once, and again while it is slower."""
        without, with_it = (
            Job(workload=workload, config=config, hardware=self._hardware, prepacked=self.prepacked)
            for config in (own, kept)
        )
        if self._local is None:
            costs = {one.job: one.cost for one in self.measurer.measure([without, with_it])}
            first, second = costs[without], costs[with_it]
            if first is not None and second is not None:
                yield second / first
            return
        for _ in range(1 + AGAIN):
            found = self._local.compare(without, with_it)
            if isinstance(found, str):
                print(f"{workload}: {found}", file=sys.stderr)
                return
            yield found.after / found.before
            if found.after <= SLOWER * found.before:
                return


def _times(workload: Workload, entry: Entry) -> float:
    return math.prod(extents_of(workload)) / math.prod(extents_of(entry.workload))


def within(seconds: float, told: Iterator[Told]) -> Iterator[Told]:
    """Yield comparisons until the time limit; all of them if there is none."""
    end = time.monotonic() + seconds if seconds else math.inf
    for one in told:
        yield one
        if time.monotonic() > end:
            return


def figures(name: str, told: Sequence[Told]) -> dict[str, object]:
    """Return the columns of the table for some shapes."""
    differ = [one for one in told if one.ratios]
    tuned = [one.ratio for one in told if one.tuned]
    worst = max(told, key=lambda one: one.ratio, default=None)
    return {
        "shapes": name,
        "count": len(told),
        "decided_otherwise": len(differ),
        "time_beside_none": geometric_mean([one.ratio for one in told]) if told else None,
        "of_those_decided_otherwise": geometric_mean([one.ratio for one in differ]) if differ else None,
        "worst": worst and worst.ratio,
        "worst_shape": worst and dict(zip(key_of(worst.workload).axes, extents_of(worst.workload), strict=True)),
        "repeatably_slower": sum(one.is_slower for one in told),
        "near_a_searched_entry": len(tuned),
        "times_as_fast_there": 1 / geometric_mean(tuned) if tuned else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser(__doc__, asked=200)
    options.add_argument("--tuned", type=int, default=0, help="number of random shapes to tune as well")
    options.add_argument("--trials", type=int, default=24, help="trials per search")
    options.add_argument("--seconds", type=float, default=0.0, help="time limit in seconds per kind of shape; 0: none")
    given = options.parse_args(arguments)
    hardware = hardware_named(given.hardware)
    with ShapeDatabase(given.database) as database:
        asked = Asked(database, hardware, given.op, given.seed)
        with contextlib.closing(asked.measurer):
            generate(database, hardware, asked.measurer, given)
            searched = RandomShapes(op=given.op, count=given.tuned or 1, ranges=RANGES[given.op], seed=given.seed + 1)
            for workload in list(searched.workloads(hardware))[: given.tuned]:
                asked.searched.add(as_scheduled(workload, hardware))
                tt.tune(
                    workload,
                    hardware,
                    database=database,
                    trials=given.trials,
                    prepacked=asked.prepacked,
                    progress=False,
                )
            kinds = [("random", asked.random(given.asked)), ("multiples", asked.multiples(given.asked))]
            if given.tuned:
                kinds.append(("near tuned ones", asked.multiples(given.asked, searched=True)))
            for name, told in kinds:
                found = list(within(given.seconds, told))
                print(json.dumps(figures(name, found)), flush=True)
                for one in found:
                    if one.is_slower:
                        ratios = ", ".join(f"{ratio:.2f}" for ratio in one.ratios)
                        print(f"{one.workload}: {ratios}; {one.without}; {one.with_it}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
