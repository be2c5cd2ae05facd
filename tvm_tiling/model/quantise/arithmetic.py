"""Requantisation of int32 totals to 8 bits: in integer arithmetic, as in the vector engines of accelerators, or in
float32, as on CPUs.

Both round the real result to the nearest value of the result's scale. Integer arithmetic rounds halves upwards with
15-bit factors (scale.py), so that all machines are bit-exact. Floats round halves to even, as in ONNX: one int32 times
one float32 gives the nearest value unless the real result is within a rounding error of a half.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from tvm.relax import op

from ..passes.dataflow import Expr, Rewriter, constant, is_op
from .scale import Scale, requantisation
from .totals import Real, Total, bounded, integer, scalar_if_one


class Arithmetic(Protocol):
    """The arithmetic for requantisation."""

    everything: bool
    """Whether to support machines that only multiply integers: float weights are quantised, and element-wise functions,
    softmax and layer norm are computed in integers too, by tables."""

    def numbers(self, rewriter: Rewriter, total: Total, out: Scale, low: int, high: int) -> Expr | None:
        """The values of `out` for a total, int32 within low .. high. None if the total may overflow int32."""
        ...

    def real(self, rewriter: Rewriter, total: Total) -> Expr | None:
        """A total in float32. None if it may overflow int32, or the machine has no floats."""
        ...

    def sum(self, rewriter: Rewriter, left: Real, right: Real, factor: float, sign: int, out: Scale) -> Total:
        """(left + sign * right) * factor, in values of `out`."""
        ...


class WholeNumbers:
    """Integer arithmetic."""

    everything = True

    def numbers(self, rewriter: Rewriter, total: Total, out: Scale, low: int, high: int) -> Expr | None:
        if total.bound >= 1 << 30:
            return None
        numbers = requantisation(total.factor / out.scale, total.bound)
        value = _shifted(rewriter, total.number(rewriter), numbers.before)
        multipliers = numbers.multipliers.reshape(total.factor.shape)
        if multipliers.size > 1 or int(multipliers.reshape(-1)[0]) != 1:
            value = rewriter.emit(op.multiply(value, scalar_if_one(constant(multipliers), multipliers)))
        value = _shifted(rewriter, value, numbers.after)
        if out.zero:
            value = rewriter.emit(op.add(value, integer(out.zero)))
        return bounded(rewriter, value, low, high)

    def real(self, rewriter: Rewriter, total: Total) -> Expr | None:
        return None

    def sum(self, rewriter: Rewriter, left: Real, right: Real, factor: float, sign: int, out: Scale) -> Total:
        """Scale both to a common scale, finer than the result's by a power of two."""
        ratios = np.array([left.scale.scale, right.scale.scale]) * factor / out.scale
        # 255 * 2^14 twice is below 2^23.
        bits = int(np.clip(14 - np.frexp(ratios.max())[1], 0, 30))
        multipliers = np.rint(ratios * 2.0**bits).astype(np.int64)
        signed = (int(multipliers[0]), sign * int(multipliers[1]))
        terms = [
            rewriter.emit(op.multiply(source.integers(rewriter), integer(number)))
            for source, number in zip((left, right), signed, strict=True)
        ]
        value = rewriter.emit(op.add(*terms))
        zeros = left.scale.zero * signed[0] + right.scale.zero * signed[1]
        if zeros:
            value = rewriter.emit(op.subtract(value, integer(zeros)))
        return Total(value, np.array(out.scale * 2.0**-bits), 255 * int(multipliers.sum()))


class Floats:
    """Float32 arithmetic."""

    everything = False

    def numbers(self, rewriter: Rewriter, total: Total, out: Scale, low: int, high: int) -> Expr | None:
        if total.bound >= 1 << 30:
            return None
        value = rewriter.emit(op.round(_times(rewriter, total.number(rewriter), total.factor / out.scale)))
        # In this order a kernel rounds by one addition (lowering/whole_numbers.py).
        value = rewriter.emit(op.clip(value, low - out.zero, high - out.zero))
        value = rewriter.emit(op.astype(value, "int32"))
        return rewriter.emit(op.add(value, integer(out.zero))) if out.zero else value

    def real(self, rewriter: Rewriter, total: Total) -> Expr | None:
        return None if total.bound >= 1 << 30 else _times(rewriter, total.number(rewriter), total.factor)

    def sum(self, rewriter: Rewriter, left: Real, right: Real, factor: float, sign: int, out: Scale) -> Total:
        """Each term in steps of the result."""
        terms = []
        for source, towards in ((left, 1), (right, sign)):
            steps = np.array(source.scale.scale * factor / out.scale * towards, np.float32)
            number = _centred(rewriter, source)
            if number is None:
                number = rewriter.emit(op.astype(source.centred(rewriter), "float32"))
            terms.append(rewriter.emit(op.multiply(number, _floats(steps))))
        return Total(rewriter.emit(op.add(*terms)), np.array(out.scale), 1)


def _centred(rewriter: Rewriter, source: Real) -> Expr | None:
    """The values minus their zero point in float32, as computed by Floats.numbers on the way to `source.wide`."""
    call = rewriter.value(source.wide)
    if source.scale.zero:
        call = rewriter.value(call.args[0]) if is_op(call, "add") else None
    found = call.args[0] if is_op(call, "astype") else None
    return found if found is not None and str(found.ty.dtype) == "float32" else None


def _shifted(rewriter: Rewriter, value: Expr, bits: int) -> Expr:
    """value / 2^bits, halves rounded upwards."""
    if not bits:
        return value
    return rewriter.emit(op.right_shift(rewriter.emit(op.add(value, integer(1 << (bits - 1)))), integer(bits)))


def _times(rewriter: Rewriter, value: Expr, factors: np.ndarray) -> Expr:
    """`value` in float32 times float32 factors."""
    if str(value.ty.dtype) == "int32":
        value = rewriter.emit(op.astype(value, "float32"))
    factors = factors.astype(np.float32)
    return rewriter.emit(op.multiply(value, _floats(factors))) if (factors != 1).any() else value


def _floats(values: np.ndarray) -> Expr:
    """Float32 constants; a scalar if there is only one."""
    return constant(values if values.size > 1 else values.reshape(()))
