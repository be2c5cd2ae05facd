"""Comparisons, logical operators, and selection."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, tirx
from tvm.relax import op

from ..translation import Translation, Value, converter, dtype_of, may_be_nan, shape_of, unequal
from ..types import computed_in, is_float
from .elementwise import kernel, operand, promoted


def _register_comparison(name: str, function: Callable[..., relax.Expr]) -> None:
    @converter(f"{name}.Tensor", f"{name}.Scalar")
    def convert(t: Translation, self: Value, other: Value) -> relax.Expr:
        left, right = (operand(t, value, promoted(self, other)) for value in (self, other))
        if dtype_of(left) == "bool":
            left, right = t.cast(left, "uint8"), t.cast(right, "uint8")
        return t.emit(function(left, right))


def _but_of_nan(function: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    """A comparison that TVM simplifies to true for identical operands, which is wrong for NaN."""

    def compare(left: relax.Expr, right: relax.Expr) -> relax.Expr:
        found = function(left, right)
        if not may_be_nan(left) or isinstance(right, tvm.ir.GenericConst):
            return found
        return op.logical_and(found, op.logical_not(op.isnan(left)))

    return compare


for _name, _function in {
    "eq": _but_of_nan(op.equal),
    "ne": unequal,
    "lt": op.less,
    "le": _but_of_nan(op.less_equal),
    "gt": op.greater,
    "ge": _but_of_nan(op.greater_equal),
}.items():
    _register_comparison(_name, _function)


def _register_logic(name: str, function: Callable[..., relax.Expr]) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: Value, other: Value) -> relax.Expr:
        return t.emit(function(t.cast(self, "bool"), t.cast(other, "bool")))


for _name, _function in {
    "logical_and": op.logical_and,
    "logical_or": op.logical_or,
    "logical_xor": op.logical_xor,
}.items():
    _register_logic(_name, _function)


@converter("logical_not.default")
def _logical_not(t: Translation, self: Value) -> relax.Expr:
    return t.emit(op.logical_not(t.cast(self, "bool")))


@converter("where.self")
def _where(t: Translation, condition: relax.Expr, self: Value, other: Value) -> relax.Expr:
    return t.emit(op.where(t.cast(condition, "bool"), t.cast(self, t.dtype), t.cast(other, t.dtype)))


# ---- classification of floats ---------------------------------------------------------------------------------------


def _register_about_floats(name: str, function: Callable[..., relax.Expr]) -> None:
    @converter(f"{name}.default")
    def convert(t: Translation, self: relax.Expr) -> relax.Expr:
        dtype = dtype_of(self)
        return t.emit(function(t.cast(self, computed_in(dtype)))) if is_float(dtype) else _nowhere(t, self)


def _nowhere(t: Translation, x: relax.Expr) -> relax.Expr:
    return t.emit(op.full(relax.ShapeExpr(shape_of(x)), t.cast(False, "bool"), "bool"))


_register_about_floats("isnan", op.isnan)
_register_about_floats("isinf", op.isinf)


@converter("signbit.default")
def _signbit(t: Translation, self: relax.Expr) -> relax.Expr:
    dtype = computed_in(dtype_of(self))
    if dtype == "bool":
        return _nowhere(t, self)
    x = t.cast(self, dtype)
    if not is_float(dtype):
        return t.emit(op.less(x, t.cast(0, dtype)))
    bits = dtype.replace("float", "int")
    return kernel(t, "signbit", lambda a: tirx.reinterpret(bits, a) < tirx.const(0, bits), x)
