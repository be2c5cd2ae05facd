"""Attention as stages: a matrix multiplication, stages over rows of its result, and a multiplication by a third
operand.

    scores[batch, i, j] = sum over d of left(batch, i, d) * right(batch, j, d)
    one group of stages over the rows (batch, i), such as a scale, a mask and a softmax: row_group.py
    result[batch, i, e] = sum over j of weights[batch, i, j] * value(batch, j, e), stored anywhere
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from ..decide.vector.attention import AttentionShape
from ..lowering.extents import alike, number_of, product_of, quotient, same
from ..lowering.samples import Extent, is_open, sampled
from .access import loads, strip_cast, variables
from .evaluate import evaluate
from .loop_axes import split, stride
from .row_group import RowGroup, joined, strides
from .stages import Axis, Stage, StagedProgram

_MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Operand:
    """A factor as an expression, in the attention's type, of its axes: the batch axes, its row and its column."""

    expr: tirx.Expr
    batch: tuple[tirx.Var, ...]
    row: tirx.Var
    column: tirx.Var

    def adjacent(self, axis: tirx.Var) -> bool:
        """Return whether consecutive elements along an axis are adjacent in memory."""
        return all(stride(load.indices[0], axis) in (0, 1) for load in loads(self.expr))


@dataclass(frozen=True)
class AttentionProgram:
    """A matched attention. `rows` is the group between the matrix multiplications; it reads `scores` and writes
    `weights`.

    `out_strides`: strides of `out` in elements along the batch axes, i and e. If extents of the batch, rows or keys are
    dynamic, `shape` is the attention at a sample of them.
    """

    shape: AttentionShape
    batch: tuple[Extent, ...]
    row_count: Extent
    key_count: Extent
    queries: Operand  # row i, column d
    keys: Operand  # row j, column d
    values: Operand  # row j, column e
    rows: RowGroup
    scores: tirx.Buffer
    weights: tirx.Buffer
    kept: tuple[tirx.Buffer, ...]  # buffers passed between the stages of the rows
    out: tirx.Buffer
    out_strides: tuple[Extent, ...]

    @property
    def is_open(self) -> bool:
        """Return whether an extent is dynamic."""
        return any(map(is_open, (*self.batch, self.row_count, self.key_count)))


def attention_of(program: StagedProgram) -> AttentionProgram | None:
    """The attention computed by a program; None if it computes something else. The operands of both matrix
    multiplications have one type, and accumulate in float32."""
    sums = [n for n, stage in enumerate(program.stages) if _factors(stage) is not None]
    if len(sums) != 2 or sums[0] != 0 or sums[1] < 2:
        return None
    first, second = program.stages[0], program.stages[sums[1]]
    left, right = _factors(first), _factors(second)
    ordered = _axes(first, *left) if left is not None else None
    if left is None or right is None or ordered is None or not _compact(first.writes[0].at, first.axes):
        return None
    batch, row, key, depth = ordered
    rows = _rows(program.stages[: sums[1]], (*batch, row))
    if rows is None:
        return None
    scores, weights = first.writes[0].buffer, rows.stages[-1].writes[0].buffer
    if any(load.source.same_as(weights) for load in loads(right[1])):
        right = (right[1], right[0])
    behind = _axes(second, *right)
    read = strip_cast(right[0])
    if behind is None or not isinstance(read, TensorLoad) or not read.source.same_as(weights):
        return None
    others, other_row, width, summed = behind
    sizes = tuple(extent for _, extent in batch)
    if not alike(sizes, [extent for _, extent in others]) or not alike((row[1], key[1]), (other_row[1], summed[1])):
        return None
    if is_open(depth[1]) or is_open(width[1]):
        return None
    if not _compact(read.indices[0], (*others, other_row, summed)):
        return None
    place = _stored(program.stages[sums[1] :], (*others, other_row, width))
    result = second.writes[0].buffer
    if place is None or any(str(b.dtype) != "float32" for b in (scores, result)):
        return None
    dtype = str(weights.dtype)
    queries, keys, values = (_of_type(factor, dtype) for factor in (*left, right[1]))
    if queries is None or keys is None or values is None:
        return None
    names, other_names = tuple(v for v, _ in batch), tuple(v for v, _ in others)
    own = (scores, weights, result)
    return AttentionProgram(
        shape=AttentionShape(
            batch=prod(map(sampled, sizes)),
            rows=sampled(row[1]),
            keys=sampled(key[1]),
            depth=sampled(depth[1]),
            width=sampled(width[1]),
            dtype=dtype,
        ),
        batch=sizes,
        row_count=row[1],
        key_count=key[1],
        queries=Operand(queries, names, row[0], depth[0]),
        keys=Operand(keys, names, key[0], depth[0]),
        values=Operand(values, other_names, summed[0], width[0]),
        rows=rows,
        scores=scores,
        weights=weights,
        kept=tuple(b for b in program.kept if not any(b.same_as(o) for o in own)),
        out=place[0],
        out_strides=place[1],
    )


def _of_type(factor: tirx.Expr, dtype: str) -> tirx.Expr | None:
    """The factor in its type before it is widened to float32; None if that differs from `dtype`."""
    found = factor if dtype == "float32" else strip_cast(factor)
    return found if str(found.ty) == dtype else None


def _rows(stages: Sequence[Stage], rows: tuple[Axis, ...]) -> RowGroup | None:
    """The stages after the first one as one group over the rows of its scores; the last one writes the weights in their
    place."""
    group: RowGroup | None = RowGroup(rows, (stages[0],))
    for stage in stages[1:]:
        group = joined(group, stage) if group is not None else None
    if group is None:
        return None
    first = next((stage for stage in group.stages[1:] if stage.reduced), None)
    if first is None or [v for v, _ in first.axes] != [v for v, _ in rows]:
        return None
    scores, last = stages[0].writes[0].buffer, group.stages[-1]
    # The weights overwrite the scores, so the stage that writes them must not read the scores.
    if any(load.source.same_as(scores) for load in last.reads()):
        return None
    if last.reduced or len(last.writes) != 1 or not _compact(last.writes[0].at, last.axes):
        return None
    columns = tuple((buffer, axes) for buffer, axes in group.columns if not buffer.same_as(scores))
    return RowGroup(rows, group.stages[1:], columns)


def _factors(stage: Stage) -> tuple[tirx.Expr, tirx.Expr] | None:
    """The two factors of a sum over one axis."""
    if len(stage.reduced) != 1 or len(stage.writes) != 1 or not isinstance(stage.writes[0].value, tirx.Add):
        return None
    write = stage.writes[0]
    terms = [write.value.a, write.value.b]
    rest = [t for t in terms if not (isinstance(t, TensorLoad) and t.source.same_as(write.buffer))]
    return (rest[0].a, rest[0].b) if len(rest) == 1 and isinstance(rest[0], tirx.Mul) else None


def _axes(stage: Stage, left: tirx.Expr, right: tirx.Expr) -> tuple[tuple[Axis, ...], Axis, Axis, Axis] | None:
    """(batch axes, axis of the left operand, axis of the right operand, reduction axis), in the order of the result."""
    of_left, of_right = variables(left), variables(right)
    batch = tuple(a for a in stage.axes if a[0] in of_left and a[0] in of_right)
    rows = [a for a in stage.axes if a[0] in of_left and a[0] not in of_right]
    columns = [a for a in stage.axes if a[0] not in of_left and a[0] in of_right]
    if len(rows) != 1 or len(columns) != 1 or (*batch, rows[0], columns[0]) != stage.axes:
        return None
    if not {stage.reduced[0][0]} <= of_left & of_right:
        return None
    return batch, rows[0], columns[0], stage.reduced[0]


def _compact(address: tirx.Expr, axes: Sequence[Axis]) -> bool:
    """Return whether an address is that of a compact tensor with these axes."""
    found = strides(address, axes)
    return found is not None and alike([s for _, s, _ in found], _compact_strides([extent for _, extent in axes]))


def _compact_strides(extents: Sequence[Extent]) -> tuple[Extent, ...]:
    return tuple(product_of(extents[n + 1 :]) for n in range(len(extents)))


def _stored(stages: Sequence[Stage], axes: Sequence[Axis]) -> tuple[tirx.Buffer, tuple[Extent, ...]] | None:
    """The buffer that finally holds the result of the first of `stages`, and the strides of `axes` in it; at most a
    copy follows."""
    write = stages[0].writes[0]
    if not _compact(write.at, axes):
        return None
    if len(stages) == 1:
        return write.buffer, _compact_strides([extent for _, extent in axes])
    if any(is_open(extent) for _, extent in axes):
        return _copied(write.buffer, stages[1:], [extent for _, extent in axes])
    extents = [sampled(extent) for _, extent in axes]
    if prod(extents) > _MOST_ELEMENTS:
        return None
    if len(stages) != 2 or stages[1].reduced or len(stages[1].writes) != 1:
        return None
    copy = stages[1].writes[0]
    if not isinstance(copy.value, TensorLoad) or not copy.value.source.same_as(write.buffer):
        return None
    grid = np.meshgrid(*(np.arange(sampled(extent)) for _, extent in stages[1].axes), indexing="ij")
    at = dict(zip((v for v, _ in stages[1].axes), grid, strict=True))
    source, target = evaluate(copy.value.indices[0], at), evaluate(copy.at, at)
    if source is None or target is None or np.size(source) != prod(extents) or np.size(target) != prod(extents):
        return None
    places = np.full(prod(extents), -1, dtype=np.int64)
    places[source.reshape(-1)] = target.reshape(-1)
    table = places.reshape(extents)
    steps = tuple(int(table.reshape(-1)[prod(extents[n + 1 :])]) for n in range(len(extents)))
    linear = sum(
        np.arange(e).reshape([-1 if d == n else 1 for d in range(len(extents))]) * steps[n]
        for n, e in enumerate(extents)
    )
    return (copy.buffer, steps) if np.array_equal(table, linear) else None


def _copied(
    result: tirx.Buffer, stages: Sequence[Stage], extents: Sequence[Extent]
) -> tuple[tirx.Buffer, tuple[Extent, ...]] | None:
    """Like `_stored`, for dynamic extents: a copy whose axes, each possibly split in two, are those of the result."""
    if len(stages) != 1 or stages[0].reduced or len(stages[0].writes) != 1:
        return None
    stage = _apart(stages[0])
    copy = stage.writes[0]
    if not isinstance(copy.value, TensorLoad) or not copy.value.source.same_as(result):
        return None
    read, written = strides(copy.value.indices[0], stage.axes), strides(copy.at, stage.axes)
    if read is None or written is None or not len(read) == len(written) == len(stage.axes) == len(extents):
        return None
    steps: list[Extent] = []
    for step, extent in zip(_compact_strides(extents), extents, strict=True):
        place = next((v for v, s, e in read if same(s, step) and same(e, extent)), None)
        if place is None:
            return None
        steps.append(next(s for v, s, _ in written if v is place))
    return copy.buffer, tuple(steps)


def _apart(stage: Stage) -> Stage:
    """A stage with axes split where addresses contain quotients of them."""
    for _ in range(len(stage.axes)):
        found: list[tirx.FloorDiv | tirx.FloorMod] = []
        for expr in stage.expressions:
            tvm_ffi.structural_walk(expr, ((tirx.FloorDiv, tirx.FloorMod), found.append))
        extents = dict(stage.axes)
        cuts = [(f.a, number_of(f.b)) for f in found if f.a in extents]
        cut = next(((v, inner) for v, inner in cuts if quotient(extents[v], inner) is not None), None)
        if cut is None:
            break
        stage = split(stage, *cut)
    return stage
