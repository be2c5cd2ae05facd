"""Tiling of a reduction over windows or axes for an accelerator's vector engine.

A tile of results and the input under it are on the chip, while the input of the next tile is loaded and the results of
the previous one are stored. Tiles grow from the innermost axis outwards as long as they fit, up to a size at which the
first load and the last store, which overlap with nothing, remain small. A window that does not fit as a whole is
processed in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ...errors import HardwareError
from ...figures import quantity
from ...hardware.machine import Machine
from ..explain import Sections
from ..gemm.traffic import ceil_div
from ..tiling import Decision, Reason
from .vector_tiling import SCRATCH, VERSIONS, usual_tile


@dataclass(frozen=True, kw_only=True)
class Windows:
    """A reduction: extents of its `points` (the axes of the result) and of its `summed` (reduction) axes.

    `steps` gives for each axis of the input the distance of a step along each axis of `points` and then of `summed`.
    `d_in` and `d_out` are bytes per element, `behind` the number of epilogue operations per result.
    """

    points: tuple[int, ...]
    summed: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    d_in: int
    d_out: int
    behind: int = 0

    def read(self, points: Sequence[int], summed: Sequence[int]) -> int:
        """Return the elements of the input under these points and this part of their windows: the bounding box."""
        extents = (*points, *summed)
        return prod(
            1 + sum(abs(step) * (extent - 1) for step, extent in zip(own, extents, strict=True)) for own in self.steps
        )


@dataclass(frozen=True, kw_only=True)
class WindowTiling(Decision):
    """A tile of `points` results along each axis, with `summed` elements of each axis of their windows at a time.
    `cycles` is the total if the slowest part, `bound`, overlaps with all others."""

    op: ClassVar[str] = "window"

    points: tuple[int, ...]
    summed: tuple[int, ...]
    cycles: float
    bound: str

    sections: ClassVar[Sections] = (
        ("tile", ("points", "summed")),
        ("predicted", ("bound", "cycles")),
    )


def decide_windows(windows: Windows, machine: Machine) -> WindowTiling:
    """Return the tile of a reduction whose input is loaded to buffer "a". Raises HardwareError if not one element
    fits."""
    space = _Capacity(windows, machine)
    summed = _fitting_window(windows, space, machine)
    count = prod(windows.points)
    parts = _parts(windows, windows.points, machine)
    bound = max(parts, key=lambda part: parts[part])
    wanted = usual_tile(count, parts[bound])
    points = [1] * len(windows.points)
    for axis in range(len(points) - 1, -1, -1):
        whole = windows.points[axis]
        most = 1
        # Windows of adjacent tiles overlap, so a small remainder of an axis is included.
        limit = 2 * wanted if whole * prod(points) <= 2 * wanted else wanted
        while most < whole and most * prod(points) < limit:
            longer = [*points[:axis], most + 1, *points[axis + 1 :]]
            if not space.holds(longer, summed):
                break
            most += 1
        points[axis] = ceil_div(whole, ceil_div(whole, most))
        if points[axis] < whole:
            break
    parts = _parts(windows, points, machine)
    bound = max(parts, key=lambda part: parts[part])
    cycles = count * parts[bound]
    return WindowTiling(
        points=tuple(points),
        summed=summed,
        cycles=cycles,
        bound=bound,
        reasons=(
            Reason("points", tuple(points), f"the {bound} takes {parts[bound]:.3g} cycles per result"),
            Reason("summed", summed, "whole windows" if summed == windows.summed else "steps of a window that fit"),
            Reason("cycles", cycles, f"{quantity(count, 'point')}, bound by the {bound}"),
        ),
    )


def _parts(windows: Windows, points: Sequence[int], machine: Machine) -> dict[str, float]:
    """Return the cycles of each part per result, with tiles of these points."""
    parts = {"vector engine": (prod(windows.summed) + 1 + windows.behind) / machine.vector.lanes}
    read = windows.read(points, windows.summed) * windows.d_in / prod(points)
    for part, operand, size in (("load of a", "a", read), ("store", "out", windows.d_out)):
        rate = machine.rate("external", operand)
        if rate is not None:
            parts[part] = size / rate
    if machine.memory("external").ports == 1:
        parts["port of external memory"] = parts.pop("load of a", 0.0) + parts.pop("store", 0.0)
    return parts


class _Capacity:
    """Capacity of a machine's buffers for the tiles of a reduction."""

    def __init__(self, windows: Windows, machine: Machine) -> None:
        self.windows = windows
        self.rooms = [
            None if (space := machine.capacity(name)) is None else space - min(1024, space // 4)
            for name in ("a", "out")
        ]

    def holds(self, points: Sequence[int], summed: Sequence[int]) -> bool:
        """Return whether two versions of a tile and of its input fit, with scratch space."""
        own = self.windows
        each = VERSIONS * own.d_out + (SCRATCH * 4 if own.behind else 0)
        sizes = (VERSIONS * own.read(points, summed) * own.d_in, prod(points) * each)
        return all(space is None or size <= space for space, size in zip(self.rooms, sizes, strict=True))


def _fitting_window(windows: Windows, space: _Capacity, machine: Machine) -> tuple[int, ...]:
    """Return the largest part of a window that fits, halving from the outermost axis on."""
    one = [1] * len(windows.points)
    summed = list(windows.summed)
    while not space.holds(one, summed):
        axis = next((axis for axis, extent in enumerate(summed) if extent > 1), None)
        if axis is None:
            raise HardwareError(
                f"{machine.hardware.name}: buffers of {machine.capacity('a')} and {machine.capacity('out')} bytes "
                f"cannot hold an element of a reduction; expected at least {2 * VERSIONS * windows.d_in} for a"
            )
        summed[axis] = ceil_div(summed[axis], 2)
    return tuple(summed)
