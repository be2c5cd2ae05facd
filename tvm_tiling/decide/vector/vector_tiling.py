"""How many elements of an element-wise operator an accelerator loads, computes and stores at a time.

Loads, the vector engine and the stores work on three tiles at once, of which the buffers hold two versions. With few
tiles, the first load and the last store run without overlap. With many, rounding to whole cycles and the latencies of
transfers add up, since a buffer is only reloaded after its contents have been used. The total is therefore estimated
for several numbers of tiles, each twice the previous one, and the fastest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
SCRATCH = 4  # 4-byte intermediate results of an expression, at most


def usual_tile(points: int, cycles: float) -> float:
    """Return the elements, at least one, of a tile whose slowest part takes `cycles` per element of `points`: enough
    that rounding to whole cycles costs about a percent, with tiles neither too few to overlap nor too many."""
    return max(1, min(max(ENOUGH / cycles, points / MOST_TILES), points / LEAST_TILES))


@dataclass(frozen=True, kw_only=True)
class VectorTiling(Decision):
    """The tile of an element-wise operator.

    `tile` holds its extents along the axes of the result, `elements` their product. `cycles` is an estimate of the
    total; on a machine with several storage levels, of the slowest part alone. There, each level holds `versions` of a
    tile, outermost level first.
    """

    op: ClassVar[str] = "elementwise"

    tile: tuple[int, ...]
    elements: int
    cycles: float
    bound: str  # the slowest part: the load of a memory, the vector engine or the store
    versions: tuple[int, ...] = ()

    sections: ClassVar[Sections] = (
        ("tile", ("tile", "elements", "versions")),
        ("predicted", ("bound", "cycles")),
    )


def tile_of(extents: Sequence[int], most: int) -> tuple[int, ...]:
    """Return the extents of a tile of at most `most` elements and at least one: whole inner axes, and an even part of
    the axis that is too long."""
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
    """Return the tile of an operator whose result has these extents.

    operands: the memory into which each is loaded and its bytes per element; result: bytes per element; operations:
    vector-engine instructions per element. Raises HardwareError if not even one element fits.
    """
    points = math.prod(extents)
    held: dict[str, int] = {"out": VERSIONS * result + SCRATCH * 4}
    for memory, size in operands:
        held[memory] = held.get(memory, 0) + VERSIONS * size
    capacity, full = points, ""
    for memory, each in held.items():
        space = machine.capacity(memory)
        # One kilobyte is reserved for the alignment of buffers.
        if space is not None and capacity * each > space - min(1024, space // 4):
            capacity, full = (space - min(1024, space // 4)) // each, memory
            if capacity < 1:
                raise HardwareError(
                    f"{machine.hardware.name}: memory {memory!r} of {space} bytes cannot hold an element of {each} "
                    "bytes; "
                    f"expected at least {2 * each}"
                )
    stream = _Stream(operands, result, operations, machine)
    fewest = -(-points // capacity)
    counts = list(_doubled(fewest, max(fewest, min(points, MOST_TILES))))
    elements = min((-(-points // tiles) for tiles in counts), key=lambda size: stream.cycles(points, size))
    cycles = stream.cycles(points, elements)
    why = f"{-(-points // elements)} tiles are the fastest of {counts[0]} to {counts[-1]}"
    if elements == -(-points // fewest) and full:
        why = f"memory {full!r} holds {VERSIONS} versions of them and scratch space"
    return vector_tiling(extents, elements, why, stream.bound, cycles)


def _doubled(least: int, most: int) -> Iterator[int]:
    while least <= most:
        yield least
        least *= 2


class _Stream:
    """Time of an operator's tiles in each part of a machine: loads, the vector engine, and the store."""

    def __init__(self, operands: Sequence[tuple[str, int]], result: int, operations: int, machine: Machine) -> None:
        self.machine, self.operations = machine, max(1, operations)
        self.bytes: dict[str, int] = {}
        for memory, size in operands:
            self.bytes[memory] = self.bytes.get(memory, 0) + size
        self.result = result
        each = {f"load of {memory}": self._transfer(memory, size) for memory, size in self.bytes.items()}
        each |= {"vector engine": self.operations / machine.vector.lanes, "store": self._transfer("out", result)}
        self.bound = max(each, key=lambda part: each[part])

    def _transfer(self, operand: str, size: float) -> float:
        rate = self.machine.rate("external", operand)
        return size / rate if rate else 0.0

    def cycles(self, points: int, elements: int) -> float:
        """Return the estimated total cycles with tiles of `elements` elements."""
        machine = self.machine
        loads = {name: math.ceil(self._transfer(name, size * elements)) for name, size in self.bytes.items()}
        by_vector = loads.pop("out", 0)  # the vector engine loads operands other than A and B
        load, store = max(loads.values(), default=0), math.ceil(self._transfer("out", self.result * elements))
        vector = machine.vector
        step = math.ceil(elements / vector.lanes) + (0 if vector.forwards else vector.latency)
        compute = by_vector + self.operations * (0 if machine.vector_is_tail else step)
        external, token = machine.memory("external"), machine.issue.token_cycles
        # An operand buffer is reloaded after it has been read; a result buffer is rewritten after it has been stored.
        there, back = load + external.latency + compute + 2 * token, compute + store + external.latency + 2 * token
        each = max(load, compute, store, there / VERSIONS, back / VERSIONS)
        if external.ports == 1:
            each = max(each, sum(loads.values()) + by_vector + store)
        tiles = -(-points // elements)
        return there + store + external.latency + 2 * token + (tiles - 1) * each


def vector_tiling(
    extents: Sequence[int], most: int, why: str, bound: str, cycles: float, versions: tuple[int, ...] = ()
) -> VectorTiling:
    """Return the decision for tiles of at most `most` elements; `why` is the reason for this limit."""
    tile = tile_of(extents, most)
    return VectorTiling(
        tile=tile,
        elements=math.prod(tile),
        cycles=cycles,
        bound=bound,
        versions=versions,
        reasons=(
            Reason("tile", tile, f"whole inner axes, up to {most} elements"),
            Reason("elements", math.prod(tile), f"at most {most}: {why}"),
            Reason("cycles", cycles, f"{math.prod(extents)} elements, bound by the {bound}"),
        ),
    )
