"""Groups of stages that can execute row by row: reductions over the same rows, and computations on their results.

Softmax, the norms and a mean with fused operators are such groups: the maximum of a row, the exponentials of its
elements, their sum, the quotients. What one stage passes to the next is one value per row or one row, so it stays in
registers and L1.

Stages are grouped by addresses: where a later stage reads what an earlier one wrote, axes with the same stride on both
sides are the same axis. The axes of the first reduction's result are the rows; all others are columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import tvm_ffi
from tvm import sym, tirx

from ..lowering.extents import number_of, quotient, same
from ..lowering.open_index import OpenIndices
from ..lowering.samples import Extent, is_open, sampled
from .loop_axes import renamed, split
from .stages import Axis, Stage

Columns = tuple[tuple[Extent, Extent], ...]  # (stride, extent) of each, outermost first


@dataclass(frozen=True)
class RowGroup:
    """Stages over common `rows`; each has these among its axes, by the same variables, and its own columns.

    `columns` gives the axes of each buffer of whole rows, outermost first, as their stride in the buffer's address and
    their extent.
    """

    rows: tuple[Axis, ...]
    stages: tuple[Stage, ...]
    columns: tuple[tuple[tirx.Buffer, Columns], ...] = ()

    def columns_of(self, stage: Stage) -> tuple[Axis, ...]:
        """The axes of a stage that are neither rows nor reduction axes."""
        names = {v for v, _ in self.rows}
        return tuple(a for a in stage.axes if a[0] not in names)

    def buffers(self) -> list[tirx.Buffer]:
        """Every buffer that the group writes."""
        return [w.buffer for stage in self.stages for w in stage.writes]


def row_groups(stages: Sequence[Stage], fuse: bool) -> list[RowGroup]:
    """The stages in groups, in order; a stage alone is a group if it cannot or must not be fused."""
    groups: list[RowGroup] = []
    for stage in stages:
        larger = joined(groups[-1], stage) if groups and fuse else None
        if larger is None:
            groups.append(_alone(stage))
        else:
            groups[-1] = larger
    return groups


def _alone(stage: Stage) -> RowGroup:
    return RowGroup(stage.axes, (stage,))


def joined(group: RowGroup, stage: Stage) -> RowGroup | None:
    """The group with one more stage; None if the stage reads nothing from it, or needs rows other than its own."""
    if not group.stages[0].reduced:
        return None
    stage = _with_split_rows(group, stage)
    names: dict[tirx.Var, tirx.Var] = {}
    columns: dict[tirx.Buffer, Columns] = dict(group.columns)
    met = False
    for address, writer, at in _links(group, stage):
        met = True
        written, read = strides(at, _axes(writer)), strides(address, _axes(stage))
        if written is None or read is None or not _differ(written) or not _differ(read) or len(read) != len(written):
            return None
        rows = {v for v, _ in group.rows}
        buffer = next(w.buffer for w in writer.writes if w.at.same_as(at))
        for variable, step, extent in written:
            mine, size = next(((v, e) for v, s, e in read if same(s, step)), (None, 0))
            if mine is None or not same(size, extent):
                return None
            if variable in rows and names.setdefault(mine, variable) is not variable:
                return None
        if any(v not in rows for v, _, _ in written):
            order = [(s, e) for v, s, e in written if v not in rows]
            columns[buffer] = tuple(sorted(order, key=lambda column: -sampled(column[0])))
    moving = {v for v, _ in group.rows}
    if not met or set(names.values()) != moving or len(names) != len(moving):
        return None
    if any(v in names for v, _ in stage.reduced):
        return None
    # A reduction for every column of a row, such as a matrix multiplication, does not run along the row.
    if stage.reduced and any(v not in names for v, _ in stage.axes):
        return None
    return RowGroup(group.rows, (*group.stages, renamed(stage, names)), tuple(columns.items()))


def _axes(stage: Stage) -> tuple[Axis, ...]:
    return (*stage.axes, *stage.reduced)


def _links(group: RowGroup, stage: Stage) -> Iterator[tuple[tirx.Expr, Stage, tirx.Expr]]:
    """(address that `stage` reads, the stage of the group that writes it, the address that it writes)."""
    for load in stage.reads():
        for writer in group.stages:
            for write in writer.writes:
                if write.buffer.same_as(load.source):
                    yield load.indices[0], writer, write.at


Stride = tuple[tirx.Var, Extent, Extent]


def _differ(found: Sequence[Stride]) -> bool:
    """Return whether all strides differ, for all sizes."""
    return not any(same(a, b) for (_, a, _), (_, b, _) in combinations(found, 2))


def strides(address: tirx.Expr, axes: Sequence[Axis]) -> list[Stride] | None:
    """(variable, stride, extent) of each axis in a linear address that starts at 0; None for other addresses."""
    if any(is_open(extent) for _, extent in axes):
        places = OpenIndices(axes)
        steps = places.steps(address, [v for v, _ in axes])
        if steps is None or steps[1]:
            return None
        found = [(v, number_of(places.expression(s)), e) for (v, e), s in zip(axes, steps[0], strict=True) if s]
        return found if all(is_open(step) or step > 0 for _, step, _ in found) else None
    parts = sym.detect_linear_equation(address, [v for v, _ in axes])
    if not all(isinstance(p, tirx.IntImm) for p in parts):
        return None
    if not axes:
        return [] if isinstance(address, tirx.IntImm) else None
    if len(parts) != len(axes) + 1 or int(parts[-1]):
        return None
    return [(v, int(p), extent) for (v, extent), p in zip(axes, parts, strict=False) if int(p)]


def _with_split_rows(group: RowGroup, stage: Stage) -> Stage:
    """The stage with an axis split in two where the group's results are read at its quotient: a row is part of that
    axis."""
    for address, _, _ in _links(group, stage):
        found: list[tirx.FloorDiv] = []
        tvm_ffi.structural_walk(address, (tirx.FloorDiv, found.append))
        for division in found:
            extents = dict(stage.axes)
            if division.a in extents:
                inner = number_of(division.b)
                if quotient(extents[division.a], inner) is not None:
                    return split(stage, division.a, inner)
    return stage
