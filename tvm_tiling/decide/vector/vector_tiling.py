"""How many elements of an element-wise operator an accelerator loads, computes and stores at a time (page 06).

Loads, the vector engine and the store work on three tiles at once. A tile is large enough that rounding to whole cycles
is a percent of its slowest part, small enough that the first load and the last store, which nothing hides, are a small
part of the whole, and fits its buffers in two versions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...errors import HardwareError
from ...hardware.machine import Machine
from ..explain import Sections
from ..tiling import Decision, Reason

ENOUGH = 128.0  # cycles that the slowest part of a tile should take
LEAST_TILES = 16
MOST_TILES = 4096
VERSIONS = 2
SCRATCH = 4  # results of 4 bytes that an expression may hold at once


@dataclass(frozen=True, kw_only=True)
class VectorTiling(Decision):
    """`tile` are its extents along the axes of the result, `elements` their product; `cycles` of the whole if its
    slowest part hides all others. On a machine with several storage levels `versions` of a tile are in each of them,
    the outermost first."""

    op: ClassVar[str] = "elementwise"

    tile: tuple[int, ...]
    elements: int
    cycles: float
    bound: str  # the slowest part: a memory's load, the vector engine or the store
    versions: tuple[int, ...] = ()

    sections: ClassVar[Sections] = (
        ("tile", ("tile", "elements", "versions")),
        ("predicted", ("bound", "cycles")),
    )


def tile_of(extents: Sequence[int], most: int) -> tuple[int, ...]:
    """Extents of a tile of at most so many elements, and of one at least: whole inner axes, and an even part of the one
    that is too long."""
    size = 1
    for axis in range(len(extents) - 1, -1, -1):
        if size * extents[axis] > most or axis == 0:
            fits = max(1, min(extents[axis], most // size))
            part = -(-extents[axis] // -(-extents[axis] // fits))
            return (*(1 for _ in range(axis)), part, *extents[axis + 1 :])
        size *= extents[axis]
    return ()


def decide_vector(
    extents: Sequence[int], operands: Sequence[tuple[str, int]], result: int, operations: int, machine: Machine
) -> VectorTiling:
    """The tile of an operator whose result has these extents. operands: the memory that each is loaded to and its
    bytes per element; result: bytes of one; operations: instructions of the vector engine. HardwareError if not even
    one element fits."""
    points = math.prod(extents)
    held: dict[str, int] = {"out": VERSIONS * result + SCRATCH * 4}
    parts = {"vector engine": max(1, operations) / machine.vector.lanes}
    for memory, size in operands:
        held[memory] = held.get(memory, 0) + VERSIONS * size
        rate = machine.rate("external", memory)
        if rate is not None:
            parts[f"load of {memory}"] = parts.get(f"load of {memory}", 0.0) + size / rate
    rate = machine.rate("external", "out")
    if rate is not None:
        parts["store"] = parts.get("load of out", 0.0) + result / rate
    bound = max(parts, key=lambda part: parts[part])
    wanted = max(ENOUGH / parts[bound], points / MOST_TILES)
    elements, why = (
        int(max(1, min(wanted, points / LEAST_TILES))),
        f"the {bound} takes {parts[bound]:.3g} cycles for one",
    )
    for memory, each in held.items():
        space = machine.capacity(memory)
        # A kilobyte is left to the starts of buffers, which are aligned.
        if space is not None and elements * each > space - min(1024, space // 4):
            elements = (space - min(1024, space // 4)) // each
            why = f"memory {memory!r} holds {VERSIONS} versions of them and scratch space"
            if elements < 1:
                raise HardwareError(
                    f"{machine.hardware.name}: memory {memory!r} of {space} bytes holds no element of {each} bytes; "
                    f"accepted: at least {2 * each}"
                )
    return vector_tiling(extents, elements, why, bound, points * parts[bound])


def vector_tiling(
    extents: Sequence[int], most: int, why: str, bound: str, cycles: float, versions: tuple[int, ...] = ()
) -> VectorTiling:
    """The decision for tiles of at most so many elements, and why not of more."""
    tile = tile_of(extents, most)
    return VectorTiling(
        tile=tile,
        elements=math.prod(tile),
        cycles=cycles,
        bound=bound,
        versions=versions,
        reasons=(
            Reason("tile", tile, f"whole inner axes, as far as {most} elements go"),
            Reason("elements", math.prod(tile), f"at most {most}: {why}"),
            Reason("cycles", cycles, f"{math.prod(extents)} elements, bound by the {bound}"),
        ),
    )
