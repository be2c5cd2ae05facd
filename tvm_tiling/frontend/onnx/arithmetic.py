"""Element-wise ONNX operators for types or infinities that TVM's converters do not support."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...lowering.divisors import checked_divisors
from ..integer_power import LARGEST_CHAIN, integer_power, repeated
from .tensors import as_inputs, dtype_of, known


class Pow(tvm_onnx.OnnxOpConverter):
    """Base and exponent may have different types; the result has that of the base. Integers with float exponents are
    computed in float64."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        base, exponent = inputs[0], inputs[1]
        kept = dtype_of(base)
        if "float" not in kept and "float" not in dtype_of(exponent):
            return cls._of_integers(bb, base, exponent)
        wide = kept if "float" in kept else "float64"
        base, exponent = (
            value if dtype_of(value) == wide else bb.emit(op.astype(value, wide)) for value in (base, exponent)
        )
        result = op.power(base, exponent)
        return result if wide == kept else op.astype(bb.emit(result), kept)

    @classmethod
    def _of_integers(cls, bb: relax.BlockBuilder, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
        kept, numbers = dtype_of(base), known(exponent)
        if numbers is not None and numbers.size == 1 and numbers.ndim <= base.ty.ndim:
            (number,) = numbers.flat
            if 0 <= number <= LARGEST_CHAIN:
                return repeated(bb, base, int(number))
        # The low bits of a power depend only on those of its base, so a wider type can be used for the exponent.
        unsigned = "uint" in dtype_of(exponent)
        wide = "uint64" if unsigned else "int64" if "int64" in (kept, dtype_of(exponent)) else "int32"
        operands = (x if dtype_of(x) == wide else bb.emit(op.astype(x, wide)) for x in (base, exponent))
        result = integer_power(bb, *operands)
        return result if wide == kept else op.astype(result, kept)


def _divisors(bb: relax.BlockBuilder, value: Any, attr: dict[str, Any]) -> Any:
    """Return `value`, the divisor of the node with these attributes, with a zero check if it is an integer tensor."""
    if isinstance(value, relax.Call):
        value = bb.emit(value)
    return checked_divisors(bb, value, attr["tvm_custom"]["where"])


class Div(tvm_onnx.Div):
    """Integer division truncates towards zero."""

    @classmethod
    def _impl_v7(cls, bb, inputs, attr, params):
        with np.errstate(all="ignore"):
            return super()._impl_v7(bb, [inputs[0], _divisors(bb, inputs[1], attr)], attr, params)


class Clip(tvm_onnx.OnnxOpConverter):
    """A missing bound is the largest or lowest finite number: infinities are clipped too. A bound that is NaN bounds
    nothing.

    It consists of operators that passes know and fuse. TVM's converter emits kernels, at which a layout ends.
    """

    @classmethod
    def _impl_v6(cls, bb, inputs, attr, params):
        most, dtype = float(np.finfo("float32").max), dtype_of(inputs[0])
        with np.errstate(over="ignore"):
            limits = np.array([attr.get("min", -most), attr.get("max", most)]).astype(dtype)
        bounds = (relax.const(limit, dtype) for limit in limits)
        return cls._impl_v13(bb, as_inputs(inputs[0], *bounds), attr, params)

    @classmethod
    def _impl_v13(cls, bb, inputs, attr, params):
        result, dtype = inputs[0], dtype_of(inputs[0])
        for bound, combine, sign in ((inputs[1], op.maximum, -1.0), (inputs[2], op.minimum, 1.0)):
            if "float" in dtype:
                limit = sign * float(tirx.max_value(dtype).value)
                taken = relax.const(limit, dtype) if bound is None else _without_nan(bb, bound, sign * np.inf)
                result = bb.emit(combine(result, taken))
            elif bound is not None:
                result = bb.emit(combine(result, bound))
        return result

    _impl_v11 = _impl_v13


def _without_nan(bb: relax.BlockBuilder, value: relax.Expr, otherwise: float) -> relax.Expr:
    """Return `value` with `otherwise` in place of NaN."""
    dtype, numbers = dtype_of(value), known(value)
    if numbers is not None:
        return relax.const(np.where(np.isnan(numbers), otherwise, numbers).astype(numbers.dtype), dtype)
    return bb.emit(op.where(op.isnan(value), relax.const(otherwise, dtype), value))


class Mod(tvm_onnx.OnnxOpConverter):
    """The remainder with the sign of the divisor or, with fmod, of the dividend; for an infinite divisor it is the
    dividend."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        left, right = inputs[0], _divisors(bb, inputs[1], attr)
        truncated = attr.get("fmod", 0)
        result = bb.emit((op.mod if truncated else op.floor_mod)(left, right))
        if "float" not in dtype_of(left):
            return result
        zero = relax.const(0.0, dtype_of(left))
        whole = bb.emit(op.logical_and(op.isinf(right), op.isfinite(left)))
        kept = left
        if not truncated:
            apart = bb.emit(op.less(op.sign(left) * op.sign(right), zero))
            kept = bb.emit(op.where(apart, right, left))
        return op.where(whole, kept, result)


class _Several(tvm_onnx.OnnxOpConverter):
    """Any number of operands that broadcast, combined pairwise. TVM's converters stack them for a reduction, and
    broadcast 0 with 1 to 1."""

    combine: Any

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        total = inputs[0]
        for value in inputs[1:]:
            total = bb.emit(cls.combine(total, value))
        return total


class Max(_Several):
    combine = staticmethod(op.maximum)


class Min(_Several):
    combine = staticmethod(op.minimum)


class Sum(_Several):
    combine = staticmethod(op.add)


class Mean(Sum):
    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        total = super()._impl_v1(bb, inputs, attr, params)
        return op.divide(total, relax.const(len(inputs), dtype_of(total)))


class IsInf(tvm_onnx.OnnxOpConverter):
    """For one sign only if the other is not requested."""

    @classmethod
    def _impl_v10(cls, bb, inputs, attr, params):
        data, found = inputs[0], bb.emit(op.isinf(inputs[0]))
        zero = relax.const(0.0, dtype_of(data))
        if not attr.get("detect_negative", 1):
            found = bb.emit(op.logical_and(found, op.greater(data, zero)))
        if not attr.get("detect_positive", 1):
            found = bb.emit(op.logical_and(found, op.less(data, zero)))
        return found


CONVERTERS: dict[str, Any] = {
    "Clip": Clip,
    "Div": Div,
    "IsInf": IsInf,
    "Max": Max,
    "Mean": Mean,
    "Min": Min,
    "Mod": Mod,
    "Pow": Pow,
    "Sum": Sum,
}
