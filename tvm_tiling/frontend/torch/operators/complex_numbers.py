"""Complex numbers as pairs of real ones: data movement and sums per part, products and functions by formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax
from tvm.relax import op

from ..translation import (
    CONVERTERS,
    Complex,
    Translation,
    Unsupported,
    Value,
    converter,
    converter_of_complex,
    dtype_of,
    shape_of,
)
from ..types import computed_in
from . import comparison, creation, indexing, padding, products, reductions, scatter, views  # noqa: F401
from .elementwise import in_libm, kernel
from .views import expanded, part, reshaped

# Operators that apply to both parts separately.
_BY_PART = (
    *("view.default", "_unsafe_view.default", "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims"),
    *("permute.default", "transpose.int", "t.default", "expand.default", "repeat.default", "unfold.default"),
    *("slice.Tensor", "select.int", "narrow.default", "split.Tensor", "split_with_sizes.default", "unbind.int"),
    *("flip.default", "roll.default", "diagonal.default", "as_strided.default", "cat.default", "stack.default"),
    *("alias.default", "clone.default", "detach.default", "lift_fresh_copy.default", "constant_pad_nd.default"),
    *("index.Tensor", "index_select.default", "gather.default", "where.self", "neg.default", "chunk.default"),
    *("slice_scatter.default", "select_scatter.default", "diagonal_scatter.default", "index_put.default"),
    *("sum.default", "sum.dim_IntList", "mean.default", "mean.dim", "cumsum.default", "tril.default", "triu.default"),
    *("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar"),
)


def _part_of(value: Value, imaginary: bool) -> Value:
    """One part of an operand; the imaginary part of a real tensor is 0, other arguments are passed through."""
    if isinstance(value, Complex):
        return value.imag if imaginary else value.real
    if isinstance(value, complex):
        return value.imag if imaginary else value.real
    if isinstance(value, tuple | list):
        return type(value)(_part_of(each, imaginary) for each in value)
    return value


# Arguments that are added to a tensor; all others are the same for the imaginary part.
_ADDED = ("other", "self", "src", "values", "value", "tensors")


def _imaginary(t: Translation, name: str, value: Value) -> Value:
    if name in _ADDED and isinstance(value, tuple | list):
        return type(value)(_imaginary(t, name, each) for each in value)
    if name in _ADDED and isinstance(value, relax.Expr):
        return t.emit(op.zeros(shape_of(value), dtype_of(value)))
    if name in _ADDED and isinstance(value, bool | int | float):
        return 0.0
    return _part_of(value, True)


def _register_by_part(name: str) -> None:
    convert = CONVERTERS[f"aten::{name}"]

    @converter_of_complex(name)
    def both(t: Translation, **arguments: Value) -> Value:
        if isinstance(arguments.get("alpha"), complex):
            raise Unsupported("a complex alpha is not supported; expected a real one")
        real = convert(t, **{name: _part_of(value, False) for name, value in arguments.items()})
        imag = convert(t, **{name: _imaginary(t, name, value) for name, value in arguments.items()})
        if isinstance(real, tuple | list):
            return [Complex(*pair) for pair in zip(real, imag, strict=True)]
        return Complex(real, imag)


for _name in _BY_PART:
    if f"aten::{_name}" in CONVERTERS:
        _register_by_part(_name)


def parts(t: Translation, value: Value) -> tuple[relax.Expr, relax.Expr]:
    """Both parts of an operand in the type of the parts of the result."""
    if isinstance(value, Complex):
        return t.cast(value.real, t.dtype), t.cast(value.imag, t.dtype)
    if isinstance(value, complex):
        return t.cast(value.real, t.dtype), t.cast(value.imag, t.dtype)
    real = t.cast(value, t.dtype)
    return real, t.emit(op.zeros(shape_of(real), t.dtype))


def _by_formula(t: Translation, name: str, elements: Any, *operands: Value) -> Complex:
    """Compute both parts by `elements`, a pair of functions of the parts of all operands."""
    given = [each for operand in operands for each in parts(t, operand)]
    real, imag = (expanded(t, kernel(t, name, element, *given), t.shape) for element in elements)
    return Complex(real, imag)


# ---- conversion from and to real numbers -----------------------------------------------------------------------------


def _both(*names: str) -> Callable[[Any], Any]:
    """Register a converter whose operands or results are inherently complex."""

    def register(convert: Any) -> Any:
        return converter(*names)(converter_of_complex(*names)(convert))

    return register


@_both("complex.default")
def _complex(t: Translation, real: relax.Expr, imag: relax.Expr) -> Complex:
    return Complex(expanded(t, real, t.shape), expanded(t, imag, t.shape))


@_both("polar.default")
def _polar(t: Translation, abs: relax.Expr, angle: relax.Expr) -> Complex:
    """A complex number from its absolute value and angle."""
    dtype = dtype_of(abs)
    size, turn = (t.cast(value, computed_in(dtype)) for value in (abs, angle))
    functions = in_libm("cos"), in_libm("sin")
    found = [t.cast(kernel(t, "polar", lambda a, b, f=f: a * f(b), size, turn), dtype) for f in functions]
    return Complex(*found)


@_both("view_as_real.default", "view_as_real_copy.default")
def _view_as_real(t: Translation, self: Complex) -> relax.Expr:
    last = len(t.shape) - 1
    return t.emit(op.concat([t.emit(op.expand_dims(each, last)) for each in (self.real, self.imag)], last))


@_both("view_as_complex.default", "view_as_complex_copy.default")
def _view_as_complex(t: Translation, self: relax.Expr) -> Complex:
    last = len(shape_of(self)) - 1
    real, imag = (reshaped(t, part(t, self, last, place, place + 1), t.shape) for place in (0, 1))
    return Complex(real, imag)


@_both("real.default")
def _real(t: Translation, self: Value) -> relax.Expr:
    return _part_of(self, False)


@_both("imag.default")
def _imag(t: Translation, self: Complex) -> relax.Expr:
    return self.imag


@converter_of_complex("_to_copy.default")
def _to_copy(t: Translation, self: Value, dtype: Any) -> Value:
    if not t.result.dtype.is_complex:
        return t.cast(_part_of(self, False), t.dtype)
    return Complex(*parts(t, self))


@converter_of_complex("_conj.default", "_conj_physical.default")
def _conjugate(t: Translation, self: Complex) -> Complex:
    return Complex(self.real, t.emit(op.negative(self.imag)))


@converter_of_complex("abs.default")
def _abs(t: Translation, self: Complex) -> relax.Expr:
    return kernel(t, "abs", in_libm("hypot"), self.real, self.imag)


@converter_of_complex("angle.default")
def _angle(t: Translation, self: Complex) -> relax.Expr:
    return kernel(t, "angle", in_libm("atan2"), self.imag, self.real)


# ---- products --------------------------------------------------------------------------------------------------------


@converter_of_complex("mul.Tensor", "mul.Scalar")
def _mul(t: Translation, self: Value, other: Value) -> Complex:
    real: Any = lambda a, b, c, d: a * c - b * d  # noqa: E731
    imag: Any = lambda a, b, c, d: a * d + b * c  # noqa: E731
    return _by_formula(t, "mul", (real, imag), self, other)


@converter_of_complex("div.Tensor", "div.Scalar")
def _div(t: Translation, self: Value, other: Value) -> Complex:
    if not isinstance(other, Complex | complex):
        plain: Any = (lambda a, b, c, d: a / c, lambda a, b, c, d: b / c)
        return _by_formula(t, "div", plain, self, other)
    real: Any = lambda a, b, c, d: (a * c + b * d) / (c * c + d * d)  # noqa: E731
    imag: Any = lambda a, b, c, d: (b * c - a * d) / (c * c + d * d)  # noqa: E731
    return _by_formula(t, "div", (real, imag), self, other)


@converter_of_complex("reciprocal.default")
def _reciprocal(t: Translation, self: Complex) -> Complex:
    real: Any = lambda a, b: a / (a * a + b * b)  # noqa: E731
    imag: Any = lambda a, b: -b / (a * a + b * b)  # noqa: E731
    return _by_formula(t, "reciprocal", (real, imag), self)


@converter_of_complex("exp.default")
def _exp(t: Translation, self: Complex) -> Complex:
    exponential, cosine, sine = in_libm("exp"), in_libm("cos"), in_libm("sin")
    elements = (lambda a, b: exponential(a) * cosine(b), lambda a, b: exponential(a) * sine(b))
    return _by_formula(t, "exp", elements, self)


def _register_product(name: str, first: str, second: str) -> None:
    convert = CONVERTERS[f"aten::{name}"]

    @converter_of_complex(name)
    def product(t: Translation, **operands: Value) -> Complex:
        (a, b), (c, d) = (parts(t, operands[each]) for each in (first, second))
        times: Mapping[Any, Any] = {
            (left, right): convert(t, **{first: x, second: y})
            for left, x in (("a", a), ("b", b))
            for right, y in (("c", c), ("d", d))
        }
        real = t.emit(op.subtract(times["a", "c"], times["b", "d"]))
        return Complex(real, t.emit(op.add(times["a", "d"], times["b", "c"])))


for _name, _second in (("mm", "mat2"), ("bmm", "mat2"), ("mv", "vec"), ("dot", "tensor")):
    _register_product(f"{_name}.default", "self", _second)
