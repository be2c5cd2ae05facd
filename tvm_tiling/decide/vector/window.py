"""How a reduction over windows or axes is cut for an accelerator's vector engine (page 06).

A tile of results and the input under it are on the chip, the next one's input being loaded and the last one's results
stored meanwhile. Tiles grow from the innermost axis outwards as long as they fit and no longer than hides what nothing
else hides, the first load and the last store. A window that does not fit as a whole comes in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ...errors import HardwareError
from ...hardware.machine import Machine
from ..explain import Sections
from ..gemm.traffic import ceil_div
from ..tiling import Decision, Reason
from .vector_tiling import SCRATCH, VERSIONS, usual_tile


@dataclass(frozen=True, kw_only=True)
class Windows:
    """A reduction: extents of its `points` (axes of the result) and of its `summed` axes. `steps` says of each axis of
    the input how far it goes for a step along each of the points, then of the reduction axes. `d_in` and `d_out` are
    bytes of elements, `behind` operations on each result."""

    points: tuple[int, ...]
    summed: tuple[int, ...]
    steps: tuple[tuple[int, ...], ...]
    d_in: int
    d_out: int
    behind: int = 0

    def read(self, points: Sequence[int], summed: Sequence[int]) -> int:
        """Elements of the input under so many points and so much of their windows: the box around them."""
        extents = (*points, *summed)
        return prod(
            1 + sum(abs(step) * (extent - 1) for step, extent in zip(own, extents, strict=True)) for own in self.steps
        )


@dataclass(frozen=True, kw_only=True)
class WindowTiling(Decision):
    """`points` of the result along each of its axes are made at a time, from `summed` of each axis of their windows;
    `cycles` of the whole if its slowest part, `bound`, hides all others."""

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
    """The tile of a reduction whose input is loaded to buffer "a". HardwareError if not one element fits."""
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
        # Windows of neighbouring tiles overlap: the rest of an axis comes along where it is no more than that again.
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
            Reason("points", tuple(points), f"the {bound} takes {parts[bound]:.3g} cycles for one"),
            Reason("summed", summed, "whole windows" if summed == windows.summed else "steps of a window that fit"),
            Reason("cycles", cycles, f"{count} points, bound by the {bound}"),
        ),
    )


def _parts(windows: Windows, points: Sequence[int], machine: Machine) -> dict[str, float]:
    """Cycles of each part for one result, in tiles of so many points."""
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
    """The room of a machine's buffers for the tiles of a reduction."""

    def __init__(self, windows: Windows, machine: Machine) -> None:
        self.windows = windows
        self.rooms = [
            None if (space := machine.capacity(name)) is None else space - min(1024, space // 4)
            for name in ("a", "out")
        ]

    def holds(self, points: Sequence[int], summed: Sequence[int]) -> bool:
        """Whether two versions of a tile and of its input find room, and scratch space."""
        own = self.windows
        each = VERSIONS * own.d_out + (SCRATCH * 4 if own.behind else 0)
        sizes = (VERSIONS * own.read(points, summed) * own.d_in, prod(points) * each)
        return all(space is None or size <= space for space, size in zip(self.rooms, sizes, strict=True))


def _fitting_window(windows: Windows, space: _Capacity, machine: Machine) -> tuple[int, ...]:
    """As much of a window as fits, halved from the outermost axis on."""
    one = [1] * len(windows.points)
    summed = list(windows.summed)
    while not space.holds(one, summed):
        axis = next((axis for axis, extent in enumerate(summed) if extent > 1), None)
        if axis is None:
            raise HardwareError(
                f"{machine.hardware.name}: buffers of {machine.capacity('a')} and {machine.capacity('out')} bytes hold "
                f"no element of a reduction; expected at least {2 * VERSIONS * windows.d_in} for a"
            )
        summed[axis] = ceil_div(summed[axis], 2)
    return tuple(summed)
