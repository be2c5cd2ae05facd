"""Relax compositions of ONNX operators that TVM's importer lacks or reads differently from the standard.

Each converter follows TVM's convention: `_impl_v<version>` converts the operator of that version of the standard
operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_shapes import extents_of, whole
from .activations import CONVERTERS as ACTIVATIONS
from .arithmetic import CONVERTERS as ARITHMETIC
from .contributed import CONVERTERS as CONTRIBUTED
from .einsum import CONVERTERS as EINSUM
from .indexing import CONVERTERS as INDEXING
from .indexing import positions
from .pools import CONVERTERS as POOLS
from .quantized import CONVERTERS as QUANTIZED
from .recurrent import CONVERTERS as RECURRENT
from .reductions import CONVERTERS as REDUCTIONS
from .resize import CONVERTERS as RESIZE
from .sampling import CONVERTERS as SAMPLING
from .selection import CONVERTERS as SELECTION
from .sequences import CONVERTERS as SEQUENCES
from .signal import CONVERTERS as SIGNAL
from .slices import CONVERTERS as SLICES
from .tensors import as_inputs, constant, dtype_of, rank_of, shape_of
from .windows import CONVERTERS as WINDOWS


class LayerNormalization(tvm_onnx.LayerNormalization):
    """Layer normalisation that also returns the mean and the inverse standard deviation if requested: float32, the type
    of the computation, except for float64."""

    @classmethod
    def _impl_v17(cls, bb, inputs, attr, params):
        data, scale, bias = inputs[0], inputs[1], inputs[2]
        rank = data.ty.ndim
        first = attr.get("axis", -1) % rank
        axes, dtype = list(range(first, rank)), dtype_of(data)
        whole = tvm_ffi.structural_equal(list(scale.ty.shape), list(data.ty.shape)[first:])
        if attr["tvm_custom"]["num_outputs"] == 1 and dtype != "float64" and whole:
            return super()._impl_v17(bb, inputs, {**attr, "axis": first}, params)
        wide = data if dtype in ("float32", "float64") else bb.emit(op.astype(data, "float32"))
        mean = bb.emit(op.mean(wide, axes, keepdims=True))
        away = bb.emit(wide - mean)
        variance = bb.emit(op.mean(away * away, axes, keepdims=True))
        inverse = bb.emit(op.rsqrt(variance + relax.const(attr.get("epsilon", 1e-5), dtype_of(wide))))
        normal = bb.emit(away * inverse)
        result = bb.emit((normal if dtype_of(wide) == dtype else bb.emit(op.astype(normal, dtype))) * scale)
        saved = [value if dtype != "float64" else bb.emit(op.astype(value, "float32")) for value in (mean, inverse)]
        return relax.Tuple([result if bias is None else bb.emit(result + bias), *saved])


class BatchNormalization(tvm_onnx.BatchNormalization):
    """Batch normalisation; in training ONNX weights the previous statistics by the momentum, Relax the new ones."""

    @classmethod
    def _impl_v15(cls, bb, inputs, attr, params):
        return super()._impl_v15(bb, inputs, {**attr, "momentum": 1 - attr.get("momentum", 0.9)}, params)


class InstanceNormalization(tvm_onnx.OnnxOpConverter):
    """Normalisation of each channel. Of an image reshaped to [batch, groups, elements], as exporters write a group
    norm, it becomes the group norm of the image, which may then have its channels last."""

    @classmethod
    def _impl_v6(cls, bb, inputs, attr, params):
        data, scale, bias = inputs
        epsilon = attr.get("epsilon", 1e-5)
        image = cls._image(bb, data)
        if image is None:
            return op.nn.instance_norm(data, scale, bias, 1, list(range(2, rank_of(data))), epsilon)
        groups, axes = shape_of(data)[1], list(range(2, rank_of(image)))
        width = shape_of(image)[1] // groups
        scale, bias = (cls._repeated(bb, each, width) for each in (scale, bias))
        normal = bb.emit(op.nn.group_norm(image, scale, bias, groups, 1, axes, epsilon))
        return op.reshape(normal, data.ty.shape)

    @staticmethod
    def _repeated(bb, parameter, width):
        """`parameter`, one value per group, repeated for each of the `width` channels of a group."""
        if isinstance(parameter, tvm.ir.GenericConst):
            return relax.const(np.repeat(parameter.value.numpy(), width))
        return bb.emit(op.repeat(parameter, width, 0))

    @staticmethod
    def _image(bb, data):
        """The image whose channels a reshape has grouped; None if there is none, or its sizes are dynamic."""
        reshape = bb.lookup_binding(data) if isinstance(data, relax.Var) else None
        if not isinstance(reshape, relax.Call) or reshape.op != tvm.ir.Op.get("relax.reshape"):
            return None
        image = reshape.args[0]
        for each in (image, data):
            shape = getattr(each.ty, "shape", None)
            if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(extent, tirx.IntImm) for extent in shape):
                return None
        known, grouped = shape_of(image), shape_of(data)
        if len(known) < 3 or known[0] != grouped[0] or grouped[1] == 0 or known[1] % grouped[1]:
            return None
        return image


class RMSNormalization(tvm_onnx.OnnxOpConverter):
    """Division by the root mean square over the last axes; the scale may broadcast."""

    @classmethod
    def _impl_v23(cls, bb, inputs, attr, params):
        data, scale = inputs[0], inputs[1]
        rank, kept = rank_of(data), dtype_of(data)
        axes = list(range(attr.get("axis", -1) % rank, rank))
        wide = bb.emit(op.astype(data, "float32")) if kept in ("float16", "bfloat16") else data
        square = op.mean(bb.emit(wide * wide), axes, keepdims=True)
        inverse = bb.emit(op.rsqrt(square + relax.const(attr.get("epsilon", 1e-5), dtype_of(wide))))
        normal = bb.emit(wide * inverse)
        return (normal if dtype_of(normal) == kept else bb.emit(op.astype(normal, kept))) * scale


class LpNormalization(tvm_onnx.OnnxOpConverter):
    """Division by the norm along one axis; zeros remain zeros."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, axis = inputs[0], attr.get("axis", -1)
        if attr.get("p", 2) == 1:
            norm = bb.emit(op.sum(op.abs(data), axis, keepdims=True))
        else:
            norm = bb.emit(op.sqrt(op.sum(data * data, axis, keepdims=True)))
        zero, one = (relax.const(number, dtype_of(data)) for number in (0.0, 1.0))
        return op.divide(data, bb.emit(op.where(op.equal(norm, zero), one, norm)))


class OneHot(tvm_onnx.OnnxOpConverter):
    """One-hot encoding with any two values, constant or computed; indices outside the depth match nothing."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        indices, values = inputs[0], inputs[2]
        if not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("depth has to be known at compile time")
        depth = int(inputs[1].value.numpy().reshape(-1)[0])
        rank = len(shape_of(indices))
        axis = attr.get("axis", -1) % (rank + 1)
        whole = bb.emit(op.astype(indices, "int64"))
        whole = bb.emit(op.where(op.less(whole, constant(0)), whole + constant(depth), whole))
        lined = constant(np.arange(depth).reshape([-1 if at == axis else 1 for at in range(rank + 1)]))
        hit = bb.emit(op.equal(op.expand_dims(whole, axis), lined))
        off, on = (bb.emit(op.take(values, constant(place), axis=0)) for place in (0, 1))
        return op.where(hit, on, off)


class Expand(tvm_onnx.Expand):
    """Broadcast to a shape, including shapes without elements."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, shape = inputs[0], inputs[1]
        if not isinstance(shape, tvm.ir.GenericConst) or not isinstance(data.ty, relax.TensorType):
            return super()._impl_v13(bb, inputs, attr, params)
        wanted = np.broadcast_shapes(tuple(shape_of(data)), tuple(int(extent) for extent in shape.value.numpy()))
        return op.broadcast_to(data, relax.ShapeExpr(wanted))


class Reshape(tvm_onnx.Reshape):
    """Reshape, including to shapes without elements, where Relax reads a 0 as "keep the extent"."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        data, shape = inputs[0], inputs[1]
        extents = data.ty.shape if isinstance(data.ty, relax.TensorType) else None
        known = extents is not None and all(isinstance(extent, tirx.IntImm) for extent in extents)
        if known and isinstance(shape, tvm.ir.GenericConst) and 0 in shape_of(data):
            before, wanted = shape_of(data), [int(extent) for extent in shape.value.numpy()]
            if not attr.get("allowzero", 0):
                wanted = [before[place] if extent == 0 else extent for place, extent in enumerate(wanted)]
            dtype = dtype_of(data)
            return relax.const(np.empty(before, dtype).reshape(wanted), dtype)
        return super()._impl_v13(bb, inputs, attr, params)


def _lined(axes: relax.Expr | None) -> relax.Expr | None:
    """Return constant axes as a vector; function definitions of the standard pass a single axis as a scalar."""
    if isinstance(axes, tvm.ir.GenericConst) and axes.ty.ndim == 0:
        return constant(axes.value.numpy().reshape(1))
    return axes


class Squeeze(tvm_onnx.Squeeze):
    """Squeeze whose axes may be given as a scalar."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        return super()._impl_v13(bb, as_inputs(inputs[0], _lined(inputs[1])), attr, params)


class Unsqueeze(tvm_onnx.Unsqueeze):
    """Unsqueeze whose axes may be given as a scalar."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        return super()._impl_v13(bb, as_inputs(inputs[0], _lined(inputs[1])), attr, params)


class EyeLike(tvm_onnx.OnnxOpConverter):
    """The identity-like matrix as a constant: it depends on the shape alone."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        rows, columns = shape_of(inputs[0])
        dtype = tvm_onnx.get_type(attr["dtype"]) if "dtype" in attr else dtype_of(inputs[0])
        return relax.const(np.eye(rows, columns, attr.get("k", 0)).astype(dtype), dtype)


def _no_pixels(data: relax.Expr, shape: Sequence[Any]) -> relax.Expr | None:
    """A result of this shape if the images have an extent of 0, which Relax's reshape reads as "keep the extent"; None
    for others."""
    if all(not isinstance(extent, int) or extent for extent in extents_of(data)):
        return None
    return op.zeros(relax.ShapeExpr(list(shape)), dtype_of(data))


class DepthToSpace(tvm_onnx.DepthToSpace):
    """Depth to space, including images without elements."""

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        block, (n, c, h, w) = int(attr["blocksize"]), extents_of(inputs[0])
        nothing = _no_pixels(inputs[0], (n, c // block**2, h * block, w * block))
        return super()._impl_v11(bb, inputs, attr, params) if nothing is None else nothing


class SpaceToDepth(tvm_onnx.SpaceToDepth):
    """Space to depth, including images without elements; in CRD order (from version 28) the channel precedes the
    position in the block."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        block, (n, c, h, w) = int(attr["blocksize"]), extents_of(inputs[0])
        nothing = _no_pixels(inputs[0], (n, c * block * block, h // block, w // block))
        if nothing is not None:
            return nothing
        if attr.get("mode", b"DCR") in (b"DCR", "DCR"):
            return super()._impl_v1(bb, inputs, attr, params)
        blocks = bb.emit(op.reshape(inputs[0], (n, c, h // block, block, w // block, block)))
        moved = bb.emit(op.permute_dims(blocks, [0, 1, 3, 5, 2, 4]))
        return op.reshape(moved, (n, c * block * block, h // block, w // block))


class BitCast(tvm_onnx.OnnxOpConverter):
    """Reinterpretation of the bits as another type of the same width."""

    @classmethod
    def _impl_v26(cls, bb, inputs, attr, params):
        dtype = tvm_onnx.get_type(attr["to"])
        if "bool" in (dtype, dtype_of(inputs[0])) and dtype != dtype_of(inputs[0]):
            if dtype not in ("int8", "uint8"):
                raise ValueError(f"the bits of {dtype_of(inputs[0])} as {dtype} may not be valid bool values")
            return op.astype(inputs[0], dtype)  # TVM's vectors store a bool in one bit

        def reinterpret(x: te.Tensor) -> te.Tensor:
            return te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x[at]), name="reinterpret")

        return bb.emit_te(reinterpret, inputs[0])


class CumProd(tvm_onnx.OnnxOpConverter):
    """Cumulative products along an axis."""

    @classmethod
    def _impl_v26(cls, bb, inputs, attr, params):
        if not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("the axis has to be known at compile time")
        data, axis = inputs[0], int(inputs[1].value.numpy().reshape(-1)[0])
        if attr.get("reverse", 0):
            data = bb.emit(op.flip(data, axis))
        result = bb.emit(op.cumprod(data, axis, dtype_of(data), exclusive=bool(attr.get("exclusive", 0))))
        return op.flip(result, axis) if attr.get("reverse", 0) else result


class Det(tvm_onnx.OnnxOpConverter):
    """Determinants by unrolled Gaussian elimination with column pivoting, for matrices of up to 32 rows."""

    LARGEST = 32

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        *outer, rows, _ = extents_of(inputs[0])
        if not isinstance(rows, int):
            raise ValueError("matrices of dynamic shape are not supported")
        if rows > cls.LARGEST:
            raise ValueError(f"matrices of {rows} rows are not supported; expected up to {cls.LARGEST}")
        dtype = dtype_of(inputs[0])
        left = bb.emit(op.reshape(inputs[0], (math.prod(outer), rows, rows)))
        result = relax.const(np.ones(1), dtype)
        for size in range(rows, 0, -1):
            column = bb.emit(op.squeeze(op.strided_slice(left, [2], [0], [1]), [2]))
            pivot = bb.emit(op.argmax(op.abs(column), axis=1))
            chosen = bb.emit(op.one_hot(pivot, relax.prim_value(1.0), relax.prim_value(0.0), size, 1))
            chosen = bb.emit(op.astype(chosen, dtype))
            row = bb.emit(op.sum(op.expand_dims(chosen, 2) * left, axis=1))
            value = bb.emit(op.sum(chosen * column, axis=1))
            moved = op.where(op.equal(pivot, constant(0)), relax.const(1.0, dtype), relax.const(-1.0, dtype))
            result = bb.emit(result * value * bb.emit(moved))
            if size == 1:
                break
            # Swap the pivot row and the first row: the first goes to the position of the pivot.
            spread = op.expand_dims(chosen, 2)
            first = bb.emit(op.strided_slice(left, [1], [0], [1]))
            swapped = bb.emit(left + spread * (first - op.expand_dims(row, 1)))
            rest = bb.emit(op.strided_slice(swapped, [1], [1], [size]))
            safe = bb.emit(op.where(op.equal(value, relax.const(0.0, dtype)), relax.const(1.0, dtype), value))
            factor = bb.emit(op.strided_slice(rest, [2], [0], [1]) / op.reshape(safe, (-1, 1, 1)))
            below = bb.emit(rest - factor * op.expand_dims(row, 1))
            left = bb.emit(op.strided_slice(below, [2], [1], [size]))
        return op.reshape(result, outer)


class Dropout(tvm_onnx.OnnxOpConverter):
    """The identity, in inference or at a ratio of 0; the mask keeps every element."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        if attr["tvm_custom"]["num_outputs"] == 1:
            return inputs[0]
        # Before version 10 the mask has the type of the data.
        dtype = dtype_of(inputs[0])
        return relax.Tuple([inputs[0], relax.const(np.ones(shape_of(inputs[0])).astype(dtype), dtype)])

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        ratio, training = (inputs[1], inputs[2]) if len(inputs) > 2 else (None, None)
        if training is not None and not isinstance(training, tvm.ir.GenericConst):
            raise ValueError("training_mode has to be known at compile time")
        drops = training is not None and training.value.numpy().any()
        if drops and (not isinstance(ratio, tvm.ir.GenericConst) or ratio.value.numpy().any()):
            raise ValueError("training_mode is true, and the dropped elements are random")
        if attr["tvm_custom"]["num_outputs"] == 1:
            return inputs[0]
        return relax.Tuple([inputs[0], relax.const(np.ones(shape_of(inputs[0]), bool))])


class Size(tvm_onnx.OnnxOpConverter):
    """The number of elements, as a tensor."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        extents = list(inputs[0].ty.shape)
        if all(isinstance(extent, tirx.IntImm) for extent in extents):
            return constant(math.prod(int(extent) for extent in extents))
        return op.prod(bb.emit(op.shape_to_tensor(bb.emit(op.shape_of(inputs[0])))))


class TensorScatter(tvm_onnx.OnnxOpConverter):
    """Write a run of elements into the cache of each batch, starting at the given position."""

    @classmethod
    def _impl_v24(cls, bb, inputs, attr, params):
        past, update = inputs[0], inputs[1]
        shape = extents_of(past)
        axis = attr.get("axis", -2) % len(shape)
        circular = attr.get("mode", b"linear") in (b"circular", "circular")
        last = shape[axis] if circular else shape[axis] - whole(update.ty.shape[axis]) + 1
        starts = [] if inputs[2] is None else [positions(bb, inputs[2], last, attr, wraps=False)]

        def write(cache: te.Tensor, new: te.Tensor, *start: te.Tensor) -> te.Tensor:
            count, extent = new.shape[axis], cache.shape[axis]

            def element(*at: Any) -> Any:
                place = tirx.Cast("int64", at[axis])
                if start:
                    place = place - start[0][at[0]]
                if circular:
                    place = tirx.indexmod(place + extent, extent)
                inside = tirx.all(place >= 0, place < count)
                source = tirx.max(tirx.min(place, count - 1), 0)
                taken = new[tuple(source if spot == axis else value for spot, value in enumerate(at))]
                return tirx.if_then_else(inside, taken, cache[at])

            return te.compute(cache.shape, element, name="write")

        return bb.emit_te(write, past, update, *starts, primfunc_name_hint="tensor_scatter")


CONVERTERS: dict[str, Any] = {
    "BatchNormalization": BatchNormalization,
    "BitCast": BitCast,
    "CumProd": CumProd,
    "DepthToSpace": DepthToSpace,
    "Det": Det,
    "Dropout": Dropout,
    "Expand": Expand,
    "EyeLike": EyeLike,
    "InstanceNormalization": InstanceNormalization,
    "LayerNormalization": LayerNormalization,
    "LpNormalization": LpNormalization,
    "OneHot": OneHot,
    "RMSNormalization": RMSNormalization,
    "Reshape": Reshape,
    "Size": Size,
    "SpaceToDepth": SpaceToDepth,
    "Squeeze": Squeeze,
    "TensorScatter": TensorScatter,
    "Unsqueeze": Unsqueeze,
    **ACTIVATIONS,
    **ARITHMETIC,
    **CONTRIBUTED,
    **EINSUM,
    **INDEXING,
    **POOLS,
    **QUANTIZED,
    **RECURRENT,
    **REDUCTIONS,
    **RESIZE,
    **SAMPLING,
    **SELECTION,
    **SEQUENCES,
    **SIGNAL,
    **SLICES,
    **WINDOWS,
}
