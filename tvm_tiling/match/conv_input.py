"""The input of a convolution: which axes of the sum index images, rows and channels, and the element at those."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from .access import bind, loads, simplified, substitute, variables
from .evaluate import evaluate
from .function import SumOfProducts, refuse
from .image_axis import ImageAxis, image_axis
from .padding import without_padding


@dataclass(frozen=True, eq=False)
class AxisAccess:
    """An image axis as indexed by the source: by an output row and possibly a tap."""

    row: tirx.Var
    tap: tirx.Var | None
    dim: int  # the input dimension that they index
    index: np.ndarray  # the input row at [output row, tap], with one extra output row
    read: np.ndarray  # whether [output row, tap] is inside the image
    taps: np.ndarray  # whether a tap is nonzero in any kernel
    size: int  # size of the dimension
    padded: bool

    def values(self, points: int) -> dict[tirx.Var, np.ndarray]:
        """The variables over a grid of `points` output rows and all taps."""
        return _over(self.row, points, self.tap, self.index.shape[1])

    def axis(self, *, transposed: bool) -> ImageAxis | str:
        return image_axis(self.index, self.read, self.taps, self.size, transposed=transposed)


def _over(row: tirx.Var, points: int, tap: tirx.Var | None, taps: int) -> dict[tirx.Var, np.ndarray]:
    values = {row: np.arange(points)[:, None]}
    return values if tap is None else values | {tap: np.arange(taps)[None, :]}


@dataclass(frozen=True)
class Channels:
    """The reduction axes over input channels, and the axes of the output channels, outermost first."""

    summed: tuple[tirx.Var, ...]
    out: tuple[tirx.Var, ...]
    extents: dict[tirx.Var, int]
    groups: int
    dims: tuple[int, ...]  # the input dimensions that they index
    batched: bool  # the output channels that the input has are separate dimensions of it

    @property
    def ci(self) -> int:
        return self.groups * self.per_group

    @property
    def co(self) -> int:
        return prod(self.extents[v] for v in self.out)

    @property
    def per_group(self) -> int:
        return prod(self.extents[v] for v in self.summed)

    def at(self, c: tirx.Var) -> dict[tirx.Var, tirx.Expr]:
        """The variables at input channel `c` of all, with the output channels at the first one of the group."""
        group, rest = tirx.floordiv(c, self.per_group), tirx.floormod(c, self.per_group)
        first = group * (self.co // self.groups) if self.groups > 1 else tirx.IntImm("int32", 0)
        axes, inner = (self.out, self.summed), (first, rest if self.groups > 1 else c)
        return bind(axes, [[self.extents[v] for v in axis] for axis in axes], inner)


@dataclass(frozen=True)
class ConvInput:
    """The input element over the axes of the sum, and what these axes index."""

    expr: tirx.Expr  # inside the image
    load: TensorLoad  # the load in `expr` that is indexed by most axes
    axis_accesses: tuple[AxisAccess, ...]  # by dimension of the input
    channels: Channels


def conv_input(
    found: SumOfProducts, expr: tirx.Expr, kernels: tirx.Expr, taps: dict[tirx.Var, np.ndarray]
) -> ConvInput:
    """The input `expr` of a sum whose other factor is `kernels`; `taps` are those that are nonzero in some kernel."""
    name, extents = found.name, found.extents
    inside, conditions = without_padding(name, expr, extents)
    in_kernels = variables(kernels, extents)
    out = tuple(v for v in found.spatial if v in in_kernels)
    rows = [v for v in found.spatial if v not in out]
    load = _main_load(name, inside, extents)
    walked = _walked(name, load, conditions, set(rows), set(found.reduce), extents)
    axis_accesses = [_axis_access_of(found, load, dim, held, conditions, taps) for dim, held in walked.items()]
    tapped = {w.tap for w in axis_accesses}
    channels = _channels(name, inside, load, [v for v in found.reduce if v not in tapped], out, extents)
    return ConvInput(inside, load, tuple(axis_accesses), channels)


def _main_load(name: str, expr: tirx.Expr, extents: dict[tirx.Var, int]) -> TensorLoad:
    read = loads(expr)
    if not read:
        raise refuse(name, "a factor reads no tensor")
    return max(read, key=lambda load: len(variables(load, extents)))


def _walked(
    name: str,
    load: TensorLoad,
    conditions: Sequence[tirx.Expr],
    rows: set[tirx.Var],
    summed: set[tirx.Var],
    extents: dict[tirx.Var, int],
) -> dict[int, set[tirx.Var]]:
    """The variables of each dimension that indexes an image, by dimension."""
    guarded = [variables(c, extents) for c in conditions]
    walked: dict[int, set[tirx.Var]] = {}
    for dim, index in enumerate(load.indices):
        inside = variables(index, extents)
        if not inside & rows:
            continue
        taken = [other for other, held in walked.items() if held & inside]
        if taken or not inside <= rows | summed or len(inside & rows) > 1 or len(inside & summed) > 1:
            raise refuse(name, f"{load.source.name}'s axis {dim} is not indexed by one output axis and one tap")
        walked[dim] = inside
    for held in guarded:
        if held not in walked.values() and not any(held <= w for w in walked.values()):
            raise refuse(name, f"{load.source.name} is padded along axes that are not image axes")
    return walked


def _axis_access_of(
    found: SumOfProducts,
    load: TensorLoad,
    dim: int,
    held: set[tirx.Var],
    conditions: Sequence[tirx.Expr],
    taps: dict[tirx.Var, np.ndarray],
) -> AxisAccess:
    row = next(v for v in held if v in found.spatial)
    tap = next((v for v in held if v in found.reduce), None)
    points = found.extents[row]
    kernel = found.extents[tap] if tap is not None else 1
    values = _over(row, points + 1, tap, kernel)
    own = [c for c in conditions if variables(c, found.extents) & held]
    index, *holds = (evaluate(e, values) for e in (load.indices[dim], *own))
    known = [h for h in holds if h is not None]
    if index is None or len(known) != len(own):
        raise refuse(found.name, f"the index of {load.source.name}'s axis {dim} is not integer arithmetic")
    shape = (points + 1, kernel)
    read = np.ones(shape, bool)
    for h in known:
        read &= np.broadcast_to(h, shape)
    return AxisAccess(
        row=row,
        tap=tap,
        dim=dim,
        index=np.broadcast_to(index, shape),
        read=read[:points],
        taps=taps[tap] if tap in taps else np.ones(kernel, bool),
        size=int(load.source.shape[dim]),
        padded=bool(own),
    )


def _channels(
    name: str,
    expr: tirx.Expr,
    load: TensorLoad,
    summed: Sequence[tirx.Var],
    out: tuple[tirx.Var, ...],
    extents: dict[tirx.Var, int],
) -> Channels:
    among = {*summed, *out}
    dims = [d for d, index in enumerate(load.indices) if variables(index, among)]

    def place(variable: tirx.Var) -> tuple[int, int]:
        """Sort key: dimension, and step within it, with the outermost variable first."""
        for d in dims:
            if variable in variables(load.indices[d], among):
                at = {v: np.asarray(int(v.same_as(variable))) for v in among}
                step, start = (
                    evaluate(load.indices[d], at),
                    evaluate(load.indices[d], {v: np.asarray(0) for v in among}),
                )
                return d, -int(step - start) if step is not None and start is not None else 0
        return len(load.indices), 0

    ordered = tuple(sorted(summed, key=place))
    groups = _groups(name, expr, ordered, out, extents)
    batched = all(isinstance(i, tirx.Var) for i in load.indices if variables(i, out))
    return Channels(ordered, out, {v: extents[v] for v in among}, groups, tuple(dims), batched)


def _groups(
    name: str,
    expr: tirx.Expr,
    summed: tuple[tirx.Var, ...],
    out: tuple[tirx.Var, ...],
    extents: dict[tirx.Var, int],
) -> int:
    """The number of equal groups of output channels that each read separate input channels."""
    co = prod(extents[v] for v in out)
    if not variables(expr, out):
        return 1
    values = {v: np.asarray(0) for v in extents}
    grids = np.unravel_index(np.arange(co), [extents[v] for v in out])
    values.update({v: grid[:, None] for v, grid in zip(out, grids, strict=True)})
    count = prod(extents[v] for v in summed)
    grids = np.unravel_index(np.arange(count), [extents[v] for v in summed]) if summed else ()
    values.update({v: grid[None, :] for v, grid in zip(summed, grids, strict=True)})
    changes = np.zeros(co - 1, bool)
    for load in loads(expr):
        for index in load.indices:
            if variables(index, out):
                value = evaluate(index, values)
                if value is None:
                    raise refuse(name, f"the channel indices of {load.source.name} are not integer arithmetic")
                changes |= (np.diff(np.broadcast_to(value, (co, count)), axis=0) != 0).any(axis=1)
    where = np.flatnonzero(changes) + 1
    run = int(where[0]) if len(where) else co
    if co % run or (where % run).any():
        raise refuse(name, "its output channels do not read input channels in groups of equal size")
    return co // run


def by_channel_and_row(
    name: str, source: ConvInput, rows: Sequence[tuple[AxisAccess, ImageAxis, tirx.Var]], c: tirx.Var
) -> tirx.Expr:
    """The input element over new variables: those of `rows` index the rows of the image, `c` all of its channels."""
    walkers = {
        v: n for n, (axis_access, _, _) in enumerate(rows) for v in (axis_access.row, axis_access.tap) if v is not None
    }
    at_channel = source.channels.at(c)

    def moved(index: tirx.Expr) -> tirx.Expr | None:
        """`index` over the new variables; None if it is not an image row plus a constant."""
        held = variables(index, walkers)
        if not held:
            return substitute(index, at_channel)
        axis_access, axis, row = rows[walkers[next(iter(held))]]
        value = evaluate(index, axis_access.values(axis.points))
        apart = None if value is None else np.unique((value - axis_access.index[: axis.points])[axis_access.read])
        if apart is None or len(apart) > 1:
            return None
        # If no row is read at all, any row is valid.
        return row + (axis.first + int(apart.sum()))

    for load in loads(source.expr):
        if any(moved(index) is None for index in load.indices):
            raise refuse(name, f"{load.source.name}, fused before the input, is not read at the rows of the input")
    expr = tvm_ffi.structural_map(
        source.expr, (TensorLoad, lambda load: tirx.BufferLoad(load.source, [moved(i) for i in load.indices]))
    )
    if variables(expr, walkers) - {row for _, _, row in rows}:
        raise refuse(name, "the elements of the input depend on their position in the image")
    return simplified(substitute(expr, at_channel))
