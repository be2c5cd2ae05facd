"""Reads at positions given by tensors.

Index expressions accept negative positions, which are resolved here; gathers and selections do not, as in PyTorch.
Positions known at compile time are checked here, all others are passed to Relax's operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ....lowering.positions import checked_positions
from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from .elementwise import broadcast_shape
from .loops import looped
from .views import expanded, permuted, reshaped


@dataclass(frozen=True)
class Places:
    """The index tensors of an index expression: the indexed `axes` in ascending order, the nonnegative integer
    `tensors`, their broadcast `shape`, and whether the axes are adjacent."""

    axes: tuple[int, ...]
    tensors: tuple[relax.Expr, ...]
    shape: tuple[int, ...]
    adjacent: bool

    def front(self, rank: int) -> list[int]:
        """The permutation that moves the indexed axes to the front."""
        return [*self.axes, *(axis for axis in range(rank) if axis not in self.axes)]

    def result_order(self, rank: int) -> list[int]:
        """The permutation from (index axes, other axes) to PyTorch's order: index axes stay in front unless the indexed
        axes are adjacent."""
        count, others = len(self.shape), rank - len(self.axes)
        before = self.axes[0] if self.adjacent else 0
        own = list(range(count))
        rest = list(range(count, count + others))
        return rest[:before] + own + rest[before:]


def wrapped(t: Translation, index: relax.Expr, extent: int, what: str) -> relax.Expr:
    """Nonnegative positions; negative ones are counted from the end of an axis of `extent` elements."""
    known = t.content(index)
    if known is not None and isinstance(extent, int):
        places = checked(known.long(), -extent, extent, what)
        return t.constant(torch.where(places < 0, places + extent, places))
    index = t.cast(index, "int64")
    size = relax.const(extent, "int64") if isinstance(extent, int) else op.shape_to_tensor(relax.ShapeExpr([extent]))
    moved = t.emit(op.add(index, t.emit(op.reshape(size, relax.ShapeExpr([])))))
    return t.emit(op.where(t.emit(op.less(index, relax.const(0, "int64"))), moved, index))


def checked(places: torch.Tensor, low: int, high: int, what: str) -> torch.Tensor:
    """`places` if all are in [low, high). Raises Unsupported otherwise."""
    outside = places[(places < low) | (places >= high)]
    if outside.numel():
        raise Unsupported(f"{what} {int(outside.reshape(-1)[0])}; expected {low} to {high - 1}")
    return places


def from_start(t: Translation, index: relax.Expr, extent: int) -> relax.Expr:
    """Positions for an operator that accepts no negative ones."""
    known = t.content(index)
    if known is not None and isinstance(extent, int):
        checked(known, 0, extent, "index")
    return t.cast(index, "int64")


def places_of(t: Translation, data: relax.Expr, indices: Sequence[Value]) -> Places:
    """The index tensors of an index expression on `data`; None selects a whole axis. Masks have to be constant."""
    shape = shape_of(data)
    given: list[tuple[int, relax.Expr]] = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
            continue
        if dtype_of(index) not in ("bool", "uint8"):
            given.append((axis, wrapped(t, index, shape[axis], "index")))
            axis += 1
            continue
        mask = t.content(index)
        if mask is None:
            raise Unsupported(
                "a mask whose number of true elements is not known at compile time is not supported; expected "
                "indices, or where()"
            )
        for found in mask.bool().nonzero(as_tuple=True) if mask.ndim else ():
            given.append((axis, t.constant(found)))
            axis += 1
        if not mask.ndim:
            raise Unsupported("a scalar mask is not supported; expected one with the axes that it indexes")
    if not given:
        return Places((), (), (), True)
    axes = tuple(place for place, _ in given)
    tensors = tuple(tensor for _, tensor in given)
    # As in PyTorch, None between two tensors makes them nonadjacent.
    adjacent = axes == tuple(range(axes[0], axes[0] + len(axes)))
    together = broadcast_shape([shape_of(tensor) for tensor in tensors])
    return Places(axes, tensors, tuple(together), adjacent)


@converter("index.Tensor", "_unsafe_index.Tensor")
def _index(t: Translation, self: relax.Expr, indices: Sequence[Value]) -> relax.Expr:
    places = places_of(t, self, indices)
    if not places.axes:
        return self
    if len(places.axes) == 1:
        return t.emit(op.take(self, places.tensors[0], axis=places.axes[0]))
    rank = len(shape_of(self))
    front = permuted(t, self, places.front(rank))
    read = t.emit(op.index_tensor(front, relax.Tuple(list(places.tensors))))
    return permuted(t, read, places.result_order(rank))


@converter("index_select.default")
def _index_select(t: Translation, self: relax.Expr, dim: int, index: relax.Expr) -> relax.Expr:
    if not shape_of(self):
        from_start(t, index, 1)
        return self
    index = reshaped(t, index, [prod(shape_of(index))])
    return t.emit(op.take(self, from_start(t, index, shape_of(self)[dim]), axis=dim % len(shape_of(self))))


@converter("gather.default")
def _gather(t: Translation, self: relax.Expr, dim: int, index: relax.Expr, sparse_grad: bool) -> relax.Expr:
    if not shape_of(self):
        self = reshaped(t, self, [1])
    own = shape_of(self)
    lined = reshaped(t, index, shape_of(index) or (1,))
    places = from_start(t, lined, own[dim])
    return reshaped(t, t.emit(op.gather_elements(self, places, dim % len(own))), t.shape)


@converter("take.default")
def _take(t: Translation, self: relax.Expr, index: relax.Expr) -> relax.Expr:
    count = prod(shape_of(self))
    return t.emit(op.take(reshaped(t, self, [count]), wrapped(t, index, count, "index"), axis=0))


@converter("embedding.default")
def _embedding(
    t: Translation,
    weight: relax.Expr,
    indices: relax.Expr,
    padding_idx: int,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> relax.Expr:
    # The last three arguments only affect gradients.
    return t.emit(op.take(weight, from_start(t, indices, shape_of(weight)[0]), axis=0))


@converter("one_hot.default")
def _one_hot(t: Translation, self: relax.Expr, num_classes: int) -> relax.Expr:
    """A last axis with 1 at the class index, 0 elsewhere."""
    count = t.shape[-1]
    classes = from_start(t, self, count)
    if t.content(self) is None:
        classes = checked_positions(t.builder, classes, count, "one_hot", wraps=False, called="class")
    column = t.emit(op.expand_dims(classes, len(t.shape) - 1))
    return t.cast(t.emit(op.equal(column, t.constant(torch.arange(count)))), t.dtype)


@converter("masked_scatter.default")
def _masked_scatter(t: Translation, self: relax.Expr, mask: relax.Expr, source: relax.Expr) -> relax.Expr:
    """Replace the elements where the mask is true by consecutive elements of `source`."""
    shape, count = t.shape, prod(shape_of(source))
    chosen = reshaped(t, expanded(t, mask, shape), [prod(shape)])
    seen = t.emit(op.cumsum(t.cast(chosen, "int64"), 0, "int64"))
    places = t.emit(op.subtract(seen, relax.const(1, "int64")))
    places = t.emit(op.where(chosen, places, relax.const(0, "int64")))
    if not count:
        raise Unsupported("the source is empty; expected one element per true element of the mask")
    taken = t.emit(op.take(reshaped(t, source, [count]), places, axis=0))
    data = expanded(t, self, shape)
    return t.emit(op.where(reshaped(t, chosen, shape), reshaped(t, taken, shape), data))


@converter("nonzero_static.default")
def _nonzero_static(t: Translation, self: relax.Expr, size: int, fill_value: int) -> relax.Expr:
    """The positions of the first `size` nonzero elements, one per row; remaining rows contain `fill_value`."""
    shape, count = shape_of(self), prod(shape_of(self))
    if not count:
        return t.emit(op.full(t.shape, relax.const(fill_value, "int64"), "int64"))
    flags = t.cast(reshaped(t, t.cast(self, "bool"), [count]), "int8")

    def body(flag: Any, places: Any, found: Any) -> None:
        found[0] = tirx.const(0, "int64")
        with tir.serial(0, size) as row, tir.serial(0, len(shape)) as axis:
            places[row, axis] = tirx.const(fill_value, "int64")
        with tir.serial(0, count) as place, tir.If(tirx.all(flag[place] != 0, found[0] < size)), tir.Then():
            for axis, extent in enumerate(shape):
                behind = prod(shape[axis + 1 :])
                places[found[0], axis] = tirx.Cast("int64", place // behind % extent)
            found[0] = found[0] + tirx.const(1, "int64")

    return looped(t, "nonzero_static", [flags], [(t.shape, "int64"), ((1,), "int64")], body)[0]
