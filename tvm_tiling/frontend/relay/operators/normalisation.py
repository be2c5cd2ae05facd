"""Batch, layer, group and local response normalisation, softmax, and losses on its results."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from ..operands import OpenOperand, Operands, Value, along, axis_in, constant, dtype_of, numbers, rank_of, shape_of


def _batch_norm(call: Operands) -> Value:
    x, gamma, beta, mean, variance = (call.tensor(place) for place in range(5))
    normal = op.nn.batch_norm(
        x,
        gamma,
        beta,
        mean,
        variance,
        axis=axis_in(call["axis"], rank_of(x)),
        epsilon=float(call["epsilon"]),
        center=bool(call["center"]),
        scale=bool(call["scale"]),
        training=False,
    )
    return call.emit(relax.TupleGetItem(call.emit(normal), 0)), mean, variance


def _scaled(call: Operands, x: relax.Expr, rank: int, axis: int) -> Value:
    """`x`, already normalised, times the second operand plus the third one along `axis`; `rank` is that of `x`."""
    if call["scale"]:
        x = call.emit(op.multiply(x, call.emit(along(call.tensor(1), axis, rank))))
    if call["center"]:
        x = call.emit(op.add(x, call.emit(along(call.tensor(2), axis, rank))))
    return x


def _normal(call: Operands, x: relax.Expr, axes: list[int]) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    mean = call.emit(op.mean(x, axes, keepdims=True))
    away = call.emit(op.subtract(x, mean))
    variance = call.emit(op.mean(op.multiply(away, away), axes, keepdims=True))
    width = call.emit(op.sqrt(op.add(variance, constant(call["epsilon"], dtype_of(x)))))
    return call.emit(op.divide(away, width))


def _layer_norm(call: Operands) -> Value:
    x = call.tensor(0)
    axis = axis_in(call["axis"], rank_of(x))
    return op.nn.layer_norm(
        x,
        call.tensor(1),
        call.tensor(2),
        axes=[axis],
        epsilon=float(call["epsilon"]),
        center=bool(call["center"]),
        scale=bool(call["scale"]),
    )


def _instance_norm(call: Operands) -> Value:
    x = call.tensor(0)
    rank = rank_of(x)
    axis = axis_in(call["axis"], rank)
    return _scaled(call, _normal(call, x, [place for place in range(1, rank) if place != axis]), rank, axis)


def _group_norm(call: Operands) -> Value:
    x = call.tensor(0)
    shape = call.extents(x)
    axis, groups = axis_in(call["axis"], len(shape)), int(call["num_groups"])
    if groups < 1 or (isinstance(shape[axis], int) and shape[axis] % groups):
        raise ValueError(f"num_groups = {groups} does not divide {shape[axis]} channels; expected a divisor")
    apart = [*shape[:axis], groups, call.shapes.quotient([shape[axis]], [groups]), *shape[axis + 1 :]]
    # The channels of a group are now at axis + 1; the batch and group axes are not reduced.
    axes = [place for place in range(1, len(apart)) if place != axis]
    normal = _normal(call, call.emit(op.reshape(x, apart)), axes)
    return _scaled(call, call.emit(op.reshape(normal, shape)), len(shape), axis)


def _l2_normalize(call: Operands) -> Value:
    x = call.tensor(0)
    rank = rank_of(x)
    stated = numbers(call["axis"]) if call["axis"] is not None else []
    axes = [axis_in(axis, rank) for axis in stated] or list(range(rank))
    squares = call.emit(op.sum(op.multiply(x, x), axes, keepdims=True))
    return op.divide(x, op.sqrt(op.maximum(squares, constant(call["eps"], dtype_of(x)))))


def _lrn(call: Operands) -> Value:
    """x / (bias + alpha / size * sum of the squares of `size` neighbours) ** beta."""
    x, size = call.tensor(0), int(call["size"])
    shape, dtype = call.extents(x), dtype_of(x)
    axis = axis_in(call["axis"], len(shape))
    if not isinstance(shape[axis], int):
        raise OpenOperand("neighbours along a dynamic dimension")
    if size < 1 or size % 2 == 0:
        raise ValueError(f"size = {size}; expected odd numbers from 1")
    widths = [width for place in range(len(shape)) for width in [size // 2 if place == axis else 0] * 2]
    wide = call.emit(op.nn.pad(call.emit(op.multiply(x, x)), widths, "constant", 0.0))
    pieces = [call.emit(op.strided_slice(wide, [axis], [at], [at + shape[axis]], [1])) for at in range(size)]
    total = pieces[0]
    for piece in pieces[1:]:
        total = call.emit(op.add(total, piece))
    scaled = call.emit(op.multiply(total, constant(call["alpha"] / size, dtype)))
    power = op.power(op.add(scaled, constant(call["bias"], dtype)), constant(call["beta"], dtype))
    return op.divide(x, power)


def _softmax(call: Operands) -> Value:
    x = call.tensor(0)
    return op.nn.softmax(x, axis_in(call["axis"], rank_of(x)))


def _log_softmax(call: Operands) -> Value:
    x = call.tensor(0)
    axis = axis_in(call["axis"], rank_of(x))
    away = call.emit(op.subtract(x, call.emit(op.max(x, [axis], keepdims=True))))
    return op.subtract(away, op.log(op.sum(op.exp(away), [axis], keepdims=True)))


def _cross_entropy(of_logarithms: bool) -> Callable[[Operands], Value]:
    def convert(call: Operands) -> Value:
        predicted, target = call.tensor(0), call.tensor(1)
        logarithms = predicted if of_logarithms else call.emit(op.log(predicted))
        total = call.emit(op.sum(op.multiply(logarithms, target)))
        return op.divide(total, constant(-shape_of(predicted)[0], dtype_of(predicted)))

    return convert


def _nll_loss(call: Operands) -> Value:
    return op.nn.nll_loss(
        call.tensor(0),
        call.tensor(1),
        call.tensor(2),
        reduction=str(call["reduction"]),
        ignore_index=int(call["ignore_index"]),
    )


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "nn.batch_norm": _batch_norm,
    "nn.cross_entropy": _cross_entropy(of_logarithms=False),
    "nn.cross_entropy_with_logits": _cross_entropy(of_logarithms=True),
    "nn.fast_softmax": _softmax,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.layer_norm": _layer_norm,
    "nn.log_softmax": _log_softmax,
    "nn.lrn": _lrn,
    "nn.nll_loss": _nll_loss,
    "nn.softmax": _softmax,
}
