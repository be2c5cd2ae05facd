"""Functions of one quantised element, by way of the real number that it stands for."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from ..operands import Operands, Value, constant, dtype_of
from .qnn_scaling import dequantized, quantized, scale_of


def _hardswish(x: relax.Expr) -> relax.Expr:
    six = constant(6, "float32")
    return op.multiply(x, op.divide(op.clip(op.add(x, constant(3, "float32")), 0, 6), six))


def _through_reals(function: Callable[[relax.Expr], relax.Expr]) -> Callable[[Operands], Value]:
    """The function of the real number that an integer stands for, as an integer of the result's scale."""

    def convert(call: Operands) -> Value:
        x = call.tensor(0)
        real = call.emit(function(dequantized(call, x, scale_of(call, 1))))
        return quantized(call, real, scale_of(call, 3), dtype_of(x))

    return convert


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "qnn.abs": _through_reals(op.abs),
    "qnn.erf": _through_reals(op.erf),
    "qnn.exp": _through_reals(op.exp),
    "qnn.hardswish": _through_reals(_hardswish),
    "qnn.log": _through_reals(op.log),
    "qnn.rsqrt": _through_reals(op.rsqrt),
    "qnn.sigmoid": _through_reals(op.sigmoid),
    "qnn.sqrt": _through_reals(op.sqrt),
    "qnn.tanh": _through_reals(op.tanh),
}
