"""Held-out shapes of a database, for comparing its estimates with measured costs."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_tiling.decide.as_scheduled import as_scheduled
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.tuning.measuring.measurer import Job, Measurer
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.entries import Entry
from tvm_tiling.tuning.shapes.kept_config import kept_config
from tvm_tiling.tuning.shapes.key import Workload
from tvm_tiling.tuning.shapes.matching import Hit
from tvm_tiling.workload import GemmWorkload

FACTORS = (2, 3, 4, 5, 6, 8, 12, 16)
MOST_MACS = 2**31


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A shape, the database entry that covers it, and its cost with that entry's configuration, in the unit of the
    entry's cost."""

    workload: Workload
    hit: Hit
    cost: float

    @property
    def error(self) -> float:
        """Relative error of the estimate, positive if it is too high."""
        return self.hit.estimate / self.cost - 1


def resized(workload: Workload, extents: Mapping[str, int]) -> Workload:
    """Return the shape with other extents of some axes and contiguous operands."""
    dense = {"lda": None, "ldb": None, "ldc": None} if isinstance(workload, GemmWorkload) else {}
    return dataclasses.replace(workload, **extents, **dense)  # type: ignore[arg-type]


def held_out(
    database: ShapeDatabase,
    hardware: Hardware,
    measurer: Measurer,
    count: int,
    *,
    op: str,
    seed: int = 1,
    most_macs: int = MOST_MACS,
    prepacked: bool = False,
) -> Iterator[HeldOut]:
    """Return `count` shapes of one operator, "gemm" or "conv", or as many as are found; deterministic for a seed.

    The shapes are not in the database. They are multiples of its entries by 2 to 16 along two or more axes, of at most
    `most_macs` multiply-accumulates, within the proportional range, with configurations that are valid on the machine.
    """
    rng = random.Random(seed)
    kept = [
        entry for _, entry in database.entries(target=hardware) if (entry.config.op, entry.prepacked) == (op, prepacked)
    ]
    entries = [entry for entry in kept if len(entry.proportional) >= 2]
    seen = {entry.workload for entry in kept}
    found = 0
    for _ in range(100 * count if entries else 0):
        if found == count:
            break
        shape = _multiple(rng, rng.choice(entries))
        if shape in seen or shape.macs > most_macs:
            continue
        seen.add(shape)
        for hit in database.matches(shape, target=hardware, prepacked=prepacked):
            if not hit.proportional:
                continue
            config = kept_config(hit.entry, as_scheduled(shape, hardware), hardware, prepacked=prepacked)
            if config is None:
                continue
            cost = next(
                iter(measurer.measure([Job(workload=shape, config=config, hardware=hardware, prepacked=prepacked)]))
            ).cost
            if cost is not None:
                found += 1
                yield HeldOut(workload=shape, hit=hit, cost=cost)
                break


def _multiple(rng: random.Random, entry: Entry) -> Workload:
    axes = rng.sample(entry.proportional, rng.randint(2, len(entry.proportional)))
    return resized(entry.workload, {axis: getattr(entry.workload, axis) * rng.choice(FACTORS) for axis in axes})


def share_within(errors: Sequence[float], limit: float) -> float:
    """Return the share of errors of at most that size; 1 if there are none."""
    return sum(abs(error) <= limit for error in errors) / len(errors) if errors else 1.0
