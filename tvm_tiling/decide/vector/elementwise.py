"""How element-wise work and row-wise reductions are shared and cut: vectors, shares of the cores, whether to share.

Such work is bound by the memory it moves, so there is little to choose: whole vectors along what is contiguous, equal
shares of the outermost axis that has enough of them, and no threads at all where starting them (gemm/cost.py) costs
more than they save.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...hardware.description import Cpu
from ..explain import Sections
from ..gemm.cost import LAST_CACHE, PARALLEL_START
from ..tiling import Decision, Reason

# Cycles of one vector's worth of an operation of each kind: addition and the like, a division or root, a function.
PLAIN_OPERATION = 0.6
DIVISION = 8.0
FUNCTION = 16.0
# Shares of an axis that each core should at least get, so that none waits long for another.
SHARES_PER_CORE = 4


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a function does: bytes read and written, elements computed, and operations for each of them.

    `word` is the widest element in bytes. `functions` are calls such as exp, `divisions` include roots.
    """

    bytes: int
    points: int
    word: int
    plain: float = 1.0
    divisions: float = 0.0
    functions: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ElementwiseTiling(Decision):
    """Vectors of `lanes` elements, `tasks` shares of the cores."""

    op: ClassVar[str] = "elementwise"

    lanes: int
    tasks: int
    predicted_seconds: float

    sections: ClassVar[Sections] = (
        ("vectors", ("lanes",)),
        ("cores", ("tasks",)),
        ("predicted", ("predicted_seconds",)),
    )


def bytes_per_cycle(resident: float, cpu: Cpu) -> float:
    """Bandwidth of one core from the level of memory that holds `resident` bytes."""
    l2, l3 = cpu.cache(2), cpu.cache(3)
    if l2 is not None and resident <= 0.8 * l2.size / l2.cores:
        return cpu.l2_bytes_per_cycle
    if l3 is not None and resident <= LAST_CACHE * l3.size:
        return cpu.l3_bytes_per_cycle
    return cpu.memory_bytes_per_cycle


def decide_elementwise(work: Work, cpu: Cpu) -> ElementwiseTiling:
    """Lanes and tasks of one function."""
    lanes = max(1, cpu.lanes(max(1, work.word)))
    each = work.plain * PLAIN_OPERATION + work.divisions * DIVISION + work.functions * FUNCTION
    computing = work.points / lanes * each
    cycles = max(computing, work.bytes / bytes_per_cycle(work.bytes, cpu))
    saved = cycles * (1 - 1 / cpu.cores)
    tasks = cpu.cores if saved > PARALLEL_START else 1
    if tasks > 1:
        cycles = cycles / tasks + PARALLEL_START
        why = f"{saved:.0f} cycles saved are more than the {PARALLEL_START:.0f} of a start"
    else:
        why = f"at most {saved:.0f} cycles would be saved, a start takes {PARALLEL_START:.0f}"
    clock = (cpu.clock_mhz or 3000.0) * 1e6
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
    """Which axis to share among tasks: the outermost that gives equal shares or many of them, else the longest.

    `units` are what each axis counts, outermost first: elements, or vectors along the vector's axis.
    """
    for axis, count in enumerate(units):
        if count >= SHARES_PER_CORE * tasks or (count >= tasks and count % tasks == 0):
            return axis
    return max(range(len(units)), key=lambda axis: units[axis])
