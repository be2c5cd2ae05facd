"""Databases generated on the simulator, and errors of estimates for held-out multiples."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.database import random_shapes
from benchmarks.held_out import held_out, share_within
from tvm_tiling.tuning.measuring.measurer import Job
from tvm_tiling.tuning.measuring.simulator import SimulatorMeasurer
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.key import Workload

sys.path.append(str(Path(__file__).parents[1] / "accel"))  # whose machines are used here

from level_machines import levels

__all__ = ["cycles", "errors_of_held_out", "generated", "levels", "share_within"]


def cycles(workload: Workload, config, hardware) -> float | None:
    """Return simulated cycles, None if the machine does not support it."""
    return next(SimulatorMeasurer().measure([Job(workload=workload, config=config, hardware=hardware)])).cost


def generated(hardware, op: str, count: int, seed: int = 0, limit: int = 12) -> ShapeDatabase:
    """Return a database in memory of random shapes that are large enough for most of their axes to be reduced."""
    db = ShapeDatabase("sqlite://")
    shapes = random_shapes(op, count, seed)
    db.generate(target=hardware, random=shapes, limit=limit, candidates=2, threshold=None, tolerance=0.04)
    return db


def errors_of_held_out(db: ShapeDatabase, hardware, op: str, count: int) -> list[float]:
    """Return relative errors of the estimates of `count` shapes of one operator."""
    return [own.error for own in held_out(db, hardware, SimulatorMeasurer(), count, op=op)]
