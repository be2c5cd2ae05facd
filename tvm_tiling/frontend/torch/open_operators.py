"""PyTorch operators on tensors of dynamic shape.

Most converters read the result shape that PyTorch recorded, and support dynamic shapes as they are: they are listed
here. The others need positions and extents as numbers, and have separate converters for dynamic shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tvm import relax, tirx
from tvm.relax import op

from ..open_parts import FAR, bounds, lifted, padded, sequence, sliced, upsampled
from ..open_shapes import OpenShapes, Size, plus
from .operators.views import reshaped
from .translation import Converter, Missing, Translation, Unsupported, Value, dtype_of, shape_of
from .types import computed_in

_ELEMENTS = """abs acos acosh asin asinh atan bitwise_not ceil cos cosh elu erf exp expm1 floor gelu hardtanh isinf
isnan leaky_relu log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum neg reciprocal
relu round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"""
_OF_TWO = "add sub rsub mul div bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge"
_WHOLE = """_softmax.default _log_softmax.default clamp.default clamp.Tensor pow.Tensor_Scalar where.self view.default
_unsafe_view.default _reshape_alias.default view_copy.default _reshape_copy.default unsqueeze.default
squeeze.default squeeze.dim squeeze.dims permute.default transpose.int t.default expand.default repeat.default
cat.default stack.default flip.default full.default full_like.default fill.Scalar fill.Tensor
scalar_tensor.default empty.memory_format alias.default clone.default detach.default lift_fresh_copy.default
_to_copy.default copy.default _assert_tensor_metadata.default index.Tensor index_select.default gather.default
embedding.default mm.default bmm.default matmul.default linear.default addmm.default baddbmm.default
_weight_int4pack_mm_for_cpu.default _weight_int8pack_mm.default
scaled_dot_product_attention.default native_layer_norm.default native_group_norm.default
_native_batch_norm_legit_no_training.default batch_norm.default sum.default sum.dim_IntList mean.default
mean.dim prod.dim_int amax.default amin.default max.dim min.dim argmax.default argmin.default any.default
any.dim any.dims all.default all.dim all.dims cumsum.default var.correction var_mean.correction
linalg_vector_norm.default convolution.default conv1d.default conv2d.default conv3d.default lstm.input
gru.input rnn_tanh.input rnn_relu.input"""

ANY_SHAPE = frozenset(
    f"aten::{name}"
    for name in (
        *(f"{name}.default" for name in _ELEMENTS.split()),
        *(f"{name}.{kind}" for name in _OF_TWO.split() for kind in ("Tensor", "Scalar")),
        *_WHOLE.split(),
    )
) | {"prims::convert_element_type.default"}
# Operators that take sizes as sizes; the others get them as tensors.
_OF_SIZES = """view.default _unsafe_view.default _reshape_alias.default view_copy.default _reshape_copy.default
expand.default repeat.default full.default empty.memory_format native_group_norm.default slice.Tensor slice_copy.Tensor
select.int select_copy.int narrow.default narrow_copy.default split.Tensor split_with_sizes.default chunk.default
unbind.int arange.start_step constant_pad_nd.default adaptive_avg_pool1d.default adaptive_avg_pool2d.default
adaptive_avg_pool3d.default
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec"""
TAKE_SIZES = frozenset(f"aten::{name}" for name in _OF_SIZES.split())

OPEN: dict[str, Converter] = {}


def _open(*names: str) -> Any:
    def register(convert: Converter) -> Converter:
        OPEN.update((f"aten::{name}", convert) for name in names)
        return convert

    return register


def _shapes(t: Translation) -> OpenShapes:
    assert t.open is not None
    return t.open.shapes


def _part(t: Translation, value: relax.Expr, axis: int, first: Size, count: Size, step: int = 1) -> relax.Expr:
    return t.emit(sliced(t.builder, _shapes(t), value, {axis: (first, count, step)}))


@_open("slice.Tensor", "slice_copy.Tensor")
def _slice(t: Translation, self: relax.Expr, dim: int, start: Size | None, end: Size | None, step: int) -> relax.Expr:
    axis = dim % len(shape_of(self))
    first, count = bounds(
        _shapes(t), 0 if start is None else start, FAR if end is None else end, step, shape_of(self)[axis]
    )
    return _part(t, self, axis, first, count, step)


@_open("select.int", "select_copy.int")
def _select(t: Translation, self: relax.Expr, dim: int, index: Size) -> relax.Expr:
    axis = dim % len(shape_of(self))
    extent = shape_of(self)[axis]
    first = lifted(_shapes(t), index, extent)
    _shapes(t).require_at_least(first, 0)
    _shapes(t).require_at_least(extent, plus(first, 1))
    return reshaped(t, _part(t, self, axis, first, 1), t.shape)


@_open("narrow.default", "narrow_copy.default")
def _narrow(t: Translation, self: relax.Expr, dim: int, start: Size, length: Size) -> relax.Expr:
    axis = dim % len(shape_of(self))
    first = lifted(_shapes(t), start, shape_of(self)[axis])
    _shapes(t).require_at_least(shape_of(self)[axis], plus(first, length))
    return _part(t, self, axis, first, length)


@_open("split.Tensor", "split_with_sizes.default", "chunk.default", "unbind.int")
def _split(t: Translation, self: relax.Expr, dim: int, **sizes: Value) -> list[relax.Expr]:
    """Parts with the sizes that PyTorch recorded."""
    assert t.open is not None and t.node is not None
    axis, first, parts = dim % len(shape_of(self)), 0, []
    for record in t.node.meta["val"]:
        shape = [t.open.size(extent) for extent in record.shape]
        whole = len(shape) == len(shape_of(self))
        count: Size = shape[axis] if whole else 1
        found = _part(t, self, axis, first, count)
        parts.append(found if whole else reshaped(t, found, shape))
        first = plus(first, count)
    return parts


@_open("arange.start_step")
def _arange(t: Translation, start: Size, end: Size, step: Size, dtype: Any) -> relax.Expr:
    if any(isinstance(number, float) for number in (start, step)):
        raise Unsupported(f"a range of dynamic length from {start} by {step} is not supported; expected whole numbers")
    return t.emit(sequence(t.builder, start, step, t.shape[0], t.dtype))


@_open("constant_pad_nd.default")
def _padded(t: Translation, self: relax.Expr, pad: Sequence[Size], value: float) -> relax.Expr:
    rank = len(shape_of(self))
    pairs = [(pad[place], pad[place + 1]) for place in range(0, len(pad), 2)]
    whole = [*[(0, 0)] * (rank - len(pairs)), *reversed(pairs)]
    fill = torch.tensor(value).to(torch.bool).item() if t.dtype == "bool" else value
    return t.emit(padded(t.builder, _shapes(t), self, whole, fill, "constant"))


# ---- pools ----------------------------------------------------------------------------------------------------------

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


def _each(numbers: Sequence[int], rank: int) -> list[int]:
    return list(numbers) * rank if len(numbers) == 1 else list(numbers)


def _register_pools(rank: int) -> None:
    def images(t: Translation, value: relax.Expr, ceil_mode: bool) -> relax.Expr:
        if ceil_mode:
            raise Unsupported("ceil_mode along dynamic axes is not supported")
        if len(shape_of(value)) != rank + 2:
            raise Unsupported("images without a batch axis are not supported; expected a batch and channels")
        return t.cast(value, computed_in(t.dtype))

    @_open(f"max_pool{rank}d_with_indices.default")
    def largest(
        t: Translation,
        self: relax.Expr,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
    ) -> list[Value]:
        kernel, before = _each(kernel_size, rank), _each(padding, rank)
        strides = _each(stride, rank) if len(stride) else kernel
        data = images(t, self, ceil_mode)
        best = t.emit(_MAX[rank](data, kernel, strides, before * 2, _each(dilation, rank)))
        return [t.cast(best, t.dtype), Missing("indices of a pool of dynamic shape")]

    @_open(f"avg_pool{rank}d.default")
    def mean(
        t: Translation,
        self: relax.Expr,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> relax.Expr:
        if divisor_override is not None:
            raise Unsupported("divisor_override along dynamic axes is not supported")
        kernel, before = _each(kernel_size, rank), _each(padding, rank)
        strides = _each(stride, rank) if len(stride) else kernel
        data = images(t, self, ceil_mode)
        found = _AVERAGE[rank](data, kernel, strides, before * 2, count_include_pad=count_include_pad)
        return t.cast(t.emit(found), t.dtype)

    @_open(f"adaptive_avg_pool{rank}d.default", f"_adaptive_avg_pool{rank}d.default")
    def adaptive(t: Translation, self: relax.Expr, output_size: Sequence[Size]) -> relax.Expr:
        if not all(isinstance(size, int) and size == 1 for size in output_size):
            raise Unsupported("an adaptive pool of dynamic shape to more than one element is not supported; expected 1")
        data = t.cast(self, computed_in(t.dtype))
        return t.cast(t.emit(op.mean(data, list(range(-rank, 0)), keepdims=True)), t.dtype)


for _rank in (1, 2, 3):
    _register_pools(_rank)


def _register_nearest(rank: int) -> None:
    @_open(f"upsample_nearest{rank}d.vec")
    def convert(t: Translation, input: relax.Expr, output_size: Any, scale_factors: Any) -> relax.Expr:
        for axis, (wanted, extent) in enumerate(zip(t.shape, shape_of(input), strict=True)):
            factor = _shapes(t).multiple(wanted, extent)
            if factor & (factor - 1):
                raise Unsupported(
                    f"upsampling by {factor} along a dynamic axis is not supported; expected a power of 2"
                )
            if factor > 1:
                input = t.emit(upsampled(t.builder, _shapes(t), input, axis, factor, linear=False))
        return input


for _rank in (1, 2, 3):
    _register_nearest(_rank)


def as_number(t: Translation, value: tirx.Expr) -> relax.Expr:
    """A size as a scalar tensor, which counts as an int64 number in type promotion."""
    lined = t.emit(op.shape_to_tensor(relax.ShapeExpr([value])))
    found = t.emit(op.reshape(lined, relax.ShapeExpr([])))
    assert dtype_of(found) == "int64"
    return found


# ---- operators that PyTorch rejects for empty axes -------------------------------------------------------------------


def _reduced(arguments: Mapping[str, Value]) -> tuple[relax.Expr, Sequence[int]]:
    value, dims = arguments["self"], arguments["dim"]
    rank = len(shape_of(value))
    axes = [dims] if isinstance(dims, int) else list(dims or range(rank))
    return value, [axis % rank for axis in axes]


def _spatial(arguments: Mapping[str, Value]) -> tuple[relax.Expr, Sequence[int]]:
    value = next(iter(arguments.values()))
    return value, range(2, len(shape_of(value)))


def _steps(arguments: Mapping[str, Value]) -> tuple[relax.Expr, Sequence[int]]:
    return arguments["input"], [int(bool(arguments["batch_first"]))]


_NOT_EMPTY: dict[Callable[[Mapping[str, Value]], tuple[relax.Expr, Sequence[int]]], str] = {
    _reduced: "amax.default amin.default max.dim min.dim argmax.default argmin.default",
    _spatial: """convolution.default conv1d.default conv2d.default conv3d.default max_pool1d_with_indices.default
max_pool2d_with_indices.default max_pool3d_with_indices.default avg_pool1d.default avg_pool2d.default avg_pool3d.default
adaptive_avg_pool1d.default adaptive_avg_pool2d.default adaptive_avg_pool3d.default _adaptive_avg_pool2d.default
_adaptive_avg_pool3d.default upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec""",
    _steps: "lstm.input gru.input rnn_tanh.input rnn_relu.input",
}
_AXES = {f"aten::{name}": axes for axes, names in _NOT_EMPTY.items() for name in names.split()}


def require_elements(t: Translation, name: str, arguments: Mapping[str, Value]) -> None:
    """Add guards that axes are not empty, for operators that require it."""
    if name not in _AXES:
        return
    value, axes = _AXES[name](arguments)
    for axis in axes:
        _shapes(t).require_at_least(shape_of(value)[axis], 1)
