"""How many elements of an element-wise operator stream through storage levels at a time (pages 02 and 06).

A tile passes every level on its way in and out as it is. Its loads into each level, the vector engine and the stores
out of each work on tiles of their own at once; tiles are as large as on a machine without levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import HardwareError
from ...hardware.machine import Machine
from ..vector.vector_tiling import SCRATCH, VectorTiling, usual_tile, vector_tiling

LEVEL_VERSIONS = 3  # of a tile in each level: one comes, one is used, one hides the latency
MOST_VERSIONS = 12  # where there is room: small tiles of an inner level do not hide the latency of an outer one


class _Capacity(NamedTuple):
    """Bytes of a level for an operand, or for all of them, what `each` element of a version takes, and besides."""

    level: str
    whole: int
    each: int
    scratch: int

    @property
    def elements(self) -> int:
        """The most in a tile."""
        return self.whole // max(1, LEVEL_VERSIONS * self.each + self.scratch)

    def versions(self, elements: int) -> int:
        """Of tiles of so many elements."""
        return min(MOST_VERSIONS, (self.whole - self.scratch * elements) // max(1, self.each * elements))


def decide_vector_on_levels(
    extents: Sequence[int], operands: Sequence[tuple[str, int]], result: int, operations: int, machine: Machine
) -> VectorTiling:
    """The tile of an operator whose result has these extents. operands: "a" or "b", the operand of every level that
    each takes the room of, and its bytes per element; result: bytes of one; operations: instructions of the vector
    engine. HardwareError if a level does not hold one element."""
    points = math.prod(extents)
    size = {"a": 0, "b": 0, "out": result}
    for operand, width in operands:
        size[operand] += width
    parts = {"vector engine": max(1, operations) / machine.vector.lanes}
    capacities: list[_Capacity] = []
    instances = 1
    for number, level in enumerate(machine.hardware.levels):
        instances *= level.instances
        rates = {operand: (level.bytes_per_cycle or math.inf) * instances for operand in size}
        if number == 0:
            rates = {name: min(rate, machine.rate("external", name) or math.inf) for name, rate in rates.items()}
        parts[f"loads into {level.name}"] = size["a"] / rates["a"] + size["b"] / rates["b"]
        parts[f"store out of {level.name}"] = result / rates["out"]
        needs = {"a": sum(size.values())} if level.bytes is not None else size
        for operand, each in needs.items():
            whole = instances * level.capacity(operand)
            last = number == len(machine.hardware.levels) - 1 and (level.bytes is not None or operand == "out")
            # A kilobyte is left to the starts of buffers, which are aligned.
            capacities.append(_Capacity(level.name, whole - min(1024, whole // 4), each, SCRATCH * 4 if last else 0))
    tightest = min(capacities, key=lambda own: own.elements)
    bound = max(parts, key=lambda part: parts[part])
    wanted = usual_tile(points, parts[bound])
    if tightest.elements < 1:
        raise HardwareError(
            f"{machine.hardware.name}: level {tightest.level!r} holds no element of {tightest.each} bytes in "
            f"{LEVEL_VERSIONS} versions; expected at least {LEVEL_VERSIONS * tightest.each + tightest.scratch} bytes"
        )
    elements = int(min(wanted, tightest.elements))
    why = f"the {bound} takes {parts[bound]:.3g} cycles for one"
    if wanted > tightest.elements:
        why = f"level {tightest.level!r} holds {LEVEL_VERSIONS} versions of them and scratch space"
    versions = tuple(
        min(own.versions(elements) for own in capacities if own.level == level.name)
        for level in machine.hardware.levels
    )
    return vector_tiling(extents, elements, why, bound, points * parts[bound], versions)
