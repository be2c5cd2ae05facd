"""Number of shapes that a small database covers: python -m benchmarks.budget --budget 40

Plans a database for the operators of networks and for random matrix multiplications with sizes from 1 to 4096,
generates it, and measures the shapes that it estimates: the operators of the networks, and random matrix
multiplications with another seed. A shape counts as covered if its estimate is within 25 percent of the measured cost.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
from collections.abc import Sequence

from tvm_tiling.tuning.measuring.steady import measurer_for_shapes
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.random_shapes import RandomShapes, usual_dtype

from .coverage import PRODUCTS, shapes_of
from .estimates import Asked, figures
from .random_database import add_places, hardware_named

AXES = {axis: (1, 4096) for axis in ("m", "n", "k")}


def products(count: int, seed: int) -> RandomShapes:
    """Return random matrix multiplications with log-uniform sizes from 1 to 4096."""
    return RandomShapes(op="gemm", count=count, ranges=AXES, multiple=1, seed=seed)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_places(parser)
    parser.add_argument("--budget", type=int, default=40, help="number of shapes to measure")
    parser.add_argument("--planned", type=int, default=300, help="random matrix multiplications to plan for")
    parser.add_argument("--asked", type=int, default=60, help="random matrix multiplications to estimate and measure")
    parser.add_argument("--networks", default=",".join(PRODUCTS), help="comma-separated networks; empty: none")
    given = parser.parse_args(arguments)
    hardware = hardware_named(given.hardware)
    networks = {name: shapes_of(name, usual_dtype(hardware)) for name in filter(None, given.networks.split(","))}
    measurer = measurer_for_shapes(hardware)
    with contextlib.closing(measurer), ShapeDatabase(given.database) as database:
        wanted = list(itertools.chain.from_iterable(networks.values()))
        plan = database.plan(given.budget, target=hardware, shapes=wanted, random=products(given.planned, seed=1))
        print(json.dumps({"planned": len(plan.shapes), "wanted": plan.wanted, "expected": plan.served}), flush=True)
        asked = Asked(database, hardware, measurer, "gemm", seed=2)
        database.generate(
            target=hardware,
            shapes=plan.shapes,
            limit=0,
            candidates=1,
            threshold=None,
            prepacked=asked.prepacked,
            measurer=measurer,
        )
        groups = {**networks, "random products": list(products(given.asked, seed=2).workloads(hardware))}
        for name, shapes in groups.items():
            told = figures(name, list(asked.told_of(shapes)))
            print(json.dumps({**told, "asked": len(shapes)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
