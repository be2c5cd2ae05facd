"""Helpers for element-wise operators: operand types, and kernels defined per element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tvm import relax, te, tirx

from ...open_shapes import whole
from ..translation import Translation, Value, dtype_of, shape_of
from ..types import DTYPES, NAMES, computed_in


def number(value: Value) -> bool:
    """Return whether an operand is a Python number, which ranks below a tensor in type promotion."""
    return isinstance(value, bool | int | float)


def promoted(*operands: Value) -> str:
    """The type to which PyTorch promotes these operands; numbers and scalar tensors rank below other tensors."""

    def like(value: Value) -> Any:
        return value if number(value) else torch.empty([1] * len(shape_of(value)), dtype=DTYPES[dtype_of(value)])

    left, *others = operands
    kind = torch.result_type(like(left), like(others[0])) if others else torch.result_type(like(left), like(left))
    return NAMES[kind]


def operand(t: Translation, value: Value, dtype: str) -> relax.Expr:
    """A tensor or number rounded to `dtype`, in the type in which PyTorch computes."""
    if number(value):
        value = torch.tensor(value, dtype=DTYPES[dtype]).item()
    elif dtype_of(value) != dtype:
        value = t.cast(value, dtype)
    return t.cast(value, computed_in(dtype))


def binary(
    t: Translation, function: Callable[[relax.Expr, relax.Expr], relax.Expr], left: Value, right: Value
) -> relax.Expr:
    """`function` of both operands in the type in which PyTorch computes, cast to the type of the result."""
    return t.cast(t.emit(function(operand(t, left, t.dtype), operand(t, right, t.dtype))), t.dtype)


def unrounded(
    t: Translation, function: Callable[[relax.Expr, relax.Expr], relax.Expr], left: Value, right: Value
) -> relax.Expr:
    """Like `binary`, for products and quotients, where PyTorch takes a number in float32 with 16-bit floats."""
    dtype = computed_in(t.dtype)
    return t.cast(t.emit(function(t.cast(left, dtype), t.cast(right, dtype))), t.dtype)


def unary(t: Translation, function: Callable[[relax.Expr], relax.Expr], x: relax.Expr) -> relax.Expr:
    """`function` of a tensor in the type in which PyTorch computes, cast to the type of the result."""
    return t.cast(t.emit(function(t.cast(x, computed_in(t.dtype)))), t.dtype)


def kernel(t: Translation, name: str, element: Callable[..., tirx.Expr], *operands: relax.Expr) -> relax.Expr:
    """A kernel named `name` that computes `element` over the broadcast shape of the operands."""
    shape = broadcast_shape([shape_of(operand) for operand in operands])

    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *at: element(*(_broadcast(tensor, at) for tensor in tensors)), name=name)

    return t.te(compute, *operands, primfunc_name_hint=name)


def _broadcast(tensor: te.Tensor, at: tuple[tirx.Var, ...]) -> tirx.Expr:
    """The element of a tensor at a position of a result to which it is broadcast."""
    rank = len(tensor.shape)
    if not rank:
        return tensor()
    own = at[len(at) - rank :]
    return tensor(*(0 if whole(extent) == 1 else place for extent, place in zip(tensor.shape, own, strict=True)))


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The shape to which operands are broadcast; PyTorch has checked dynamic extents."""
    if all(isinstance(extent, int) for shape in shapes for extent in shape):
        return torch.broadcast_shapes(*shapes)
    rank = max(map(len, shapes))
    lined = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return [
        next((extent for extent in extents if not (isinstance(extent, int) and extent == 1)), 1)
        for extents in zip(*lined, strict=True)
    ]


def elementwise(t: Translation, name: str, element: Callable[..., tirx.Expr], *operands: Value) -> relax.Expr:
    """An element-wise kernel on operands in the type in which PyTorch computes, cast to the type of the result."""
    return t.cast(kernel(t, name, element, *(operand(t, value, t.dtype) for value in operands)), t.dtype)


def in_libm(function: str) -> Callable[..., tirx.Expr]:
    """A function of the C math library for float64 or float32; 16-bit floats are computed in float32."""

    def call(*values: tirx.Expr) -> tirx.Expr:
        dtype = str(values[0].ty)
        wide = computed_in(dtype)
        given = [value if str(value.ty) == wide else tirx.Cast(wide, value) for value in values]
        found = tirx.call_pure_extern(wide, function if wide == "float64" else f"{function}f", *given)
        return found if dtype == wide else tirx.Cast(dtype, found)

    return call


def real(value: float, like: tirx.Expr) -> tirx.Expr:
    """A number as a constant of an expression's type."""
    return tirx.const(value, str(like.ty))


def is_zero(value: Value) -> bool:
    return number(value) and value == 0


def signed_infinity(zero: float) -> float:
    """1 / zero in IEEE 754: an infinity with the sign of the zero."""
    return math.copysign(math.inf, zero)
