"""ONNX operators that TVM's importer lacks or reads otherwise than the standard, as Relax compositions.

Each is a converter as TVM's: `_impl_v<version>` for the form that came with that version of the standard operators.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx, topi
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from . import versions as onnx_versions
from .quantized import CONVERTERS as QUANTIZED
from .recurrent import CONVERTERS as RECURRENT
from .reductions import CONVERTERS as REDUCTIONS
from .signal import CONVERTERS as SIGNAL
from .versions import constant
from .windows import CONVERTERS as WINDOWS


def dtype_of(value: relax.Expr) -> str:
    """TVM's name of a tensor's element type."""
    return str(value.ty.dtype)


def shape_of(value: relax.Expr) -> list[int]:
    """The fixed shape of a tensor."""
    return [int(extent) for extent in value.ty.shape]


class LayerNormalization(tvm_onnx.LayerNormalization):
    """Mean and inverse deviation too, where they are asked for."""

    @classmethod
    def _impl_v17(cls, bb, inputs, attr, params):
        data, scale, bias = inputs[0], inputs[1], inputs[2]
        rank = len(shape_of(data))
        first = attr.get("axis", -1) % rank
        axes = list(range(first, rank))
        if attr["tvm_custom"]["num_outputs"] == 1 and shape_of(scale) == shape_of(data)[first:]:
            return super()._impl_v17(bb, inputs, {**attr, "axis": first}, params)
        dtype = dtype_of(data)
        mean = bb.emit(op.mean(data, axes, keepdims=True))
        away = bb.emit(data - mean)
        variance = bb.emit(op.mean(away * away, axes, keepdims=True))
        inverse = bb.emit(op.rsqrt(variance + relax.const(attr.get("epsilon", 1e-5), dtype)))
        result = bb.emit(away * inverse * scale)
        return relax.Tuple([result if bias is None else bb.emit(result + bias), mean, inverse])


class RMSNormalization(tvm_onnx.OnnxOpConverter):
    """Division by the root of the mean square over the last axes; the scale may broadcast."""

    @classmethod
    def _impl_v23(cls, bb, inputs, attr, params):
        data, scale = inputs[0], inputs[1]
        rank, kept = len(shape_of(data)), dtype_of(data)
        axes = list(range(attr.get("axis", -1) % rank, rank))
        wide = bb.emit(op.astype(data, "float32")) if kept in ("float16", "bfloat16") else data
        square = op.mean(bb.emit(wide * wide), axes, keepdims=True)
        inverse = bb.emit(op.rsqrt(square + relax.const(attr.get("epsilon", 1e-5), dtype_of(wide))))
        normal = bb.emit(wide * inverse)
        return (normal if dtype_of(normal) == kept else bb.emit(op.astype(normal, kept))) * scale


class LpNormalization(tvm_onnx.OnnxOpConverter):
    """Division by the norm along one axis; zeros stay zeros."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        data, axis = inputs[0], attr.get("axis", -1)
        if attr.get("p", 2) == 1:
            norm = bb.emit(op.sum(op.abs(data), axis, keepdims=True))
        else:
            norm = bb.emit(op.sqrt(op.sum(data * data, axis, keepdims=True)))
        zero, one = (relax.const(number, dtype_of(data)) for number in (0.0, 1.0))
        return op.divide(data, bb.emit(op.where(op.equal(norm, zero), one, norm)))


class Pow(tvm_onnx.Pow):
    """Base and exponent may differ in type; the result has the base's."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        base, exponent = inputs[0], inputs[1]
        if not (hasattr(base, "ty") and hasattr(exponent, "ty")) or dtype_of(base) == dtype_of(exponent):
            return super()._impl_v7(bb, inputs, attr, params)
        if "float" in dtype_of(base):
            return op.power(base, bb.emit(op.astype(exponent, dtype_of(base))))
        wide = "float64" if "64" in dtype_of(base) + dtype_of(exponent) else "float32"
        result = bb.emit(op.power(op.astype(base, wide), op.astype(exponent, wide)))
        return op.astype(result, dtype_of(base))


class Mod(tvm_onnx.OnnxOpConverter):
    """The remainder with the divisor's sign, or with fmod the dividend's; infinite divisors leave the dividend."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        left, right = inputs[0], inputs[1]
        truncated = attr.get("fmod", 0)
        result = bb.emit((op.mod if truncated else op.floor_mod)(left, right))
        if "float" not in dtype_of(left):
            return result
        zero = relax.const(0.0, dtype_of(left))
        whole = bb.emit(op.logical_and(op.isinf(right), op.isfinite(left)))
        kept = bb.emit(op.broadcast_to(left, result.ty.shape))
        if not truncated:
            apart = bb.emit(op.less(op.sign(left) * op.sign(right), zero))
            kept = bb.emit(op.where(apart, right, left))
        return op.where(whole, kept, result)


class IsInf(tvm_onnx.IsInf):
    """Of one sign only, where the other is not asked for."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        data, found = inputs[0], bb.emit(op.isinf(inputs[0]))
        zero = relax.const(0.0, dtype_of(data))
        if not attr.get("detect_negative", 1):
            found = bb.emit(op.logical_and(found, op.greater(data, zero)))
        if not attr.get("detect_positive", 1):
            found = bb.emit(op.logical_and(found, op.less(data, zero)))
        return found


class OneHot(tvm_onnx.OnnxOpConverter):
    """Any two values, known before the run or not; indices outside of the depth match nothing."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        indices, values = inputs[0], inputs[2]
        if not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("depth has to be known before the run")
        depth = int(inputs[1].value.numpy().reshape(-1)[0])
        rank = len(shape_of(indices))
        axis = attr.get("axis", -1) % (rank + 1)
        whole = bb.emit(op.astype(indices, "int64"))
        whole = bb.emit(op.where(op.less(whole, constant(0)), whole + constant(depth), whole))
        lined = constant(np.arange(depth).reshape([-1 if at == axis else 1 for at in range(rank + 1)]))
        hit = bb.emit(op.equal(op.expand_dims(whole, axis), lined))
        off, on = (bb.emit(op.take(values, constant(place), axis=0)) for place in (0, 1))
        return op.where(hit, on, off)


class EyeLike(tvm_onnx.OnnxOpConverter):
    """A constant: it depends on the shape alone."""

    @classmethod
    def _impl_v9(cls, bb, inputs, attr, params):
        rows, columns = shape_of(inputs[0])
        dtype = tvm_onnx.get_type(attr["dtype"]) if "dtype" in attr else dtype_of(inputs[0])
        return relax.const(np.eye(rows, columns, attr.get("k", 0)).astype(dtype), dtype)


class SpaceToDepth(tvm_onnx.SpaceToDepth):
    """In CRD order (from version 28 on) the channel comes before the place in the block."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        if attr.get("mode", b"DCR") in (b"DCR", "DCR"):
            return super()._impl_v1(bb, inputs, attr, params)
        block = int(attr["blocksize"])
        n, c, h, w = shape_of(inputs[0])
        cut = bb.emit(op.reshape(inputs[0], (n, c, h // block, block, w // block, block)))
        moved = bb.emit(op.permute_dims(cut, [0, 1, 3, 5, 2, 4]))
        return op.reshape(moved, (n, c * block * block, h // block, w // block))


class ReverseSequence(tvm_onnx.OnnxOpConverter):
    """The first elements of each sequence in reverse, as many as its length says."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        batch, time = attr.get("batch_axis", 1), attr.get("time_axis", 0)
        lengths = bb.emit(op.astype(inputs[1], "int32"))
        return bb.emit_te(topi.reverse_sequence, inputs[0], lengths, time, batch)


class BitCast(tvm_onnx.OnnxOpConverter):
    """The same bits as another type of the same width."""

    @classmethod
    def _impl_v26(cls, bb, inputs, attr, params):
        dtype = tvm_onnx.get_type(attr["to"])

        def reinterpret(x: te.Tensor) -> te.Tensor:
            return te.compute(x.shape, lambda *at: tirx.reinterpret(dtype, x[at]), name="reinterpret")

        return bb.emit_te(reinterpret, inputs[0])


class CumProd(tvm_onnx.OnnxOpConverter):
    """Running products along an axis."""

    @classmethod
    def _impl_v26(cls, bb, inputs, attr, params):
        if not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("the axis has to be known before the run")
        data, axis = inputs[0], int(inputs[1].value.numpy().reshape(-1)[0])
        if attr.get("reverse", 0):
            data = bb.emit(op.flip(data, axis))
        result = bb.emit(op.cumprod(data, axis, dtype_of(data), exclusive=bool(attr.get("exclusive", 0))))
        return op.flip(result, axis) if attr.get("reverse", 0) else result


class Det(tvm_onnx.OnnxOpConverter):
    """Determinants by elimination with the largest pivot of each column, written out: matrices of up to 32 rows."""

    LARGEST = 32

    @classmethod
    def _impl_v11(cls, bb, inputs, attr, params):
        *outer, rows, _ = shape_of(inputs[0])
        if rows > cls.LARGEST:
            raise ValueError(f"matrices of {rows} rows; accepted: up to {cls.LARGEST}")
        dtype = dtype_of(inputs[0])
        left = bb.emit(op.reshape(inputs[0], (math.prod(outer), rows, rows)))
        result = relax.const(np.ones(math.prod(outer)), dtype)
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
            # The pivot's row and the first change places: the first goes to where the pivot was.
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
    """Nothing, in inference; the mask keeps everything."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        if attr["tvm_custom"]["num_outputs"] == 1:
            return inputs[0]
        return relax.Tuple([inputs[0], relax.const(np.ones(shape_of(inputs[0]), bool))])


class Size(tvm_onnx.OnnxOpConverter):
    """The number of elements, as a tensor."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return constant(math.prod(shape_of(inputs[0])))


class Split(tvm_onnx.Split):
    """With parts of no elements too."""

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        if inputs[1] is None:
            return super()._impl_v13(bb, inputs, attr, params)
        if not isinstance(inputs[1], tvm.ir.GenericConst):
            raise ValueError("the sizes of the parts have to be known before the run")
        sizes = [int(size) for size in inputs[1].value.numpy()]
        if min(sizes) > 0:
            return super()._impl_v13(bb, inputs, attr, params)
        axis, ends = attr.get("axis", 0), np.cumsum(sizes)
        parts = zip(ends - sizes, ends, strict=True)
        return relax.Tuple([bb.emit(op.strided_slice(inputs[0], [axis], [int(a)], [int(b)])) for a, b in parts])


class NonMaxSuppression(tvm_onnx.NonMaxSuppression):
    """Refused where a limit is not known before the run: TVM would take a default for it."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        given = [inputs[place] for place in (2, 3, 4) if inputs[place] is not None]
        if not all(isinstance(value, tvm.ir.GenericConst) for value in given):
            raise ValueError("the limits have to be known before the run")
        return super()._impl_v10(bb, inputs, attr, params)


class TensorScatter(tvm_onnx.OnnxOpConverter):
    """Writes a run of elements into each batch's cache, from the place that is given for it on."""

    @classmethod
    def _impl_v24(cls, bb, inputs, attr, params):
        past, update = inputs[0], inputs[1]
        shape = shape_of(past)
        axis = attr.get("axis", -2) % len(shape)
        count = shape_of(update)[axis]
        starts = inputs[2] if inputs[2] is not None else constant(np.zeros(shape[0]))
        circular = attr.get("mode", b"linear") in (b"circular", "circular")

        def write(cache: te.Tensor, new: te.Tensor, start: te.Tensor) -> te.Tensor:
            def element(*at: Any) -> Any:
                place = tirx.Cast("int64", at[axis]) - start[at[0]]
                if circular:
                    place = tirx.indexmod(place + shape[axis], shape[axis])
                inside = tirx.all(place >= 0, place < count)
                source = tirx.max(tirx.min(place, count - 1), 0)
                taken = new[tuple(source if spot == axis else value for spot, value in enumerate(at))]
                return tirx.if_then_else(inside, taken, cache[at])

            return te.compute(cache.shape, element, name="write")

        return bb.emit_te(write, past, update, starts, primfunc_name_hint="tensor_scatter")


CONVERTERS: dict[str, Any] = {
    "BitCast": BitCast,
    "CumProd": CumProd,
    "Det": Det,
    "Dropout": Dropout,
    "EyeLike": EyeLike,
    "IsInf": IsInf,
    "LayerNormalization": LayerNormalization,
    "LpNormalization": LpNormalization,
    "Mod": Mod,
    "NonMaxSuppression": NonMaxSuppression,
    "OneHot": OneHot,
    "Pow": Pow,
    "RMSNormalization": RMSNormalization,
    "Resize": onnx_versions.Resize,
    "ReverseSequence": ReverseSequence,
    "Size": Size,
    "Slice": onnx_versions.Slice,
    "SpaceToDepth": SpaceToDepth,
    "Split": Split,
    "TensorScatter": TensorScatter,
    "TopK": onnx_versions.TopK,
    "Upsample": onnx_versions.Upsample,
    **QUANTIZED,
    **RECURRENT,
    **REDUCTIONS,
    **SIGNAL,
    **WINDOWS,
}
