"""Keys or values of new rows put behind those of the past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...hardware.description import Cpu
from ..explain import Sections
from ..tiling import Decision, Reason


@dataclass(frozen=True, kw_only=True)
class CacheAppend:
    """What the kernel computes: in each of `groups` heads of a batch, rows of `width` elements: those of the past, of
    which there is room for `room`, with `length` new ones from "before" on, `every` in all. Where the result is the
    memory of the past, only the new rows are written."""

    batch: Any  # numbers, or what TIR has for those that only a run brings
    room: Any
    length: Any
    every: Any
    groups: int
    width: int

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of what the kernel takes."""
        return {
            "past": ((self.batch, self.groups, self.room, self.width), "float32"),
            "new": ((self.batch, self.length, self.groups, self.width), "float32"),
            "before": ((self.batch,), "int32"),
        }

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """The same of what it gives."""
        return {"present": ((self.batch, self.groups, self.every, self.width), "float32")}


@dataclass(frozen=True, kw_only=True)
class AppendTiling(Decision):
    """Vectors of `lanes`; heads are shared by `tasks` cores."""

    op: ClassVar[str] = "append to a cache"
    FORM: ClassVar[str] = "append"

    form: str = FORM
    lanes: int
    tasks: int
    predicted_seconds: float

    sections: ClassVar[Sections] = (("copy", ("form", "lanes", "tasks")), ("predicted", ("predicted_seconds",)))


def decide_append(sizes: CacheAppend, cpu: Cpu) -> AppendTiling:
    """The configuration for sizes that are numbers; priced as a copy of all."""
    moved = 8.0 * sizes.batch * sizes.groups * sizes.every * sizes.width
    tasks = max(1, min(cpu.cores, sizes.batch * sizes.groups))
    return AppendTiling(
        lanes=cpu.lanes(4),
        tasks=tasks,
        predicted_seconds=(moved / tasks / cpu.bytes_per_cycle(moved) + cpu.parallel_start) / (1e6 * cpu.mhz),
        reasons=(Reason("form", AppendTiling.FORM, "only new rows are written where the result is the past's memory"),),
    )
