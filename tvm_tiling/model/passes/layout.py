"""Conversion of whole regions to channels-last layout: convolutions read and write it, and operators between them
follow.

Models arrive channels-first. A kernel whose vector lanes are output channels needs them last, in its input and output,
and so does everything element-wise between two of them. Every tensor is kept in the order in which it was computed; the
other order is computed at most once, on demand. Layout-agnostic operators take the order of their operands, so that
transpositions remain only at the borders of regions: at a model's input, and before operators such as a reshape that
depend on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import tvm
from tvm import relax

from .dataflow import Expr, Rewriter, array, constant, extents_of, ints, is_op, numbers, rewrite, shape_of

# Layout names by rank: channels first, channels last, kernels in the model and in our kernels.
FIRST = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
LAST = {3: "NWC", 4: "NHWC", 5: "NDHWC"}
KERNELS = {3: ("OIW", "WIO"), 4: ("OIHW", "HWIO"), 5: ("OIDHW", "DHWIO")}
CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
POOLS = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
ADAPTIVE_POOLS = ("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
REDUCTIONS = ("mean", "sum", "max", "min", "variance")
# Element-wise operators with any number of broadcast operands.
BROADCASTING = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "power", "maximum", "minimum"),
        *("greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "where", "clip", "astype"),
        *("logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite"),
        *("nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus", "nn.selu"),
        *("abs", "negative", "exp", "log", "sqrt", "rsqrt", "sigmoid", "tanh", "erf", "sin", "cos"),
        *("floor", "ceil", "round", "sign", "square", "left_shift", "right_shift"),
    )
)


def channels_last(mod: tvm.IRModule, but: frozenset[relax.Var] = frozenset()) -> tvm.IRModule:
    """`mod` with its convolutions, and the regions between them, in channels-last order, except for the convolutions
    whose results are in `but`.
    """
    return rewrite(mod, _Orders(but))


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation that moves channels to the end."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The inverse permutation."""
    return (0, rank - 1, *range(1, rank - 1))


class _Orders:
    """The values that exist with channels last. A rewritten value of this pass always represents channels first."""

    def __init__(self, but: frozenset[relax.Var]) -> None:
        self.but = but
        self.last: dict[relax.Var, Expr] = {}  # channels first, nominally -> channels last

    def __call__(self, rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
        """Convert an operator to channels last if it gains from it or follows its operands."""
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op) or variable in self.but:
            return None
        made = self.in_last_order(rewriter, value)
        if made is None:
            return None
        result = rewriter.emit(made)
        rank = len(extents_of(result) or ())
        # This transposition is only computed if channels first is requested: unused values are removed.
        first = rewriter.emit(relax.op.permute_dims(result, to_first(rank)))
        self.last[first] = result
        return first

    def in_last_order(self, rewriter: Rewriter, call: relax.Call) -> Expr | None:
        """The call in channels-last order, or None."""
        name, rank = call.op.name[6:], len(extents_of(call) or ())
        if rank not in FIRST:
            return None
        if name in CONVOLUTIONS:
            return self.convolution(rewriter, call, rank)
        if name == "reshape":
            return self.exchanged(rewriter, call, rank)
        if not any(argument in self.last for argument in _tensors(rewriter, call) if isinstance(argument, relax.Var)):
            return None
        if name in POOLS or name in ADAPTIVE_POOLS:
            return self.pool(rewriter, call, rank)
        if name in BROADCASTING:
            operands = [self.aligned(rewriter, argument, rank) for argument in call.args]
            if any(operand is None for operand in operands):
                return None
            return relax.Call(call.op, operands, call.attrs, call.ty_args)
        if name in ("quantize", "dequantize") and _of_one_scale(call):
            return self.rescaled(rewriter, call, rank)
        if name == "concat":
            return self.concatenation(rewriter, call, rank)
        if name == "strided_slice":
            return self.sliced(rewriter, call, rank)
        if name == "image.resize2d":
            return self.resize(rewriter, call, rank)
        if name == "nn.pad":
            return self.padded(rewriter, call, rank)
        if name in REDUCTIONS and call.attrs.keepdims and call.attrs.axis is not None:
            # Axis a of channels first is at the index of a in the permutation that moves channels last.
            axes = sorted(to_last(rank).index(axis % rank) for axis in ints(call.attrs.axis))
            return getattr(relax.op, name)(self.as_last(rewriter, call.args[0], rank), axes, keepdims=True)
        return None

    # ---- operators --------------------------------------------------------------------------------------------------

    def convolution(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr | None:
        first, (stored, read) = FIRST[rank], KERNELS[rank]
        attrs = call.attrs
        if (str(attrs.data_layout), str(attrs.kernel_layout)) != (first, stored):
            return None
        kernels = array(call.args[1])
        order = [stored.index(letter) for letter in read]
        if kernels is None:
            weights = rewriter.emit(relax.op.permute_dims(call.args[1], order))
        else:
            weights = constant(np.transpose(kernels, order))
        function = {3: relax.op.nn.conv1d, 4: relax.op.nn.conv2d, 5: relax.op.nn.conv3d}[rank]
        return function(
            self.as_last(rewriter, call.args[0], rank),
            weights,
            strides=ints(attrs.strides),
            padding=ints(attrs.padding),
            dilation=ints(attrs.dilation),
            groups=int(attrs.groups),
            data_layout=LAST[rank],
            kernel_layout=read,
            out_dtype=str(attrs.out_dtype or "") or None,
        )

    def pool(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr | None:
        attrs = call.attrs
        if str(attrs.layout) != FIRST[rank]:
            return None
        data = self.as_last(rewriter, call.args[0], rank)
        function = getattr(relax.op.nn, call.op.name[9:])
        if "adaptive" in call.op.name:
            return function(data, None if attrs.output_size is None else ints(attrs.output_size), LAST[rank])
        return function(
            data,
            pool_size=ints(attrs.pool_size),
            strides=ints(attrs.strides),
            padding=ints(attrs.padding),
            dilation=ints(attrs.dilation),
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
            layout=LAST[rank],
        )

    def resize(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr | None:
        attrs = call.attrs
        if str(attrs.layout) != FIRST[rank]:
            return None
        return relax.op.image.resize2d(
            self.as_last(rewriter, call.args[0], rank),
            call.args[1],
            roi=[float(bound) for bound in attrs.roi],
            layout=LAST[rank],
            method=str(attrs.method),
            coordinate_transformation_mode=str(attrs.coordinate_transformation_mode),
            rounding_method=str(attrs.rounding_method),
            cubic_alpha=float(attrs.cubic_alpha),
            cubic_exclude=int(attrs.cubic_exclude),
            extrapolation_value=float(attrs.extrapolation_value),
            out_dtype=str(attrs.out_dtype or "") or None,
        )

    def padded(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr:
        attrs, widths = call.attrs, ints(call.attrs.pad_width)
        moved = [width for axis in to_last(rank) for width in widths[2 * axis : 2 * axis + 2]]
        data = self.as_last(rewriter, call.args[0], rank)
        return relax.op.nn.pad(data, moved, str(attrs.pad_mode), float(attrs.pad_value))

    def rescaled(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr:
        data = self.as_last(rewriter, call.args[0], rank)
        return relax.Call(call.op, [data, *call.args[1:]], call.attrs, call.ty_args)

    def concatenation(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr | None:
        fields = _tensors(rewriter, call)
        axis = int(call.attrs.axis) % rank
        return relax.op.concat([self.as_last(rewriter, f, rank) for f in fields], to_last(rank).index(axis))

    def sliced(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr | None:
        axes = numbers(call.args[1])
        if axes is None:
            return None
        moved = [to_last(rank).index(axis % rank) for axis in axes]
        data = self.as_last(rewriter, call.args[0], rank)
        return relax.op.strided_slice(data, moved, *call.args[2:], assume_inbound=bool(call.attrs.assume_inbound))

    def exchanged(self, rewriter: Rewriter, call: relax.Call, rank: int) -> Expr | None:
        """The end of a view that shuffles channels between groups: a reshape that splits them, a permutation of the
        parts, and a reshape that merges them."""
        turned = rewriter.value(call.args[0])
        split: Expr | None = rewriter.value(turned.args[0]) if is_op(turned, "permute_dims") else None
        if split is None or not is_op(split, "reshape") or split.args[0] not in self.last:
            return None
        source, shape, parts = split.args[0], shape_of(call), shape_of(split)
        if shape is None or parts is None or shape != shape_of(source):
            return None
        order = [int(axis) for axis in turned.attrs.axes] if turned.attrs.axes is not None else []
        pixels = prod(shape[2:])
        # The first axes are the parts of the channels, after the batch axis unless there is one image.
        first = 1 if parts[0] == shape[0] and order[:1] == [0] else 0
        end = next((n for n in range(first + 1, len(parts)) if prod(parts[first:n]) == shape[1]), 0)
        if not end or (not first and shape[0] != 1) or prod(parts[end:]) != pixels:
            return None
        if order[end:] != list(range(end, len(parts))):
            return None
        last = self.last[source]
        before = (shape[0], *shape[2:])
        wide = rewriter.emit(relax.op.reshape(last, (*before, *parts[first:end])))
        axes = [*range(rank - 1), *(axis - first + rank - 1 for axis in order[first:end])]
        return relax.op.reshape(rewriter.emit(relax.op.permute_dims(wide, axes)), (*before, shape[1]))

    # ---- operands ---------------------------------------------------------------------------------------------------

    def as_last(self, rewriter: Rewriter, expr: Expr, rank: int) -> Expr:
        """A tensor of this rank with channels last."""
        value = array(expr)
        if value is not None:
            return constant(np.transpose(value, to_last(rank)))
        if expr not in self.last:
            call = rewriter.value(expr)
            with rewriter.named_after(expr):
                if is_op(call, "nn.pad"):
                    made = self.padded(rewriter, call, rank)
                elif is_op(call, "quantize") and _of_one_scale(call):
                    made = self.rescaled(rewriter, call, rank)
                else:
                    made = relax.op.permute_dims(expr, to_last(rank))
                self.last[expr] = rewriter.emit(made)
        return self.last[expr]

    def aligned(self, rewriter: Rewriter, expr: Expr, rank: int) -> Expr | None:
        """An operand of an element-wise operator, of any rank up to `rank`, such that it broadcasts as before."""
        shape = extents_of(expr) if hasattr(expr.ty, "shape") else ()
        if not shape:
            return expr if shape == () else None
        if len(shape) == rank:
            return self.as_last(rewriter, expr, rank)
        full = (*(1,) * (rank - len(shape)), *shape)
        value = array(expr)
        if value is not None:
            return constant(np.transpose(value.reshape(full), to_last(rank)))
        return rewriter.emit(relax.op.permute_dims(rewriter.emit(relax.op.reshape(expr, full)), to_last(rank)))


def _of_one_scale(call: relax.Call) -> bool:
    return all(shape_of(parameter) == () for parameter in call.args[1:])


def _tensors(rewriter: Rewriter, call: relax.Call) -> Sequence[Expr]:
    """The tensors that a call takes, with tuples flattened."""
    if is_op(call, "concat"):
        fields = rewriter.value(call.args[0])
        return list(fields.fields) if isinstance(fields, relax.Tuple) else list(call.args)
    return list(call.args)
