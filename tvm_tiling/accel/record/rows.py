"""The instructions of one block as rows of the program's table: operands as strided accesses, extents, queues."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np
from tvm import tirx

from ..instructions.row import Instruction
from ..program.isa import INSTRUCTION, LOOPS, ElementType
from .buffers import Places
from .instances import Instances
from .nest import PLACES


@dataclass(frozen=True)
class StridedAccess:
    """An operand of all instances: the byte address of its first element, and elements per step of each inner loop."""

    memory: str
    start: np.ndarray
    steps: tuple[int, ...]
    kind: ElementType


def access(found: Instances, places: Places, buffer: tirx.Buffer, indices: Sequence[tirx.Expr]) -> StridedAccess:
    """Return the operand buffer[indices] of a block, with indices over its own axes. Raises Coupled if they are not
    affine."""
    place = places[buffer]
    # As one expression, so that quotients and remainders split over several indices simplify to the original value.
    element: tirx.Expr = tirx.IntImm("int32", 0)
    fixed = 0  # kept apart: a constant of another integer type would wrap the loop variables in casts
    for index, stride in zip(indices, place.strides, strict=True):
        if isinstance(index, tirx.IntImm):
            fixed += int(index) * stride
        else:
            element = element + index * tirx.const(stride, str(index.ty))
    first, steps = found.affine(element)
    return StridedAccess(
        place.memory, place.start(found.values) + (first + fixed) * place.kind.bytes, steps, place.kind
    )


@dataclass
class Rows:
    """Rows of the table with their order numbers; `memories` and `queues` are those of the program in the order of
    use."""

    memories: list[str]
    queues: tuple[str, ...]
    tables: list[np.ndarray] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        found: Instances,
        op: Instruction,
        queue: str,
        loops: Sequence[Sequence[int]],
        *,
        number: int = 0,
        a: StridedAccess | None = None,
        b: StridedAccess | None = None,
        c: StridedAccess,
        **columns: object,
    ) -> None:
        """Add one instruction for each instance, number `number` of its block. `loops` lists the inner loops that form
        each loop of the instruction: an empty list is a single iteration, several are merged, outermost first."""
        assert number < PLACES
        rows = np.zeros(len(found), INSTRUCTION)
        rows["op"], rows["queue"] = op, self.queues.index(queue)
        rows["dtype"], rows["result_dtype"] = (a or c).kind, c.kind
        rows["extent"] = 1
        for place, together in enumerate(loops):
            for loop in together:
                rows["extent"][:, place] *= found.extents[:, loop].astype(np.int32)
        for name, operand in (("a", a), ("b", b), ("c", c)):
            if operand is None:
                continue
            if operand.memory not in self.memories:
                self.memories.append(operand.memory)
            rows[f"{name}_memory"] = self.memories.index(operand.memory)
            rows[name] = operand.start
            strides = [operand.steps[together[-1]] if together else 0 for together in loops]
            rows[f"{name}_stride"] = [*strides, *(0,) * (LOOPS - len(strides))]
        for name, value in columns.items():
            rows[name] = value
        self.tables.append(rows)
        self.keys.append(found.keys + number)

    def in_order(self) -> np.ndarray:
        """Return the whole table in execution order."""
        if not self.tables:
            return np.zeros(0, INSTRUCTION)
        order = np.argsort(np.concatenate(self.keys), kind="stable")
        return np.concatenate(self.tables)[order]


def grouped(
    found: Instances, accesses: Sequence[StridedAccess], most: int, alone: Container[int] = ()
) -> list[list[int]] | None:
    """Return the inner loops merged into at most `most` loops, outermost first, or None if more are needed. Loops with
    one iteration are dropped. Neighbours merge if every operand continues where the inner loop ends. Loops in `alone`
    are neither merged nor dropped."""
    groups: list[list[int]] = []
    for loop in range(len(found.inner)):
        if loop in alone:
            groups.append([loop])
            continue
        if (found.extents[:, loop] == 1).all():
            continue
        if groups and groups[-1][-1] not in alone and _continues(found, accesses, groups[-1][-1], loop):
            groups[-1].append(loop)
        else:
            groups.append([loop])
    return groups if len(groups) <= most else None


def _continues(found: Instances, accesses: Sequence[StridedAccess], outer: int, inner: int) -> bool:
    extent = found.extents[:, inner]
    return bool((extent == extent[0]).all()) and all(
        w.steps[outer] == w.steps[inner] * int(extent[0]) for w in accesses
    )
