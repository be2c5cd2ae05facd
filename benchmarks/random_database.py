"""A database of random shapes, and the options of the benchmarks that use it."""

from __future__ import annotations

import argparse
import random

from tvm_tiling.hardware.description import Hardware
from tvm_tiling.target import hardware_of
from tvm_tiling.tuning.measuring.measurer import Measurer
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.tuning.shapes.random_shapes import RandomShapes

RANGES = {
    "gemm": {axis: (64, 1024) for axis in ("m", "n", "k")},
    "conv": {"h": (7, 56), "w": (7, 56), "ci": (16, 256), "co": (16, 256)},
}


def parser(doc: str | None, *, asked: int) -> argparse.ArgumentParser:
    """Add the common options of these benchmarks; `asked` is the default number of shapes of each kind."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_places(found)
    found.add_argument("--op", choices=sorted(RANGES), default="gemm")
    found.add_argument("--shapes", type=int, default=12, help="number of random shapes in the database")
    found.add_argument("--limit", type=int, default=8, help="maximum number of boundary shapes per shape")
    found.add_argument("--asked", type=int, default=asked, help="number of shapes of each kind to look up")
    found.add_argument("--seed", type=int, default=9)
    return found


def add_places(found: argparse.ArgumentParser) -> None:
    """Add the options for the machine to measure on and for the database file."""
    found.add_argument("--hardware", default="", help="a preset or a TOML file; default: this CPU")
    found.add_argument("--database", default="sqlite://", help="store the database in this file; default: in memory")


def hardware_named(name: str) -> Hardware:
    """Return the machine of the option --hardware."""
    return Hardware.load(name) if name else hardware_of("llvm")


def prepacked_on(hardware: Hardware) -> bool:
    """Return whether weights are prepacked on the machine, as in a model."""
    return hardware.cpu is not None


def drawn(op: str, count: int, rng: random.Random) -> RandomShapes:
    """Return random shapes to look up."""
    return RandomShapes(op=op, count=count, ranges=RANGES[op], multiple=1, seed=rng.randint(0, 10**9))


def generate(database: ShapeDatabase, hardware: Hardware, measurer: Measurer, given: argparse.Namespace) -> None:
    """Measure random shapes and their boundary shapes."""
    database.generate(
        target=hardware,
        random=RandomShapes(op=given.op, count=given.shapes, ranges=RANGES[given.op], seed=given.seed),
        limit=given.limit,
        candidates=2,
        threshold=None,
        prepacked=prepacked_on(hardware),
        measurer=measurer,
    )
