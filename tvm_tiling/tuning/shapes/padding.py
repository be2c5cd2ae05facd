"""Padded extents: the axes that a machine pads to whole units, and the size that costs are proportional to."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import DatabaseError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from .key import ShapeKey, Workload

POINTS = "points"  # of a convolution: the positions that the kernel is applied to, over all images
_FIELDS = ("axis", "factor", "divisor", "unit")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """An axis that is padded to whole units, with minimal padding.

    The padded quantity is `factor` elements for each `divisor` of the axis: the channels of a convolution occur once
    per kernel tap, and belong to one group. The axis "points" is the output positions of all images.
    """

    axis: str
    unit: int
    factor: int = 1
    divisor: int = 1

    def count(self, extent: int) -> int:
        """Return the number of units for `extent` elements of the axis."""
        return -(-(extent // self.divisor * self.factor) // self.unit)

    def padded(self, extent: int) -> int:
        """Return the elements with their padding: 13 in units of 5 are 15."""
        return self.count(extent) * self.unit


@dataclass(frozen=True)
class Padding:
    """The units of the padded axes; the others count in elements."""

    units: tuple[Unit, ...] = ()

    def counts(self, key: ShapeKey, extents: Sequence[int]) -> tuple[int, ...]:
        """Return the counts that shapes are matched by: units for each independently padded axis, elements for the
        others."""
        by_axis = self._by_axis
        return tuple(
            by_axis[axis].count(extent) if axis in by_axis else extent
            for axis, extent in zip(key.axes, extents, strict=True)
        )

    def pads(self, axis: str) -> bool:
        """Return whether an axis is matched by its units."""
        return axis in self._by_axis

    def size(self, key: ShapeKey, workload: Workload, extents: Sequence[int]) -> int:
        """Return the size that costs are proportional to: the product of all axes in units. For a convolution whose
        padding and stride change the image, these are the axes of the output image."""
        counts = dict(zip(key.axes, self.counts(key, extents), strict=True))
        if isinstance(workload, GemmWorkload):
            return math.prod(counts.values())
        by_axis = self._by_axis
        points = points_of(workload)
        count = by_axis[POINTS].count(points) if POINTS in by_axis else points
        return count * counts["ci"] * counts["co"]

    @functools.cached_property
    def _by_axis(self) -> Mapping[str, Unit]:
        return {unit.axis: unit for unit in self.units}

    def to_list(self) -> list[dict[str, Any]]:
        """Return plain values for JSON."""
        return [{name: getattr(unit, name) for name in _FIELDS} for unit in self.units]

    @classmethod
    def from_list(cls, record: Any, key: ShapeKey) -> Padding:
        """Read the output of `to_list`. DatabaseError for anything else, or an axis that the key does not have."""
        if not isinstance(record, list):
            raise DatabaseError(f"padding: {record!r}; expected a list of units")
        units = []
        for unit in record:
            if not isinstance(unit, Mapping) or set(unit) != set(_FIELDS):
                raise DatabaseError(f"padding: {unit!r}; expected a table of {', '.join(_FIELDS)}")
            numbers = [unit[name] for name in _FIELDS if name != "axis"]
            if unit["axis"] not in (*key.axes, POINTS) or any(type(n) is not int or n < 1 for n in numbers):
                raise DatabaseError(f"padding: {dict(unit)}; expected an axis of the operator and numbers above 0")
            units.append(Unit(**unit))
        return cls(tuple(units))


def points_of(workload: ConvWorkload) -> int:
    """Return the number of positions that the kernel of a convolution is applied to."""
    w = workload
    return w.n * (w.d * w.h * w.w if w.transposed else w.do * w.ho * w.wo)


def padding_of(workload: Workload, hardware: Hardware) -> Padding:
    """Return the padding of an operator on `hardware`: the units of its levels, and the blocks of a matrix engine that
    processes only full blocks. Rows of a convolution are output channels, columns points, depth the channels of all
    taps. CPUs, and machines whose partial blocks cost only their own operations, pad nothing."""
    tile = hardware.near_tile
    if tile is None or (hardware.w_fold is not None and isinstance(workload, ConvWorkload)):
        return Padding()
    padded = {"padded": "mnk", "streamed": "mk", "skipped": ""}[tile.partial_blocks]
    unit = {
        axis: math.lcm(
            getattr(tile, f"block_{axis}") if axis in padded else 1,
            *(getattr(level, f"unit_{axis}") for level in hardware.levels),
        )
        for axis in "mnk"
    }
    if isinstance(workload, GemmWorkload):
        units = [Unit(axis=axis, unit=unit[axis]) for axis in "mnk"]
    else:
        taps = workload.kd * workload.kh * workload.kw
        units = [
            Unit(axis="co", unit=unit["m"], divisor=workload.groups),
            Unit(axis="ci", unit=unit["k"], factor=taps, divisor=workload.groups),
        ]
        if hardware.levels:  # tiled as its matrix multiplication; otherwise blocks are rectangles of the image
            units.append(Unit(axis=POINTS, unit=unit["n"]))
    return Padding(tuple(own for own in units if own.unit > 1))
