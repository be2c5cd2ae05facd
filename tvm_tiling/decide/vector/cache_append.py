"""Appending the keys or values of new rows to a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...hardware.description import Cpu
from ..explain import Sections
from ..tiling import Decision, Reason


@dataclass(frozen=True, kw_only=True)
class CacheAppend:
    """The computation: in each of `groups` heads of a batch, append `length` new rows of `width` elements at index
    "before" to the past rows, whose buffer holds up to `room` rows; the result has `every` rows. If the result shares
    the memory of the past rows, only the new rows are written.
    """

    batch: Any  # ints, or TIR expressions for dynamic sizes
    room: Any
    length: Any
    every: Any
    groups: int
    width: int

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's inputs."""
        return {
            "past": ((self.batch, self.groups, self.room, self.width), "float32"),
            "new": ((self.batch, self.length, self.groups, self.width), "float32"),
            "before": ((self.batch,), "int32"),
        }

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's outputs."""
        return {"present": ((self.batch, self.groups, self.every, self.width), "float32")}


@dataclass(frozen=True, kw_only=True)
class AppendTiling(Decision):
    """Vectors of `lanes` elements; `tasks` cores divide the heads."""

    op: ClassVar[str] = "append to a cache"
    FORM: ClassVar[str] = "append"

    form: str = FORM
    lanes: int
    tasks: int
    predicted_seconds: float

    sections: ClassVar[Sections] = (("copy", ("form", "lanes", "tasks")), ("predicted", ("predicted_seconds",)))


def decide_append(sizes: CacheAppend, cpu: Cpu) -> AppendTiling:
    """Return the configuration for static sizes; the predicted time is that of copying everything."""
    moved = 8.0 * sizes.batch * sizes.groups * sizes.every * sizes.width
    tasks = max(1, min(cpu.cores, sizes.batch * sizes.groups))
    return AppendTiling(
        lanes=cpu.lanes(4),
        tasks=tasks,
        predicted_seconds=(moved / tasks / cpu.bytes_per_cycle(moved) + cpu.parallel_start) / (1e6 * cpu.mhz),
        reasons=(
            Reason(
                "form", AppendTiling.FORM, "only new rows are written if the result shares the memory of the past rows"
            ),
        ),
    )
