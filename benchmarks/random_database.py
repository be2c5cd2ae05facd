"""A database of random shapes and the options of benchmarks that ask it for others."""

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
    """The options that such a benchmark has at least; `asked` shapes of each kind by default."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_places(found)
    found.add_argument("--op", choices=sorted(RANGES), default="gemm")
    found.add_argument("--shapes", type=int, default=12, help="random shapes that the database is made from")
    found.add_argument("--limit", type=int, default=8, help="boundary shapes of each at most")
    found.add_argument("--asked", type=int, default=asked, help="shapes of each kind that are asked for")
    found.add_argument("--seed", type=int, default=9)
    return found


def add_places(found: argparse.ArgumentParser) -> None:
    """Options that say which machine is measured, and where the database is kept."""
    found.add_argument("--hardware", default="", help="a preset or a description in TOML; left out: this CPU")
    found.add_argument("--database", default="sqlite://", help="kept there; left out: in memory")


def hardware_named(name: str) -> Hardware:
    """The machine of the option --hardware."""
    return Hardware.load(name) if name else hardware_of("llvm")


def prepacked_on(hardware: Hardware) -> bool:
    """Whether weights are prepacked there, as in a model."""
    return hardware.cpu is not None


def drawn(op: str, count: int, rng: random.Random) -> RandomShapes:
    """Random shapes to ask for."""
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
