"""The blocks of a scheduled function with the loops around them, and the execution order of their instances.

Every loop starts at 0, and every instance of a block has a number that increases in program order, so that the
instructions of all blocks, recorded block by block, can be merged into one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tvm import s_tir, tirx

from ...errors import UnsupportedOperator
from ...match.access import substitute, variables
from ...match.evaluate import evaluate

MOST_INSTANCES = 1 << 21
PLACES = 64  # order numbers available to the instructions of one instance of a block


@dataclass(eq=False)
class Loop:
    """A loop around blocks. `most` is its largest extent; `stages` are those of a software pipeline."""

    variable: tirx.Var
    extent: tirx.Expr
    most: int
    stages: tuple[int, ...] | None
    leaves: list[Leaf] = field(default_factory=list)  # the blocks below it
    size: int = 0  # order numbers of one iteration


@dataclass(eq=False)
class Leaf:
    """A block without nested blocks. `path` holds, for each loop, the index of the child of the loop body that contains
    it."""

    name: str
    realize: s_tir.SBlockRealize
    loops: tuple[Loop, ...]
    path: tuple[int, ...]
    start: int = 0  # order number of its first instance

    @property
    def block(self) -> s_tir.SBlock:
        return self.realize.block

    def annotation(self, key: str) -> object | None:
        return self.block.annotations.get(key)

    def bound(self, expr: tirx.Expr) -> tirx.Expr:
        """Return `expr`, given over the block's own axes, in terms of the loops around it."""
        return substitute(expr, self.axes)

    @property
    def axes(self) -> dict[tirx.Var, tirx.Expr]:
        values = zip(self.block.iter_vars, self.realize.iter_values, strict=True)
        return {axis.var: value for axis, value in values}


class Nest:
    """All blocks of a function in order, and the buffers that it allocates."""

    def __init__(self, func: tirx.PrimFunc, name: str) -> None:
        self.name = name
        self.leaves: list[Leaf] = []
        self.buffers: list[tirx.Buffer] = []
        root = func.body
        if not isinstance(root, s_tir.SBlockRealize):
            raise self.refuse("it has no root block; expected a function scheduled by tiling_schedule")
        self.buffers += list(root.block.alloc_buffers)
        self._walk(root.block.body, (), (), 0)

    def refuse(self, why: str) -> UnsupportedOperator:
        return UnsupportedOperator(f"{self.name}: cannot be recorded as a program: {why}")

    def _walk(self, stmt: tirx.Stmt, loops: tuple[Loop, ...], path: tuple[int, ...], start: int) -> int:
        """Collect the blocks below `stmt`. Return how many order numbers it takes."""
        if isinstance(stmt, tirx.For):
            return self._loop(stmt, loops, path, start)
        if isinstance(stmt, tirx.SeqStmt):
            size = 0
            for number, child in enumerate(stmt.seq):
                inside = (*path[:-1], number) if path else path
                size += self._walk(child, loops, inside, start + size)
            return size
        if isinstance(stmt, s_tir.SBlockRealize):
            if _holds_blocks(stmt.block.body):
                self.buffers += list(stmt.block.alloc_buffers)
                if stmt.block.iter_vars:
                    raise self.refuse(
                        f"block {stmt.block.name_hint!r} contains other blocks; expected blocks side by side"
                    )
                return self._walk(stmt.block.body, loops, path, start)
            leaf = Leaf(stmt.block.name_hint, stmt, loops, path, start)
            self.leaves.append(leaf)
            for loop in loops:
                loop.leaves.append(leaf)
            return PLACES
        raise self.refuse(f"it contains a {type(stmt).__name__} between blocks; expected loops and blocks")

    def _loop(self, stmt: tirx.For, loops: tuple[Loop, ...], path: tuple[int, ...], start: int) -> int:
        if not isinstance(stmt.min, tirx.IntImm) or int(stmt.min) != 0:
            raise self.refuse(f"loop {stmt.loop_var.name} does not start at 0; expected loops that do")
        stages = stmt.annotations.get("software_pipeline_stage")
        most = self._most(stmt.extent, loops, stmt.loop_var.name)
        loop = Loop(stmt.loop_var, stmt.extent, most, None if stages is None else tuple(int(s) for s in stages))
        loop.size = self._walk(stmt.body, (*loops, loop), (*path, 0), start)
        if loop.size * most >= 1 << 62:
            raise self.refuse(f"loop {stmt.loop_var.name} and its inner loops have too many iterations to be numbered")
        return loop.size * most

    def _most(self, extent: tirx.Expr, loops: Sequence[Loop], name: str) -> int:
        """Return the largest extent of a loop."""
        if isinstance(extent, tirx.IntImm):
            return int(extent)
        of = variables(extent)
        around = [loop for loop in loops if loop.variable in of]
        found = evaluate(extent, instances(around, self)[0])
        if found is None:
            raise self.refuse(
                f"the extent {extent} of loop {name} cannot be evaluated; expected integer expressions of "
                "loop variables"
            )
        return max(0, int(found.max(initial=0)))


def _holds_blocks(body: tirx.Stmt) -> bool:
    if isinstance(body, tirx.SeqStmt):
        return any(_holds_blocks(child) for child in body.seq)
    if isinstance(body, tirx.For):
        return _holds_blocks(body.body)
    return isinstance(body, s_tir.SBlockRealize)


def instances(loops: Sequence[Loop], nest: Nest) -> tuple[dict[tirx.Var, np.ndarray], dict[Loop, np.ndarray]]:
    """Return the values of the variables of `loops` at all iteration points in order: int64 arrays by variable and by
    loop."""
    count = 1
    for loop in loops:
        count *= loop.most
    if count > MOST_INSTANCES:
        raise nest.refuse(
            f"a block runs {count} times; expected at most {MOST_INSTANCES}; put more work into one instruction"
        )
    grid = np.indices([loop.most for loop in loops], dtype=np.int64).reshape(len(loops), count)
    values = {loop.variable: column for loop, column in zip(loops, grid, strict=True)}
    kept = np.ones(count, dtype=bool)
    for loop in loops:
        if not isinstance(loop.extent, tirx.IntImm):
            extent = evaluate(loop.extent, values)
            if extent is None:
                raise nest.refuse(f"the extent {loop.extent} of a loop cannot be evaluated")
            kept &= values[loop.variable] < extent
    if not kept.all():
        values = {variable: column[kept] for variable, column in values.items()}
    return values, {loop: values[loop.variable] for loop in loops}
