"""What converters of element-wise operators share: types of operands, and kernels that are given for one element."""

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
    """Whether an operand is a Python number, which has less say in the type of a result than a tensor."""
    return isinstance(value, bool | int | float)


def promoted(*operands: Value) -> str:
    """The type that PyTorch gives to the result of operands of these types, numbers and tensors without axes counting
    less than others."""

    def like(value: Value) -> Any:
        return value if number(value) else torch.empty([1] * len(shape_of(value)), dtype=DTYPES[dtype_of(value)])

    left, *others = operands
    kind = torch.result_type(like(left), like(others[0])) if others else torch.result_type(like(left), like(left))
    return NAMES[kind]


def operand(t: Translation, value: Value, dtype: str) -> relax.Expr:
    """A tensor or number as one of type `dtype`, in the type that PyTorch computes with: it is rounded to `dtype`."""
    if number(value):
        value = torch.tensor(value, dtype=DTYPES[dtype]).item()
    elif dtype_of(value) != dtype:
        value = t.cast(value, dtype)
    return t.cast(value, computed_in(dtype))


def binary(
    t: Translation, function: Callable[[relax.Expr, relax.Expr], relax.Expr], left: Value, right: Value
) -> relax.Expr:
    """`function` of both operands in the type that PyTorch computes in, as the type of the result."""
    return t.cast(t.emit(function(operand(t, left, t.dtype), operand(t, right, t.dtype))), t.dtype)


def unrounded(
    t: Translation, function: Callable[[relax.Expr, relax.Expr], relax.Expr], left: Value, right: Value
) -> relax.Expr:
    """As `binary`, for products and quotients: with 16-bit floats PyTorch takes a number in float32 there."""
    dtype = computed_in(t.dtype)
    return t.cast(t.emit(function(t.cast(left, dtype), t.cast(right, dtype))), t.dtype)


def unary(t: Translation, function: Callable[[relax.Expr], relax.Expr], x: relax.Expr) -> relax.Expr:
    """`function` of a tensor in the type that PyTorch computes in, as the type of the result."""
    return t.cast(t.emit(function(t.cast(x, computed_in(t.dtype)))), t.dtype)


def kernel(t: Translation, name: str, element: Callable[..., tirx.Expr], *operands: relax.Expr) -> relax.Expr:
    """A kernel named `name` over the broadcast shape of the operands that computes `element` of one of each."""
    shape = broadcast_shape([shape_of(operand) for operand in operands])

    def compute(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *at: element(*(_broadcast(tensor, at) for tensor in tensors)), name=name)

    return t.te(compute, *operands, primfunc_name_hint=name)


def _broadcast(tensor: te.Tensor, at: tuple[tirx.Var, ...]) -> tirx.Expr:
    """A tensor's element at a place of a result to which it is broadcast."""
    rank = len(tensor.shape)
    if not rank:
        return tensor()
    own = at[len(at) - rank :]
    return tensor(*(0 if whole(extent) == 1 else place for extent, place in zip(tensor.shape, own, strict=True)))


def broadcast_shape(shapes: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """The shape that operands are broadcast to; PyTorch has compared open extents."""
    if all(isinstance(extent, int) for shape in shapes for extent in shape):
        return torch.broadcast_shapes(*shapes)
    rank = max(map(len, shapes))
    lined = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return [
        next((extent for extent in extents if not (isinstance(extent, int) and extent == 1)), 1)
        for extents in zip(*lined, strict=True)
    ]


def elementwise(t: Translation, name: str, element: Callable[..., tirx.Expr], *operands: Value) -> relax.Expr:
    """A kernel of operands in the type that PyTorch computes in, as the type of the result."""
    return t.cast(kernel(t, name, element, *(operand(t, value, t.dtype) for value in operands)), t.dtype)


def in_libm(function: str) -> Callable[..., tirx.Expr]:
    """A function of C's mathematical library, of float64 or float32; of 16-bit floats in float32."""

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
    """1 / zero as IEEE 754 defines it: an infinity of the zero's sign."""
    return math.copysign(math.inf, zero)
