"""Losses that PyTorch computes by dedicated operators."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import op

from ....lowering.positions import checked_positions
from ..translation import Missing, Translation, Value, converter, dtype_of, shape_of
from ..types import computed_in
from .products import product, turned
from .views import reshaped


@converter("torch_nn::_linear_cross_entropy_batch_chunked.default")
def _linear_cross_entropy(
    t: Translation,
    input: relax.Expr,
    linear_weight: relax.Expr,
    target: relax.Expr,
    linear_bias: Value,
    weight: Value,
    reduction: str,
    ignore_index: int,
    **others: Any,
) -> list[Value]:
    """The mean or sum of the losses. `others` control chunking and gradients in PyTorch."""
    if "float" in dtype_of(target):
        loss = _of_probabilities(t, input, linear_weight, target, linear_bias, weight)
        count = t.cast(float(shape_of(input)[0]), dtype_of(loss))
    else:
        losses, factors = _losses(t, input, linear_weight, target, linear_bias, weight, ignore_index)
        loss, count = t.emit(op.sum(losses)), t.emit(op.sum(factors))
    if reduction == "mean":
        loss = t.emit(op.divide(loss, count))
    return [t.cast(loss, t.dtype), *(Missing(f"the gradient of its {what}") for what in ("input", "weight", "bias"))]


@converter("torch_nn::_linear_cross_entropy_batch_chunked_no_reduction.default")
def _linear_cross_entropies(
    t: Translation,
    input: relax.Expr,
    linear_weight: relax.Expr,
    target: relax.Expr,
    linear_bias: Value,
    weight: Value,
    ignore_index: int,
    **others: Any,
) -> relax.Expr:
    return t.cast(_losses(t, input, linear_weight, target, linear_bias, weight, ignore_index)[0], t.dtype)


def _logarithms(t: Translation, data: relax.Expr, matrix: relax.Expr, bias: Value) -> relax.Expr:
    """The log-probabilities of the classes for each row of data @ matrix^T + bias."""
    wide = computed_in(t.dtype)
    scores = product(t, t.cast(data, wide), turned(t, t.cast(matrix, wide)), wide)
    if bias is not None:
        scores = t.emit(op.add(scores, t.cast(bias, wide)))
    return t.emit(op.nn.log_softmax(scores, -1))


def _of_probabilities(
    t: Translation, data: relax.Expr, matrix: relax.Expr, target: relax.Expr, bias: Value, weight: Value
) -> relax.Expr:
    """The sum of the cross-entropies of rows whose targets are class probabilities."""
    logarithms = _logarithms(t, data, matrix, bias)
    wanted = t.cast(target, dtype_of(logarithms))
    if weight is not None:
        wanted = t.emit(op.multiply(wanted, t.cast(weight, dtype_of(logarithms))))
    return t.emit(op.negative(t.emit(op.sum(t.emit(op.multiply(wanted, logarithms))))))


def _losses(
    t: Translation,
    data: relax.Expr,
    matrix: relax.Expr,
    target: relax.Expr,
    bias: Value,
    weight: Value,
    ignored: int,
) -> tuple[relax.Expr, relax.Expr]:
    """The cross-entropy of each row of data @ matrix^T + bias, and its weight; both are 0 if the class is `ignored`."""
    wide = computed_in(t.dtype)
    rows, classes = shape_of(data)[0], shape_of(matrix)[0]
    logarithms = _logarithms(t, data, matrix, bias)
    none, zero = t.emit(op.equal(target, t.cast(ignored, dtype_of(target)))), t.cast(0.0, wide)
    places = t.emit(op.where(none, t.cast(0, dtype_of(target)), target))
    places = checked_positions(t.builder, places, classes, "linear_cross_entropy", wraps=False, called="target")
    places = t.cast(places, "int64")
    own = reshaped(t, t.emit(op.gather_elements(logarithms, reshaped(t, places, (rows, 1)), 1)), (rows,))
    factors = t.cast(1.0, wide) if weight is None else t.emit(op.take(t.cast(weight, wide), places, axis=0))
    factors = t.emit(op.where(none, zero, factors))
    losses = t.emit(op.where(none, zero, t.emit(op.multiply(t.emit(op.negative(own)), factors))))
    return losses, factors
