"""Operands whose symbolic shapes must agree, cast to the common shape.

Relax infers no shape for an operator of two tensors whose extents it cannot prove equal, nor for anything after it.
Here, extents are compared by everything known about the symbolic sizes, a guard checks the rest at run time, and an
operand whose shape is written differently from the common one is bound to it by match_cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx

from ..match.access import variables
from .open_shapes import OpenShapes, Size, expr, whole

_BINARY = """add atan2 bitwise_and bitwise_or bitwise_xor divide equal floor_divide floor_mod greater greater_equal
left_shift less less_equal log_add_exp logical_and logical_or logical_xor maximum minimum mod multiply not_equal power
right_shift subtract where"""


def fitted(builder: relax.BlockBuilder, call: relax.Call, shapes: OpenShapes) -> relax.Call:
    """Return `call` of an operator, whose operands have types, with compatible operands."""
    name = call.op.name.removeprefix("relax.") if isinstance(call.op, tvm.ir.Op) else ""
    if name == "reshape" and isinstance(call.args[1], relax.ShapeExpr) and _extents(call.args[0]) is not None:
        return reshaped(builder, call.args[0], list(map(whole, call.args[1].values)), shapes)
    rule = _RULES.get(name)
    if rule is None:
        return call
    tensors = list(call.args[0].fields) if isinstance(call.args[0], relax.Tuple) else list(call.args)
    before = [shape for tensor in tensors if (shape := _extents(tensor)) is not None]
    if len(before) < len(tensors) or not any(map(_is_open, before)):
        return call
    after = rule(call, before, shapes)
    changed = [cast(builder, *pair) for pair in zip(tensors, after, strict=True)]
    if all(new is old for new, old in zip(changed, tensors, strict=True)):
        return call
    arguments = [relax.Tuple(changed)] if isinstance(call.args[0], relax.Tuple) else changed
    return relax.Call(call.op, arguments, call.attrs, call.ty_args)


def cast(builder: relax.BlockBuilder, value: relax.Expr, shape: Sequence[Size]) -> relax.Expr:
    """Return `value` with a shape that it is known to have, or that a guard checks."""
    own = _extents(value)
    assert own is not None
    if all(_written_alike(*pair) for pair in zip(own, shape, strict=True)):
        return value
    if any(isinstance(new, tirx.Var) and new in variables(expr(old)) for old, new in zip(own, shape, strict=True)):
        # TVM's fusion replaces s by min(s, 8) endlessly if a match_cast states that min(s, 8) equals s.
        return builder.emit(builder.call_te(_as_sized(shape), value, primfunc_name_hint="sized"))
    return builder.match_cast(value, relax.TensorType(list(shape), str(value.ty.dtype)))


def reshaped(
    builder: relax.BlockBuilder, data: relax.Expr, extents: Sequence[Size], shapes: OpenShapes, *, fits: bool = False
) -> relax.Call:
    """Return `data` reshaped to the same number of elements. A guard checks the number if it is not known, unless it is
    already checked (`fits`)."""
    before = [shapes.simplified(extent) for extent in _extents(data) or []]
    if any(isinstance(extent, int) and extent < 0 for extent in extents):
        return relax.op.reshape(data, relax.ShapeExpr(list(extents)))
    if not fits:
        shapes.agreed(shapes.product(before), shapes.product(extents))
    before, after = ([shapes.simplified(extent) for extent in shape] for shape in (before, extents))
    data = cast(builder, data, before)
    elements = shapes.product(before), shapes.product(after)
    if all(isinstance(size, int) for size in elements) or shapes.plainly_same(*elements):
        return relax.op.reshape(data, relax.ShapeExpr(after))
    flat = builder.emit(relax.op.reshape(data, relax.ShapeExpr([elements[0]])))
    return relax.op.reshape(cast(builder, flat, [elements[1]]), relax.ShapeExpr(after))


def _as_sized(shape: Sequence[Size]) -> Callable[[te.Tensor], te.Tensor]:
    def sized(x: te.Tensor) -> te.Tensor:
        return te.compute([expr(extent) for extent in shape], lambda *at: x[at], name="sized")

    return sized


def broadcast(builder: relax.BlockBuilder, values: Sequence[relax.Expr], shapes: OpenShapes) -> list[relax.Expr]:
    """Return tensors cast so that their shapes provably broadcast."""
    found = _broadcast(None, [_extents(value) or [] for value in values], shapes)
    return [cast(builder, *pair) for pair in zip(values, found, strict=True)]


def _extents(value: relax.Expr) -> list[Size] | None:
    kind = value.ty if isinstance(value, relax.Expr) else None
    shape = kind.shape if isinstance(kind, relax.TensorType) else None
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [whole(extent) for extent in shape.values]


def _is_open(shape: Sequence[Size]) -> bool:
    return any(not isinstance(extent, int) for extent in shape)


def _written_alike(a: Size, b: Size) -> bool:
    return a == b if isinstance(a, int) and isinstance(b, int) else bool(tvm_ffi.structural_equal(expr(a), expr(b)))


Shapes = list[list[Size]]


def _broadcast(call: relax.Call | None, before: Shapes, shapes: OpenShapes) -> Shapes:
    """Return the shapes of broadcast tensors; extents of 1 are kept."""
    rank = max(map(len, before))
    lined = [[1] * (rank - len(shape)) + shape for shape in before]
    whole_shape = [shapes.broadcast(extents) for extents in zip(*lined, strict=True)]
    # A guard emitted for the last axes may have refined the first ones.
    whole_shape = [shapes.simplified(extent) for extent in whole_shape]
    return [
        [1 if isinstance(own, int) and own == 1 else extent for own, extent in zip(shape, whole_shape, strict=True)][
            rank - len(given) :
        ]
        for shape, given in zip(lined, before, strict=True)
    ]


def _matmul(call: relax.Call, before: Shapes, shapes: OpenShapes) -> Shapes:
    left, right = before
    if not left or not right:
        return before
    terms = shapes.agreed(left[-1], right[-2] if len(right) > 1 else right[-1])
    outer = _broadcast(None, [left[:-2], right[:-2]], shapes) if len(left) > 2 or len(right) > 2 else [[], []]
    columns = [*right[-2:]] if len(right) > 1 else [terms]
    if len(right) > 1:
        columns[0] = terms
    return [[*outer[0], *left[-2:-1], terms], [*outer[1], *columns]]


def _concat(call: relax.Call, before: Shapes, shapes: OpenShapes) -> Shapes:
    rank = len(before[0])
    if any(len(shape) != rank for shape in before):
        return before  # Relax refuses these
    axis = int(call.attrs.axis if call.attrs.axis is not None else 0) % rank
    agreed = list(before[0])
    for shape in before[1:]:
        for place in range(rank):
            if place != axis:
                agreed[place] = shapes.agreed(agreed[place], shape[place])
    return [[own if place == axis else agreed[place] for place, own in enumerate(shape)] for shape in before]


_RULES: dict[str, Callable[[Any, Shapes, OpenShapes], Shapes]] = {
    **dict.fromkeys(_BINARY.split(), _broadcast),
    "concat": _concat,
    "matmul": _matmul,
}
