"""Batch, group, layer and instance normalisation. 16-bit floats are computed in float32, whatever the type of the
parameters."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from tvm import relax
from tvm.relax import op

from ..translation import Missing, Translation, Unsupported, Value, converter, shape_of
from ..types import DTYPES, NAMES, computed_in
from .views import reshaped


def _filled(t: Translation, number: float, shape: Sequence[int], dtype: str) -> relax.Constant:
    return t.constant(torch.full(tuple(shape), number, dtype=DTYPES[dtype]))


def _parameter(t: Translation, value: Value, number: float, shape: Sequence[int], dtype: str) -> relax.Expr:
    """A parameter in the type of the computation, or `number` if it is missing."""
    return _filled(t, number, shape, dtype) if value is None else t.cast(value, dtype)


@converter("_native_batch_norm_legit_no_training.default")
def _batch_norm(
    t: Translation,
    input: relax.Expr,
    weight: Value,
    bias: Value,
    running_mean: relax.Expr,
    running_var: relax.Expr,
    momentum: float,
    eps: float,
) -> list[Value]:
    # The momentum only affects training.
    result = _by_statistics(t, input, weight, bias, running_mean, running_var, eps)
    none = [t.emit(op.zeros(tuple(each.shape), NAMES[each.dtype])) for each in t.node.meta["val"][1:]]  # type: ignore[union-attr]
    return [result, *none]


@converter("batch_norm.default")
def _batch_norm_in_inference(
    t: Translation,
    input: relax.Expr,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> relax.Expr:
    if training or running_mean is None or running_var is None:
        raise Unsupported(
            "a batch norm by the statistics of its input is not supported; expected one that PyTorch decomposes"
        )
    return _by_statistics(t, input, weight, bias, running_mean, running_var, eps)


@converter("_native_batch_norm_legit_functional.default")
def _batch_norm_in_training(
    t: Translation,
    input: relax.Expr,
    weight: Value,
    bias: Value,
    running_mean: relax.Expr,
    running_var: relax.Expr,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Normalisation by the statistics of the input, with updated running statistics."""
    if not training:
        result = _by_statistics(t, input, weight, bias, running_mean, running_var, eps)
        none = [t.emit(op.zeros((0,), NAMES[each.dtype])) for each in t.node.meta["val"][1:3]]  # type: ignore[union-attr]
        return [result, *none, running_mean, running_var]
    wide = computed_in(t.dtype)
    shape = shape_of(input)
    data = t.cast(input, wide)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    count = prod(shape[axis] for axis in axes)
    mean = t.emit(op.mean(data, axes, keepdims=True))
    away = t.emit(op.subtract(data, mean))
    variance = t.emit(op.mean(t.emit(op.multiply(away, away)), axes, keepdims=True))
    inverse = t.emit(op.rsqrt(t.emit(op.add(variance, t.cast(eps, wide)))))
    along = [1, shape[1], *[1] * (len(shape) - 2)]
    result = _affine(t, t.emit(op.multiply(away, inverse)), weight, bias, along)
    unbiased = t.emit(op.multiply(variance, t.cast(count / max(count - 1, 1), wide)))

    records = t.node.meta["val"]  # type: ignore[union-attr]

    def moved(old: relax.Expr, new: relax.Expr, record: Any) -> relax.Expr:
        kept = t.emit(op.multiply(t.cast(old, wide), t.cast(1 - momentum, wide)))
        share = t.emit(op.multiply(reshaped(t, new, shape_of(old)), t.cast(momentum, wide)))
        return t.cast(t.emit(op.add(kept, share)), NAMES[record.dtype])

    statistics = [
        t.cast(reshaped(t, value, tuple(record.shape)), NAMES[record.dtype])
        for value, record in zip((mean, inverse), records[1:3], strict=True)
    ]
    means, variances = moved(running_mean, mean, records[3]), moved(running_var, unbiased, records[4])
    return [t.cast(result, t.dtype), *statistics, means, variances]


def _by_statistics(
    t: Translation, data: relax.Expr, weight: Value, bias: Value, mean: relax.Expr, variance: relax.Expr, eps: float
) -> relax.Expr:
    wide = computed_in(t.dtype)
    channels = [shape_of(data)[1]]
    scale, shift = _parameter(t, weight, 1, channels, wide), _parameter(t, bias, 0, channels, wide)
    mean, variance = t.cast(mean, wide), t.cast(variance, wide)
    # Tuple fields are read from a variable, which lets the simplifier find the call.
    both = t.emit(op.nn.batch_norm(t.cast(data, wide), scale, shift, mean, variance, 1, eps, training=False))
    return t.cast(t.emit(relax.TupleGetItem(both, 0)), t.dtype)


@converter("_native_batch_norm_legit.no_stats")
def _batch_norm_by_input(
    t: Translation, input: relax.Expr, weight: Value, bias: Value, training: bool, momentum: float, eps: float
) -> list[Value]:
    """Normalisation by the mean and variance of the input."""
    wide = computed_in(t.dtype)
    shape = shape_of(input)
    data = t.cast(input, wide)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    result = _normal(t, data, axes, eps)
    along = [1, shape[1], *[1] * (len(shape) - 2)]
    return [t.cast(_affine(t, result, weight, bias, along), t.dtype), *_statistics(t, data, axes, eps, "batch")]


def _normal(t: Translation, data: relax.Expr, axes: Sequence[int], eps: float) -> relax.Expr:
    """Normalise to mean 0 and variance 1 along `axes`."""
    dtype = str(data.ty.dtype)
    mean = t.emit(op.mean(data, list(axes), keepdims=True))
    away = t.emit(op.subtract(data, mean))
    variance = t.emit(op.mean(t.emit(op.multiply(away, away)), list(axes), keepdims=True))
    inverse = t.emit(op.rsqrt(t.emit(op.add(variance, t.cast(eps, dtype)))))
    return t.emit(op.multiply(away, inverse))


def _statistics(t: Translation, data: relax.Expr, axes: Sequence[int], eps: float, what: str) -> list[Value]:
    """The second and third result of the node: means and reciprocal standard deviations, if the graph reads them."""
    used = {user.args[1] for user in t.node.users}  # type: ignore[union-attr]
    if not used & {1, 2}:
        return [Missing(f"the mean of a {what}"), Missing(f"the deviation of a {what}")]
    mean = t.emit(op.mean(data, list(axes), keepdims=True))
    away = t.emit(op.subtract(data, mean))
    variance = t.emit(op.mean(t.emit(op.multiply(away, away)), list(axes), keepdims=True))
    inverse = t.emit(op.rsqrt(t.emit(op.add(variance, t.cast(eps, str(data.ty.dtype))))))
    records = t.node.meta["val"][1:]  # type: ignore[union-attr]
    return [
        t.cast(reshaped(t, value, tuple(record.shape)), NAMES[record.dtype])
        for value, record in zip((mean, inverse), records, strict=True)
    ]


def _rows(t: Translation, data: relax.Expr, weight: Value, bias: Value, axes: Sequence[int], eps: float) -> relax.Expr:
    """Normalise to mean 0 and variance 1 along the last axes, then scale and shift by their parameters."""
    dtype = str(data.ty.dtype)
    along = shape_of(data)[axes[0] :]
    if dtype != "float32":  # TVM's operator does not support float64
        return _affine(t, _normal(t, data, axes, eps), weight, bias, along)
    scale, shift = _parameter(t, weight, 1, along, dtype), _parameter(t, bias, 0, along, dtype)
    return t.emit(op.nn.layer_norm(data, scale, shift, list(axes), eps))


def _affine(t: Translation, data: relax.Expr, weight: Value, bias: Value, along: Sequence[int]) -> relax.Expr:
    dtype = str(data.ty.dtype)
    if weight is not None:
        data = t.emit(op.multiply(data, reshaped(t, t.cast(weight, dtype), along)))
    if bias is not None:
        data = t.emit(op.add(data, reshaped(t, t.cast(bias, dtype), along)))
    return data


@converter("instance_norm.default")
def _instance_norm(
    t: Translation,
    input: relax.Expr,
    weight: Value,
    bias: Value,
    running_mean: Value,
    running_var: Value,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> relax.Expr:
    if not use_input_stats:
        return _by_statistics(t, input, weight, bias, running_mean, running_var, eps)
    if running_mean is not None or running_var is not None:
        raise Unsupported("updated running statistics are not supported here; expected the decomposition, or none")
    shape = shape_of(input)
    data = t.cast(input, computed_in(t.dtype))
    if str(data.ty.dtype) == "float32":
        scale, shift = (_parameter(t, p, n, [shape[1]], "float32") for p, n in ((weight, 1), (bias, 0)))
        return t.cast(t.emit(op.nn.instance_norm(data, scale, shift, 1, list(range(2, len(shape))), eps)), t.dtype)
    planes = reshaped(t, data, [shape[0] * shape[1], prod(shape[2:])])
    result = reshaped(t, _rows(t, planes, None, None, [-1], eps), shape)
    return t.cast(_affine(t, result, weight, bias, [1, shape[1], *[1] * (len(shape) - 2)]), t.dtype)


@converter("native_layer_norm.default")
def _layer_norm(
    t: Translation,
    input: relax.Expr,
    normalized_shape: Sequence[int],
    weight: Value,
    bias: Value,
    eps: float,
) -> list[Value]:
    wide = computed_in(t.dtype)
    axes = list(range(-len(normalized_shape), 0))
    data = t.cast(input, wide)
    result = _rows(t, data, weight, bias, axes, eps)
    return [t.cast(result, t.dtype), *_statistics(t, data, axes, eps, "row")]


@converter("native_group_norm.default")
def _group_norm(
    t: Translation,
    input: relax.Expr,
    weight: Value,
    bias: Value,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> list[Value]:
    # The size arguments repeat those of the input's axes.
    wide = computed_in(t.dtype)
    shape = shape_of(input)
    data = t.cast(input, wide)
    if len(shape) > 2 and wide == "float32":
        scale, shift = _parameter(t, weight, 1, [C], wide), _parameter(t, bias, 0, [C], wide)
        result = t.emit(op.nn.group_norm(data, scale, shift, group, 1, list(range(2, len(shape))), eps))
    else:
        rows = reshaped(t, data, [N * group, prod(shape[1:]) // group])
        plain = reshaped(t, _rows(t, rows, None, None, [-1], eps), shape)
        result = _affine(t, plain, weight, bias, [1, C, *[1] * (len(shape) - 2)])
    groups = reshaped(t, data, [N, group, prod(shape[1:]) // group])
    return [t.cast(result, t.dtype), *_statistics(t, groups, [-1], eps, "group")]
