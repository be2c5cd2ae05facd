"""Group and instance norms as reductions and element-wise operators, which follow the order of the image's axes.

TVM's own lowering computes a variance as the mean of the squares minus the square of the mean. In float32 the
difference cancels completely if the mean is a few thousand times the standard deviation, and the result is NaN. Here
squared deviations from the mean are summed. The statistics of a group combine those of its channels, so that the image
itself keeps its shape, with channels first or last.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax import op

from ...lowering.extents import quotient
from ...lowering.samples import Extent
from .dataflow import Expr, Rewriter, array, constant, extents_of, ints, is_op, rewrite

_WIDE = {"float16": "float32", "bfloat16": "float32"}


def written_out_norms(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with its nn.group_norm and nn.instance_norm written out."""
    return rewrite(mod, _norm)


def _norm(rewriter: Rewriter, variable: relax.Var, call: Expr) -> Expr | None:
    if not is_op(call, "nn.group_norm", "nn.instance_norm"):
        return None
    shape, dtype = extents_of(variable), str(variable.ty.dtype)
    if shape is None:
        return None
    rank, axis = len(shape), int(call.attrs.channel_axis) % len(shape)
    groups = int(call.attrs.num_groups) if is_op(call, "nn.group_norm") else shape[axis]
    width = quotient(shape[axis], groups)
    if width is None:
        return None
    wide = _WIDE.get(dtype, dtype)
    data = call.args[0] if wide == dtype else rewriter.emit(op.astype(call.args[0], wide))
    axes = sorted(a % rank for a in ints(call.attrs.axes))
    mean, variance = _Statistics(rewriter, axis, axes, groups, width).of(data)
    factor = rewriter.emit(op.rsqrt(rewriter.emit(op.add(variance, relax.const(float(call.attrs.epsilon), wide)))))
    if call.attrs.scale and not _all(call.args[1], 1):
        factor = rewriter.emit(op.multiply(factor, _along(rewriter, call.args[1], wide, rank - axis)))
    result = rewriter.emit(op.multiply(rewriter.emit(op.subtract(data, mean)), factor))
    if call.attrs.center and not _all(call.args[2], 0):
        result = rewriter.emit(op.add(result, _along(rewriter, call.args[2], wide, rank - axis)))
    return result if wide == dtype else rewriter.emit(op.astype(result, dtype))


class _Statistics:
    """Mean and variance over `axes` of an image and over the `width` channels of each group; they have the channels of
    the image at `axis`, with equal values in a group, or one channel if there is one group."""

    def __init__(self, rewriter: Rewriter, axis: int, axes: Sequence[int], groups: Extent, width: Extent) -> None:
        self.rewriter, self.axis, self.axes, self.groups, self.width = rewriter, axis, list(axes), groups, width

    def of(self, image: Expr) -> tuple[Expr, Expr]:
        emit = self.rewriter.emit
        axes = sorted({*self.axes, self.axis}) if self.groups == 1 else self.axes
        mean = emit(op.mean(image, axes, keepdims=True)) if axes else image
        variance = emit(op.variance(image, axes, keepdims=True) if axes else op.subtract(image, image))
        if self.groups == 1 or self.width == 1:
            return mean, variance
        # The variance of a group is the mean of its channels' variances plus the variance of their means.
        shared = self.of_groups(mean)
        away = emit(op.subtract(mean, shared))
        squares = emit(op.multiply(away, away))
        return shared, self.of_groups(emit(op.add(variance, squares)))

    def of_groups(self, channels: Expr) -> Expr:
        """The mean of `channels` over each group, repeated for each channel of the group."""
        emit, axis, shape = self.rewriter.emit, self.axis, extents_of(channels)
        assert shape is not None
        apart = (*shape[:axis], self.groups, self.width, *shape[axis + 1 :])
        mean = emit(op.mean(emit(op.reshape(channels, apart)), [axis + 1], keepdims=True))
        return emit(op.reshape(emit(op.broadcast_to(mean, apart)), shape))


def _all(vector: Expr, value: float) -> bool:
    """Whether `vector` is a constant whose elements are all `value`. Exporters write such a scale and shift if the
    model's own follow separately.
    """
    known = array(vector)
    return known is not None and bool((known == value).all())


def _along(rewriter: Rewriter, vector: Expr, dtype: str, after: int) -> Expr:
    """`vector` over the axis that is number `after` from the end, reshaped so that it broadcasts."""
    known = array(vector)
    if known is not None:
        return constant(known.reshape(-1, *(1,) * (after - 1)).astype(dtype))
    extents = extents_of(vector)
    assert extents is not None
    cast = vector if str(vector.ty.dtype) == dtype else rewriter.emit(op.astype(vector, dtype))
    return rewriter.emit(op.reshape(cast, (*extents, *(1,) * (after - 1))))
