"""Element-wise operators and row-wise reductions: vector width, division among cores, and whether to use several cores.

Such operators are memory-bound, so there is little to choose: full vectors along the contiguous axis, equal shares of
the outermost axis that has enough elements, and a single thread if starting threads costs more than it saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...hardware.description import Cpu
from ..explain import Sections
from ..tiling import Decision, Reason

# Minimum number of shares of an axis per core, so that no core waits long for another.
SHARES_PER_CORE = 4


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of a function: bytes read and written, elements computed, and operations per element.

    `word` is the widest element in bytes. `functions` counts calls such as exp; `divisions` includes roots.
    """

    bytes: int
    points: int
    word: int
    plain: float = 1.0
    divisions: float = 0.0
    functions: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ElementwiseTiling(Decision):
    """Vectors of `lanes` elements, divided among `tasks` cores."""

    op: ClassVar[str] = "elementwise"

    lanes: int
    tasks: int
    predicted_seconds: float

    sections: ClassVar[Sections] = (
        ("vectors", ("lanes",)),
        ("cores", ("tasks",)),
        ("predicted", ("predicted_seconds",)),
    )


def decide_elementwise(work: Work, cpu: Cpu) -> ElementwiseTiling:
    """Return the lanes and tasks of one function."""
    lanes = max(1, cpu.lanes(max(1, work.word)))
    costs = cpu.kernel_costs
    each = work.plain * costs.plain_operation + work.divisions * costs.division + work.functions * costs.function
    computing = work.points / lanes * each
    cycles = max(computing, work.bytes / cpu.bytes_per_cycle(work.bytes))
    saved = cycles * (1 - 1 / cpu.cores)
    tasks = cpu.cores if saved > cpu.parallel_start else 1
    if tasks > 1:
        cycles = cycles / tasks + cpu.parallel_start
        why = f"saves {saved:.0f} cycles; starting threads takes {cpu.parallel_start:.0f}"
    else:
        why = f"several would save at most {saved:.0f} cycles; starting threads takes {cpu.parallel_start:.0f}"
    clock = cpu.mhz * 1e6
    return ElementwiseTiling(
        lanes=lanes,
        tasks=tasks,
        predicted_seconds=cycles / clock,
        reasons=(
            Reason("lanes", lanes, f"a vector of the widest elements, {work.word} bytes each"),
            Reason("tasks", tasks, why),
        ),
    )


def shared_axis(units: Sequence[int], tasks: int) -> int:
    """Return the axis to divide among tasks: the outermost that gives equal shares or many of them, else the longest.

    `units` are the counts of each axis, outermost first: elements, or vectors for the vectorised axis.
    """
    for axis, count in enumerate(units):
        if count >= SHARES_PER_CORE * tasks or (count >= tasks and count % tasks == 0):
            return axis
    return max(range(len(units)), key=lambda axis: units[axis])
