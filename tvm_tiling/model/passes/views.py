"""Merging of reshapes, transpositions and slices, so that most of them cancel out.

PyTorch graphs alternate between shapes that differ only in unit axes, with element-wise operators in between. Such a
sequence is traced to its start as a view: each axis as pieces with a stride. From there it is one reshape, or one
transposition between two reshapes. A reshape before element-wise operators and norms along the last axis moves after
them, where it meets the next one, so that the operators follow the computation of their operand directly. A reduction
of a reshaped image (a norm over all channels and pixels, as exporters write it) becomes one over the axes of the image
itself, whose order is then free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from ...lowering.extents import alike, from_outer, is_one, product_of, quotient, same, times
from ...lowering.samples import Extent, is_open, sampled
from .dataflow import Expr, Rewriter, array, extents_of, ints, is_op, numbers, rewrite, shape_of
from .layout import BROADCASTING, CONVOLUTIONS, FIRST, REDUCTIONS

Atom = tuple[Extent, Extent]  # extent and stride, in elements of the root
_VIEWS = ("reshape", "squeeze", "expand_dims", "flatten", "permute_dims")
_ALONG_LAST = ("nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm")


def join_views(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with its reshapes, transpositions and slices merged as far as possible."""
    return rewrite(mod, _call)


@dataclass(frozen=True)
class View:
    """A tensor as elements of `root`; each axis consists of atoms, outermost first."""

    root: Expr
    axes: tuple[tuple[Atom, ...], ...]

    @property
    def shape(self) -> tuple[Extent, ...]:
        return tuple(product_of(extent for extent, _ in axis) for axis in self.axes)

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """All atoms of more than one element, with contiguous ones merged."""
        joined: list[Atom] = []
        for extent, stride in (atom for axis in self.axes for atom in axis if not is_one(atom[0])):
            if joined and same(joined[-1][1], times(extent, stride)):
                joined[-1] = (times(joined[-1][0], extent), stride)
            else:
                joined.append((extent, stride))
        return tuple(joined)

    def permuted(self, order: Sequence[int]) -> View:
        return View(self.root, tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[Extent]) -> View | None:
        """The same elements in order with other axes; None if an axis does not consist of complete atoms."""
        left = list(self.atoms)
        axes = []
        for size in shape:
            axis: list[Atom] = []
            while not is_one(size):
                if not left:
                    return None
                extent, stride = left.pop(0)
                if (parts := quotient(size, extent)) is not None:
                    axis.append((extent, stride))
                    size = parts
                elif (parts := quotient(extent, size)) is not None:
                    axis.append((size, times(stride, parts)))
                    left.insert(0, (parts, stride))
                    size = 1
                else:
                    return None
            axes.append(tuple(axis))
        return None if left else View(self.root, tuple(axes))


def whole(root: Expr, shape: Sequence[Extent]) -> View:
    """A tensor as a view of itself."""
    return View(root, tuple(((extent, product_of(shape[axis + 1 :])),) for axis, extent in enumerate(shape)))


def view_of(rewriter: Rewriter, expr: Expr) -> View | None:
    """The view represented by a chain of reshapes and transpositions; None for a data-dependent shape."""
    call, shape = rewriter.value(expr), extents_of(expr)
    if shape is None or any(not is_open(extent) and extent == 0 for extent in shape):
        return None
    if not is_op(call, *_VIEWS):
        return whole(expr, shape)
    source = view_of(rewriter, call.args[0])
    if source is None:
        return whole(expr, shape)
    if is_op(call, "permute_dims"):
        axes = call.attrs.axes
        return source.permuted(ints(axes) if axes is not None else range(len(shape))[::-1])
    return source.reshaped(shape) or whole(expr, shape)


def _call(rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if is_op(value, *_VIEWS):
        return _follow(rewriter, variable, value)
    if is_op(value, "take"):
        return _slice_of_take(rewriter, value)
    if is_op(value, "strided_slice"):
        return _slice_before_transposition(rewriter, value)
    if is_op(value, *_ALONG_LAST):
        return _along_last(rewriter, value)
    if is_op(value, *REDUCTIONS):
        return _reduction(rewriter, value)
    return _elementwise(rewriter, value)


def _follow(rewriter: Rewriter, variable: relax.Var, call: relax.Call) -> Expr | None:
    """A reshape or transposition as the shortest sequence from its root."""
    shape = extents_of(variable)
    source = view_of(rewriter, call.args[0])
    if shape is None or source is None:
        return None
    if is_op(call, "permute_dims"):
        axes = call.attrs.axes
        view: View | None = source.permuted(ints(axes) if axes is not None else range(len(shape))[::-1])
    else:
        view = source.reshaped(shape)
    return None if view is None else _shortest(rewriter, view)


def _shortest(rewriter: Rewriter, view: View) -> Expr | None:
    """The tensor for a view; None if the order of its axes is unknown."""
    atoms = view.atoms
    order = from_outer([stride for _, stride in atoms])
    if order is None:
        return None
    inner = view.root
    if order != list(range(len(atoms))):
        inner = _reshape(rewriter, inner, [atoms[place][0] for place in order])
        inner = rewriter.emit(relax.op.permute_dims(inner, [order.index(place) for place in range(len(atoms))]))
    return _reshape(rewriter, inner, view.shape)


def _reshape(rewriter: Rewriter, expr: Expr, shape: Sequence[Extent]) -> Expr:
    return expr if alike(extents_of(expr), shape) else rewriter.emit(relax.op.reshape(expr, tuple(shape)))


# ---- slices ----------------------------------------------------------------------------------------------------------


def _slice_of_take(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """An index of an axis as a slice with constant bounds instead of a lookup."""
    index, shape = array(call.args[1]), shape_of(call.args[0])
    if index is None or index.ndim or shape is None or call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis) % len(shape)
    place = int(index) + (shape[axis] if int(index) < 0 else 0)
    if not 0 <= place < shape[axis]:
        return None
    result = shape[:axis] + shape[axis + 1 :]
    piece = rewriter.emit(relax.op.strided_slice(call.args[0], [axis], [place], [place + 1]))
    moved = _slice_before_transposition(rewriter, rewriter.value(piece))
    return _joined(rewriter, piece if moved is None else rewriter.emit(moved), result)


def _joined(rewriter: Rewriter, expr: Expr, shape: Sequence[Extent]) -> Expr:
    """`expr` in another shape, by the shortest sequence."""
    source = view_of(rewriter, expr)
    view = None if source is None else source.reshaped(shape)
    shortest = None if view is None else _shortest(rewriter, view)
    return _reshape(rewriter, expr, shape) if shortest is None else shortest


def _slice_before_transposition(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """A slice of a transposed tensor as the transposed slice, which moves less data."""
    view, parts = view_of(rewriter, call.args[0]), [numbers(argument) for argument in call.args[1:]]
    if (
        shape_of(call.args[0]) is None
        or view is None
        or view.root.same_as(call.args[0])
        or any(part is None for part in parts)
    ):
        return None
    split_axes = [axis % len(view.axes) for axis in parts[0] or ()]
    atoms = [atom for axis in view.axes for atom in axis if not is_one(atom[0])]
    order = sorted(atoms, key=lambda atom: -sampled(atom[1]))
    if order == atoms or any(len([a for a in view.axes[axis] if not is_one(a[0])]) != 1 for axis in split_axes):
        return None
    places = [order.index(next(a for a in view.axes[axis] if not is_one(a[0]))) for axis in split_axes]
    source = _reshape(rewriter, view.root, [extent for extent, _ in order])
    piece = rewriter.emit(relax.op.strided_slice(source, places, *(part or [] for part in parts[1:])))
    shape, result = shape_of(piece), shape_of(call)
    if shape is None or result is None:
        return None
    turned = whole(piece, shape).permuted([order.index(atom) for atom in atoms]).reshaped(result)
    return None if turned is None else _shortest(rewriter, turned)


# ---- operators that move before a reshape ----------------------------------------------------------------------------


def _along_last(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """A norm or softmax along the last axis, applied before the reshape of the other axes."""
    reshape = rewriter.value(call.args[0])
    shape = extents_of(call.args[0])
    if not is_op(reshape, "reshape") or shape is None:
        return None
    before = extents_of(reshape.args[0])
    axes = call.attrs.axes if hasattr(call.attrs, "axes") else [call.attrs.axis]
    if before is None or not before or not same(before[-1], shape[-1]) or len(axes) != 1:
        return None
    if int(axes[0]) not in (-1, len(shape) - 1):
        return None
    function = {
        "nn.softmax": lambda x: relax.op.nn.softmax(x, -1),
        "nn.log_softmax": lambda x: relax.op.nn.log_softmax(x, -1),
        "nn.layer_norm": lambda x: relax.op.nn.layer_norm(
            x, *call.args[1:], [-1], float(call.attrs.epsilon), bool(call.attrs.center), bool(call.attrs.scale)
        ),
        "nn.rms_norm": lambda x: relax.op.nn.rms_norm(x, *call.args[1:], [-1], float(call.attrs.epsilon)),
    }[call.op.name[6:]]
    return _reshape(rewriter, rewriter.emit(function(reshape.args[0])), shape)


def _reduction(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """A reduction over whole axes of an image, applied before the reshape that merges them."""
    reshape = rewriter.value(call.args[0])
    shape, result = extents_of(call.args[0]), extents_of(call)
    if not is_op(reshape, "reshape") or shape is None or result is None or call.attrs.axis is None:
        return None
    before = extents_of(reshape.args[0])
    if before is None or len(before) not in FIRST:
        return None
    reduced = {axis % len(shape) for axis in ints(call.attrs.axis)}
    axes: list[int] = []
    first = mapped = 0
    for group, end in _groups(shape, before):
        inside = [axis in reduced for axis in range(first, end) if not is_one(shape[axis])]
        if any(inside) and not all(inside):
            return None
        if any(inside):
            axes += range(mapped, mapped + len(group))
        first, mapped = end, mapped + len(group)
    if first != len(shape) or mapped != len(before) or not axes:
        return None
    function = getattr(relax.op, call.op.name[6:])
    return _reshape(rewriter, rewriter.emit(function(reshape.args[0], axes, keepdims=True)), result)


def _elementwise(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """An element-wise operator applied before the reshape of its operand."""
    shape = extents_of(call)
    if call.op.name[6:] not in BROADCASTING or shape is None:
        return None
    reshapes = [
        rewriter.value(a) for a in call.args if is_op(rewriter.value(a), "reshape") and alike(extents_of(a), shape)
    ]
    chosen = next((reshape for reshape in reshapes if _worth_moving(rewriter, call, reshape)), None)
    before = extents_of(chosen.args[0]) if chosen is not None else None
    if before is None:
        return None
    operands = [_before(rewriter, argument, shape, before) for argument in call.args]
    if any(operand is None for operand in operands):
        return None
    result = rewriter.emit(relax.Call(call.op, operands, call.attrs, call.ty_args))
    return _reshape(rewriter, result, shape)


def _worth_moving(rewriter: Rewriter, call: relax.Call, reshape: relax.Call) -> bool:
    """Return whether the operator then follows the computation of its operand; of two tensors, the one of lower rank
    determines the shape."""
    shape, before = extents_of(call), extents_of(reshape.args[0])
    if shape is None or before is None:
        return False
    tensors = [argument for argument in call.args if alike(extents_of(argument), shape) and array(argument) is None]
    if len(tensors) > 1 and len(before) >= len(shape):
        return False
    return _computed(rewriter, reshape.args[0])


def _computed(rewriter: Rewriter, expr: Expr) -> bool:
    """Return whether element-wise operators on `expr` become the epilogue of a matrix multiplication or convolution."""
    value = rewriter.value(expr)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    name = value.op.name[6:]
    if name == "matmul" or name in CONVOLUTIONS:
        return True
    return name in BROADCASTING and any(_computed(rewriter, argument) for argument in value.args)


def _before(rewriter: Rewriter, operand: Expr, shape: tuple[Extent, ...], before: tuple[Extent, ...]) -> Expr | None:
    """An operand that broadcasts with tensors of shape `before` as it did with those of `shape`; None if that is
    impossible."""
    own = extents_of(operand) if isinstance(operand.ty, relax.TensorType) else ()
    if own is None:
        return None
    if is_one(product_of(own)):
        return operand if not own else _constant_or_joined(rewriter, operand, ())
    if alike(own, shape):
        return _joined(rewriter, operand, before)
    if before and alike((own[-1],) * 3, (shape[-1], before[-1], product_of(own))):
        return _constant_or_joined(rewriter, operand, (own[-1],))
    moved = _broadcast_before(own, shape, before)
    return None if moved is None else _constant_or_joined(rewriter, operand, moved)


def _broadcast_before(
    own: Sequence[Extent], shape: Sequence[Extent], before: Sequence[Extent]
) -> tuple[Extent, ...] | None:
    """The shape with which an operand of shape `own` broadcasts to `before` as it did to `shape`; None if an axis of
    `before` would be broadcast partially. Axes of both are grouped by equal numbers of elements."""
    padded = (*(1,) * (len(shape) - len(own)), *own)
    moved: list[Extent] = []
    first = 0
    for group, end in _groups(shape, before):
        mine, all_of = padded[first:end], shape[first:end]
        if alike(mine, all_of):
            moved += group
        elif all(map(is_one, mine)):
            moved += [1] * len(group)
        else:
            return None
        first = end
    return tuple(moved) if first == len(shape) and len(moved) == len(before) else None


def _groups(shape: Sequence[Extent], before: Sequence[Extent]) -> Iterator[tuple[Sequence[Extent], int]]:
    """Groups of neighbouring axes of `before`, each the fewest that have the elements of whole axes of `shape`, with
    the number of the axis of `shape` where the group ends. Axes of one element belong to the preceding group."""
    first = end = 0
    for last in range(1, len(before) + 1):
        group = before[first:last]
        stop = end + 1
        while stop < len(shape) and not same(product_of(shape[end:stop]), product_of(group)):
            stop += 1
        if stop > len(shape) or not same(product_of(shape[end:stop]), product_of(group)):
            continue
        while stop < len(shape) and is_one(shape[stop]):
            stop += 1
        yield group, stop
        first, end = last, stop


def _constant_or_joined(rewriter: Rewriter, operand: Expr, shape: tuple[Extent, ...]) -> Expr:
    if isinstance(operand, tvm.ir.GenericConst):
        return operand if shape_of(operand) == shape else relax.const(operand.value.numpy().reshape(shape))
    return _joined(rewriter, operand, shape)
