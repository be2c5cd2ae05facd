"""Activation functions."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax, tirx
from tvm.relax import op

from ..translation import Translation, Unsupported, converter
from ..types import is_float
from .elementwise import elementwise, real, unary
from .functions import expm1


@converter("relu.default")
def _relu(t: Translation, self: relax.Expr) -> relax.Expr:
    return unary(t, op.nn.relu, self)


@converter("leaky_relu.default")
def _leaky_relu(t: Translation, self: relax.Expr, negative_slope: float) -> relax.Expr:
    return unary(t, lambda x: op.nn.leakyrelu(x, float(negative_slope)), self)


@converter("elu.default")
def _elu(t: Translation, self: relax.Expr, alpha: float, scale: float, input_scale: float) -> relax.Expr:
    """scale * x for positive x, otherwise alpha * scale * (e^(input_scale * x) - 1)."""

    def element(x: tirx.Expr) -> tirx.Expr:
        below = expm1(x * real(input_scale, x)) * real(alpha * scale, x)
        return tirx.Select(x > real(0, x), x * real(scale, x), below)

    return elementwise(t, "elu", element, self)


@converter("gelu.default")
def _gelu(t: Translation, self: relax.Expr, approximate: str) -> relax.Expr:
    functions = {"none": op.nn.gelu, "tanh": op.nn.gelu_tanh}
    if approximate not in functions:
        raise Unsupported(f"approximate={approximate!r} is not supported; expected 'none' or 'tanh'")
    return unary(t, functions[approximate], self)


def _register_softmax(name: str, function: Callable[..., relax.Expr]) -> None:
    @converter(name)
    def convert(t: Translation, self: relax.Expr, dim: int, half_to_float: bool) -> relax.Expr:
        # `half_to_float`: float16 to float32, as in PyTorch's record of the result.
        if not is_float(t.dtype):
            raise Unsupported(f"type {t.dtype} is not supported; expected a float type")
        if t.shape:
            return unary(t, lambda x: function(x, axis=dim), self)
        line = t.emit(op.reshape(self, (1,)))
        return t.emit(op.reshape(unary(t, lambda x: function(x, axis=0), line), ()))


_register_softmax("_softmax.default", op.nn.softmax)
_register_softmax("_log_softmax.default", op.nn.log_softmax)
