"""Tile size of element-wise operators that stream through several storage levels.

A tile passes through every level unchanged on its way in and out. Loads into each level, the vector engine and the
stores work on different tiles at the same time. Tiles are as large as on a machine without levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import HardwareError
from ...hardware.machine import Machine
from ..vector.vector_tiling import SCRATCH, VectorTiling, usual_tile, vector_tiling

LEVEL_VERSIONS = 3  # versions of a tile per level: one arrives, one is used, one covers the latency
# Upper limit if there is capacity: small tiles of an inner level do not cover the latency of an outer one.
MOST_VERSIONS = 12


class _Capacity(NamedTuple):
    """Capacity of a level for one operand or for all: `whole` bytes, of which a version of a tile takes `each` bytes
    per element and scratch space `scratch` bytes per element."""

    level: str
    whole: int
    each: int
    scratch: int

    @property
    def elements(self) -> int:
        """Largest number of elements in a tile."""
        return self.whole // max(1, LEVEL_VERSIONS * self.each + self.scratch)

    def versions(self, elements: int) -> int:
        """Return how many versions of a tile of `elements` elements fit."""
        return min(MOST_VERSIONS, (self.whole - self.scratch * elements) // max(1, self.each * elements))


def decide_vector_on_levels(
    extents: Sequence[int], operands: Sequence[tuple[str, int]], result: int, operations: int, machine: Machine
) -> VectorTiling:
    """Return the tile of an element-wise operator with result shape `extents`.

    operands: for each, "a" or "b" (the operand slot of every level that it uses) and its bytes per element; result:
    bytes per element; operations: vector-engine instructions per element. Raises HardwareError if a level cannot hold
    one element.
    """
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
            # One kilobyte is reserved for the alignment of buffers.
            capacities.append(_Capacity(level.name, whole - min(1024, whole // 4), each, SCRATCH * 4 if last else 0))
    tightest = min(capacities, key=lambda own: own.elements)
    bound = max(parts, key=lambda part: parts[part])
    wanted = usual_tile(points, parts[bound])
    if tightest.elements < 1:
        raise HardwareError(
            f"{machine.hardware.name}: level {tightest.level!r} cannot hold {LEVEL_VERSIONS} versions of an "
            f"element of {tightest.each} bytes; expected at least {LEVEL_VERSIONS * tightest.each + tightest.scratch} "
            "bytes"
        )
    elements = int(min(wanted, tightest.elements))
    why = f"the {bound} takes {parts[bound]:.3g} cycles per element"
    if wanted > tightest.elements:
        why = f"level {tightest.level!r} holds {LEVEL_VERSIONS} versions of them and scratch space"
    versions = tuple(
        min(own.versions(elements) for own in capacities if own.level == level.name)
        for level in machine.hardware.levels
    )
    return vector_tiling(extents, elements, why, bound, points * parts[bound], versions)
