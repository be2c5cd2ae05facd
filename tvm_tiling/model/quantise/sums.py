"""Sums and matrix multiplications of quantised tensors in int32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
from tvm import relax
from tvm.relax import op

from ...lowering.samples import is_open
from ..passes.dataflow import Expr, Rewriter, constant, extents_of, ints, is_op, shape_of
from .arithmetic import Arithmetic
from .scale import LOW, Scale
from .totals import Real, Total, integer

Kernel = Callable[[Expr, int], tuple[np.ndarray, np.ndarray, np.ndarray] | None]


class Sums:
    """The int32 totals of operators on quantised tensors. `kernel` returns constant weights."""

    def __init__(
        self,
        rewriter: Rewriter,
        real: dict[relax.Var, Real],
        lookup: Callable[[Expr], Expr],
        kernel: Kernel,
        arithmetic: Arithmetic,
    ) -> None:
        self.rewriter, self.real, self.lookup, self.kernel = rewriter, real, lookup, kernel
        self.arithmetic = arithmetic

    def total(self, core: Expr, factor: float, out: Scale | None) -> Total | None:
        """The total for factor * core, to be requantised to `out` if given; None if `core` is not a sum of quantised
        tensors."""
        if core in self.real:
            source = self.real[core]
            return Total(source.centred(self.rewriter), np.array(source.scale.scale * factor), 255)
        call = self.lookup(core)
        if is_op(call, "nn.conv2d"):
            found = self._convolution(call)
        elif is_op(call, "matmul"):
            found = self._product(call)
        elif is_op(call, "add", "subtract"):
            return None if out is None else self._sum(call, factor, out)
        elif is_op(call, "multiply"):
            found = self._multiplied(call)
        elif is_op(call, "nn.avg_pool2d"):
            found = self._average_pool(call)
        elif is_op(call, "mean"):
            axes = None if call.attrs.axis is None else ints(call.attrs.axis)
            found = self._mean(call.args[0], axes, bool(call.attrs.keepdims))
        elif is_op(call, "nn.adaptive_avg_pool2d") and str(call.attrs.layout) == "NCHW":
            size = call.attrs.output_size
            whole = size is not None and ints(size) == (1, 1)
            found = self._mean(call.args[0], (2, 3), True) if whole else None
        else:
            found = None
        return None if found is None else replace(found, factor=found.factor * factor)

    # ---- element-wise -----------------------------------------------------------------------------------------------

    def _two(self, call: relax.Call) -> tuple[Real, Real] | None:
        """Both operands, if they are quantised tensors. The computation of the first continues with this call; the
        other is stored meanwhile, in 8 bits instead of 32."""
        left, right = (self.real.get(a) if isinstance(a, relax.Var) else None for a in call.args)
        if left is None or right is None:
            return None
        if left.wide is None or right.wide is None:
            return left, right
        if left.number <= right.number:
            return left, replace(right, wide=None)
        return replace(left, wide=None), right

    def _sum(self, call: relax.Call, factor: float, out: Scale) -> Total | None:
        """x + y, or x - y, of two scales."""
        two = self._two(call)
        if two is None:
            return None
        return self.arithmetic.sum(self.rewriter, *two, factor, -1 if is_op(call, "subtract") else 1, out)

    def _multiplied(self, call: relax.Call) -> Total | None:
        two = self._two(call)
        if two is None:
            return None
        left, right = two
        value = self.rewriter.emit(op.multiply(left.centred(self.rewriter), right.centred(self.rewriter)))
        return Total(value, np.array(left.scale.scale * right.scale.scale), 255 * 255)

    # ---- sums -------------------------------------------------------------------------------------------------------

    def _convolution(self, call: relax.Call) -> Total | None:
        attrs = call.attrs
        layout, stored = str(attrs.data_layout), str(attrs.kernel_layout)
        out_layout = str(attrs.out_layout or "") or layout
        source = self.real.get(call.args[0])
        kernel = self.kernel(call.args[1], stored.index("O"))
        if source is None or kernel is None or out_layout != layout:
            return None
        weights, scales, zeros = kernel
        if zeros.any():
            return None
        along = [-1 if letter == "C" else 1 for letter in layout]
        others = tuple(a for a, letter in enumerate(stored) if letter != "O")
        value, padding = source.value, ints(attrs.padding)
        if source.scale.zero and any(padding):
            # The padding value has to represent 0.
            top, left, bottom, right = padding
            before = {"H": (top, bottom), "W": (left, right)}
            widths = [width for letter in layout for width in before.get(letter, (0, 0))]
            value = self.rewriter.emit(op.nn.pad(value, widths, "constant", source.scale.zero))
            padding = (0, 0, 0, 0)
        total = self.rewriter.emit(
            op.nn.conv2d(
                value,
                constant(weights),
                strides=ints(attrs.strides),
                padding=padding,
                dilation=ints(attrs.dilation),
                groups=int(attrs.groups),
                data_layout=layout,
                kernel_layout=stored,
                out_dtype="int32",
            )
        )
        return self._without_zero(total, source, weights, scales, others, along)

    def _without_zero(
        self,
        total: Expr,
        source: Real,
        weights: np.ndarray,
        scales: np.ndarray,
        others: tuple[int, ...],
        along: list[int],
    ) -> Total:
        """A sum over constant weights, minus the contribution of the other operand's zero point."""
        wide = weights.astype(np.int64)
        bound = int((np.abs(wide).sum(axis=others).max()) * -LOW)
        offset = None
        if source.scale.zero:
            sums = wide.sum(axis=others) * source.scale.zero
            spread = sums.reshape(along)
            bound *= 2
            if self.arithmetic.everything:
                total = self.rewriter.emit(op.subtract(total, constant(spread.astype(np.int32))))
            else:
                offset = -spread.astype(np.float64)
        return Total(total, scales.astype(np.float64).reshape(along) * source.scale.scale, bound, offset)

    def _product(self, call: relax.Call) -> Total | None:
        left = self.real.get(call.args[0]) if isinstance(call.args[0], relax.Var) else None
        right = self.real.get(call.args[1]) if isinstance(call.args[1], relax.Var) else None
        if left is not None and right is not None:
            return self._product_of_two(left, right)
        shape = shape_of(call.args[1])
        if left is None or shape is None or len(shape) != 2:
            return None
        kernel = self.kernel(call.args[1], 1)
        if kernel is None:
            return None
        weights, scales, zeros = kernel
        total = self.rewriter.emit(op.matmul(left.value, constant(weights), out_dtype="int32"))
        if zeros.any():
            if left.scale.zero:
                return None
            rows = self._summed(left.value, -1)
            total = self.rewriter.emit(
                op.subtract(total, self.rewriter.emit(op.multiply(rows, constant(zeros.reshape(1, -1)))))
            )
        found = self._without_zero(total, left, weights, scales, (0,), [-1])
        return replace(found, bound=found.bound * 2) if zeros.any() else found

    def _product_of_two(self, left: Real, right: Real) -> Total | None:
        """(x - zx)(y - zy) summed over k: sums along k are subtracted for zero points other than 0."""
        extents = extents_of(left.value)
        if extents is None or len(extents) < 2 or len(extents_of(right.value) or ()) < 2 or is_open(extents[-1]):
            return None  # with as many products as a dynamic extent has elements, int32 may overflow
        depth = int(extents[-1])
        total = self.rewriter.emit(op.matmul(left.value, right.value, out_dtype="int32"))
        zx, zy = left.scale.zero, right.scale.zero
        for source, axis, zero in ((left, -1, zy), (right, -2, zx)):
            if zero:
                taken = self.rewriter.emit(op.multiply(self._summed(source.value, axis), integer(zero)))
                total = self.rewriter.emit(op.subtract(total, taken))
        if zx and zy:
            total = self.rewriter.emit(op.add(total, integer(depth * zx * zy)))
        bound = depth * ((-LOW) ** 2 if not (zx or zy) else 255 * 255)
        return Total(total, np.array(left.scale.scale * right.scale.scale), bound)

    def _summed(self, value: Expr, axis: int) -> Expr:
        wide = self.rewriter.emit(op.astype(value, "int32"))
        return self.rewriter.emit(op.sum(wide, [axis], keepdims=True))

    def _mean(self, data: Expr, axes: tuple[int, ...] | None, keep: bool) -> Total | None:
        source = self.real.get(data) if isinstance(data, relax.Var) else None
        shape = shape_of(data)
        if source is None or shape is None:
            return None
        axes = tuple(range(len(shape))) if axes is None else axes
        count = prod(shape[a] for a in axes)
        wide = self.rewriter.emit(op.sum(self.rewriter.emit(op.astype(source.value, "int32")), axes, keepdims=keep))
        if source.scale.zero:
            wide = self.rewriter.emit(op.subtract(wide, integer(count * source.scale.zero)))
        return Total(wide, np.array(source.scale.scale / count), 255 * count)

    def _average_pool(self, call: relax.Call) -> Total | None:
        """A mean over windows: the values of each channel times a kernel of ones."""
        attrs = call.attrs
        source = self.real.get(call.args[0])
        shape = shape_of(call.args[0])
        if source is None or shape is None or str(attrs.layout) != "NCHW" or any(ints(attrs.padding)):
            return None
        if bool(attrs.ceil_mode):
            return None
        window = ints(attrs.pool_size)
        ones = np.ones((shape[1], 1, *window), np.int8)
        total = self.rewriter.emit(
            op.nn.conv2d(
                source.value,
                constant(ones),
                strides=ints(attrs.strides),
                dilation=ints(attrs.dilation),
                groups=shape[1],
                out_dtype="int32",
            )
        )
        count = prod(window)
        if source.scale.zero:
            total = self.rewriter.emit(op.subtract(total, integer(count * source.scale.zero)))
        return Total(total, np.array(source.scale.scale / count), 255 * count)
