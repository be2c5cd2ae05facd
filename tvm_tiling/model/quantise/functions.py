"""Functions of quantised tensors that a multiplier array does not support, defined bit-exactly for all machines.

table         an element-wise function f: the 256 values round(f(scale * (q - zero)) / scale_out) + zero_out
softmax       exponentials e of d = q - max from a table, round(2^15 exp(scale * d)), summed in int32 to t;
              the result is e / t in float32, one division; as 8 bits round(e / t * (1 / scale_out)) + zero_out
layer norm    over n values: S their sum, Q the sum of their squares, in int64; D = n q - S in int32, and
              R = sqrt(n Q - S^2 + epsilon n^2 / scale^2) in float64; the result is
              (round(float32(D) / float32(R) * g) + b + 2^7) >> 8 of g = gamma / scale_out * 2^8 in float32 and
              b = round(beta / scale_out * 2^8) + zero_out * 2^8 in int32

Float products are rounded to integers before any addition, so results do not depend on fused multiply-add. Halves round
to even.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

from ..passes.dataflow import Expr, Rewriter, array, constant, ints, shape_of
from .scale import HIGH, LOW, Scale
from .totals import Real, bounded, integer

EXPONENT_BITS = 15
NORM_BITS = 8


def table(rewriter: Rewriter, source: Real, function: Callable[[np.ndarray], np.ndarray], out: Scale) -> Expr:
    """The int8 values of a function of each element."""
    with np.errstate(all="ignore"):
        values = np.nan_to_num(function(source.scale.reals), posinf=1e30, neginf=-1e30)
    numbers = constant(out.quantised(values).astype(np.int8))
    place = rewriter.emit(op.add(rewriter.emit(op.astype(source.value, "int32")), integer(-LOW)))
    return rewriter.emit(op.take(numbers, place, axis=0, mode="clip"))


def softmax(rewriter: Rewriter, source: Real, axis: int, out: Scale | None) -> Expr:
    """Softmax along an axis: in float32, or as int32 values of `out`."""
    emit = rewriter.emit
    wide = emit(op.astype(source.value, "int32"))
    largest = emit(op.max(wide, [axis], keepdims=True))
    place = emit(op.add(emit(op.subtract(wide, largest)), integer(HIGH - LOW)))
    distance = np.arange(LOW - HIGH, 1, dtype=np.float64)
    exponentials = np.rint(np.exp(source.scale.scale * distance) * (1 << EXPONENT_BITS)).astype(np.int32)
    found = emit(op.take(constant(exponentials), place, axis=0, mode="clip"))
    total = emit(op.sum(found, [axis], keepdims=True))
    share = emit(op.divide(emit(op.astype(found, "float32")), emit(op.astype(total, "float32"))))
    if out is None:
        return share
    return _numbers(rewriter, emit(op.multiply(share, _float(1 / out.scale))), out)


def _numbers(rewriter: Rewriter, steps: Expr, out: Scale) -> Expr:
    """Convert floats in steps of `out` to its values."""
    whole = rewriter.emit(op.astype(rewriter.emit(op.round(steps)), "int32"))
    return bounded(rewriter, rewriter.emit(op.add(whole, integer(out.zero))) if out.zero else whole, LOW, HIGH)


def layer_norm(rewriter: Rewriter, source: Real, call: relax.Call, out: Scale) -> Expr | None:
    """Layer norm along the last axis, int32 values of `out`; None along other axes or for parameters that are not
    constant."""
    emit = rewriter.emit
    shape = shape_of(call.args[0])
    gamma, beta = array(call.args[1]), array(call.args[2])
    if shape is None or gamma is None or beta is None or ints(call.attrs.axes) not in ((-1,), (len(shape) - 1,)):
        return None
    count = shape[-1]
    q = emit(op.astype(source.value, "int32"))
    total = emit(op.sum(q, [-1], keepdims=True))
    squares = emit(op.sum(emit(op.multiply(q, q)), [-1], keepdims=True))
    away = emit(op.subtract(emit(op.multiply(q, integer(count))), total))
    long_total, long_squares = emit(op.astype(total, "int64")), emit(op.astype(squares, "int64"))
    spread = emit(
        op.subtract(
            emit(op.multiply(long_squares, relax.const(count, "int64"))), emit(op.multiply(long_total, long_total))
        )
    )
    epsilon = float(call.attrs.epsilon) * (count / source.scale.scale) ** 2
    deviation = emit(op.sqrt(emit(op.add(emit(op.astype(spread, "float64")), relax.const(epsilon, "float64")))))
    norm = emit(op.divide(emit(op.astype(away, "float32")), emit(op.astype(deviation, "float32"))))
    steps = (1 << NORM_BITS) / out.scale
    scaled = emit(op.multiply(norm, constant((gamma.astype(np.float64) * steps).astype(np.float32))))
    whole = emit(op.astype(emit(op.round(scaled)), "int32"))
    shift = np.rint(beta.astype(np.float64) * steps).astype(np.int64) + (out.zero << NORM_BITS) + (1 << NORM_BITS - 1)
    moved = emit(op.add(whole, constant(shift.astype(np.int32))))
    return bounded(rewriter, emit(op.right_shift(moved, integer(NORM_BITS))), LOW, HIGH)


def _float(value: float) -> Expr:
    return relax.const(np.float32(value), "float32")
