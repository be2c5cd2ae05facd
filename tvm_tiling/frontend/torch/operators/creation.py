"""Creation of tensors, copies and casts."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from ..translation import Translation, Unsupported, Value, converter, shape_of
from ..types import is_float


def filled(t: Translation, value: Value) -> relax.Expr:
    """The node's result with all elements equal to a number or a one-element tensor."""
    value = t.cast(value, t.dtype)
    if shape_of(value):
        value = t.emit(op.reshape(value, ()))
    return t.emit(op.full(relax.ShapeExpr(t.shape), value, t.dtype))


@converter("full.default", "full_like.default")
def _full(t: Translation, fill_value: float, dtype: Any, size: Any = None, self: Value = None) -> relax.Expr:
    return filled(t, fill_value)


@converter("fill.Scalar", "fill.Tensor")
def _fill(t: Translation, self: relax.Expr, value: Value) -> relax.Expr:
    return filled(t, value)


@converter("scalar_tensor.default")
def _scalar_tensor(t: Translation, s: float, dtype: Any) -> relax.Expr:
    return t.cast(s, t.dtype)


@converter("empty.memory_format", "empty_strided.default", "new_empty_strided.default")
def _empty(t: Translation, size: list[int], dtype: Any, stride: Any = None, self: Value = None) -> relax.Expr:
    """An uninitialised tensor, filled with zeros here."""
    return filled(t, 0)


@converter("arange.start_step")
def _arange(t: Translation, start: float, end: float, step: float, dtype: Any) -> relax.Expr:
    wide = "float64" if is_float(t.dtype) else "int64"

    def sequence() -> te.Tensor:
        first, width = tirx.const(start, wide), tirx.const(step, wide)
        return te.compute(t.shape, lambda at: tirx.Cast(t.dtype, first + tirx.Cast(wide, at) * width), name="arange")

    return t.te(sequence, primfunc_name_hint="arange")


# ---- copies ---------------------------------------------------------------------------------------------------------


@converter(
    *("alias.default", "alias_copy.default", "clone.default", "detach.default", "detach_copy.default"),
    *("lift_fresh_copy.default", "_conj.default", "_conj_physical.default"),
)
def _same(t: Translation, self: relax.Expr) -> relax.Expr:
    return self


@converter("_to_copy.default")
def _to_copy(t: Translation, self: relax.Expr, dtype: Any) -> relax.Expr:
    return t.cast(self, t.dtype)


@converter("prims::convert_element_type.default")
def _convert(t: Translation, a: relax.Expr, dtype: Any) -> relax.Expr:
    return t.cast(a, t.dtype)


@converter("copy.default")
def _copy(t: Translation, self: relax.Expr, src: relax.Expr) -> relax.Expr:
    """`src` in the shape and type of `self`."""
    return t.emit(op.broadcast_to(t.cast(src, t.dtype), relax.ShapeExpr(t.shape)))


@converter("native_dropout.default")
def _native_dropout(t: Translation, input: relax.Expr, p: float, train: bool | None) -> tuple[relax.Expr, relax.Expr]:
    if train or train is None:
        raise Unsupported("dropout in training is random and not supported; expected a module in eval()")
    return input, t.emit(op.full(relax.ShapeExpr(shape_of(input)), t.cast(True, "bool"), "bool"))


@converter("_assert_tensor_metadata.default")
def _assert_tensor_metadata(t: Translation, a: relax.Expr, size: Any, stride: Any, dtype: Any) -> None:
    """PyTorch checked the type and shape when it exported the program; neither can change."""
