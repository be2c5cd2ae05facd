"""Conversion of a graph with quantised tensors to integer arithmetic.

A quantised model is recognised by pairs of operators: the computation in floats between dequantisation and quantisation
is replaced by integer arithmetic, exactly as defined in the modules used here. Tensors are int8; uint8 tensors are
shifted by 128. Operators without an integer version keep their floats between the two operators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from ..passes.dataflow import Expr, Rewriter, array, constant, is_op, rewrite
from ..passes.simplify import folded, simplify
from .arithmetic import Arithmetic, Floats
from .chain import chain, pointwise
from .functions import layer_norm, softmax, table
from .scale import HIGH, LOW, Scale, quantised_weights
from .sums import Sums
from .totals import Real, Total, integer

VIEWS = ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "strided_slice", "nn.max_pool2d", "concat")


def in_integers(mod: tvm.IRModule, arithmetic: Arithmetic) -> tvm.IRModule:
    """`mod`, whose "main" contains quantize and dequantize, with integer arithmetic between them."""
    return rewrite(mod, _Integers(arithmetic))


def with_integers_on_cpu(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod`, simplified, with integer arithmetic where its tensors are quantised and the CPU multiplies them."""
    return simplify(in_integers(mod, Floats())) if holds_quantised(mod) else mod


def holds_quantised(mod: tvm.IRModule) -> bool:
    """Return whether tensors of a model are already quantised."""
    return any(
        is_op(binding.value, "quantize", "dequantize")
        for block in mod["main"].body.blocks
        for binding in block.bindings
    )


@dataclass(frozen=True)
class _Weights:
    """A quantised constant: scale * (values - zero), both of the rank of `values`."""

    values: np.ndarray
    scale: np.ndarray
    zero: np.ndarray

    @property
    def real(self) -> np.ndarray:
        return ((self.values.astype(np.float64) - self.zero) * self.scale).astype(np.float32)

    def transposed(self, axes: tuple[int, ...]) -> _Weights:
        return _Weights(*(np.transpose(part, axes) for part in (self.values, self.scale, self.zero)))


class _Integers:
    """The known quantised values of the rewritten function."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.arithmetic = arithmetic
        self.stored: dict[relax.Var, Real] = {}  # quantised tensors
        self.real: dict[relax.Var, Real] = {}  # their dequantised values
        self.weights: dict[relax.Var, _Weights] = {}
        self.meant: dict[relax.Var, Expr] = {}  # the value to which a variable was bound before rewriting
        self.rewriter: Rewriter

    def __call__(self, rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
        self.rewriter = rewriter
        if is_op(value, "dequantize"):
            return self.dequantized(variable, value)
        if is_op(value, "quantize"):
            return self.quantized(variable, value)
        if is_op(value, "permute_dims") and value.args[0] in self.weights:
            return self._transposed(value)
        if is_op(value, "nn.conv2d", "matmul") and not self.arithmetic.everything:
            return self._real_total(value)
        if _is_operator(value) and any(self._is_weight(argument) for argument in value.args):
            return self._constant(value)
        if is_op(value, *VIEWS) and value.args[0] in self.stored:
            return self._stored_view(value)
        if is_op(value, "nn.softmax") and value.args[0] in self.real and self.arithmetic.everything:
            result = rewriter.emit(softmax(rewriter, self.real[value.args[0]], int(value.attrs.axis), None))
            self.meant[result] = value
            return result
        return None

    def lookup(self, expr: Expr) -> Expr:
        """The call that a variable represents."""
        return self.meant.get(expr, self.rewriter.value(expr)) if isinstance(expr, relax.Var) else expr

    def known(self, expr: Expr) -> np.ndarray | None:
        """The value of a constant, quantised or not."""
        if isinstance(expr, relax.Var):
            return self.weights[expr].real if expr in self.weights else None
        return array(expr)

    # ---- borders ----------------------------------------------------------------------------------------------------

    def dequantized(self, variable: relax.Var, call: relax.Call) -> Expr | None:
        """Record a dequantisation; the emitted call costs nothing if the floats are not used."""
        source = call.args[0]
        if array(source) is not None:
            weights = _weights(call)
            if weights is None:
                return None
            result = self.rewriter.emit(call)
            self.weights[result] = weights
            return result
        scale = _scale(call, str(source.ty.dtype))
        if scale is None or str(call.ty.dtype) != "float32":
            return None
        once = self.rewriter.uses.get(variable, 0) == 1
        found = self.stored.get(source)
        if found is None:
            found = Real(self._as_int8(source), scale)
        elif found.scale != scale:
            found = Real(found.value, scale)
        result = self.rewriter.emit(_dequantize(found))
        self.real[result] = found if once else Real(found.value, found.scale)
        return result

    def _as_int8(self, source: Expr) -> Expr:
        """An 8-bit tensor that was not computed here."""
        if str(source.ty.dtype) == "int8":
            return source
        lower = self.rewriter.emit(op.subtract(self.rewriter.emit(op.astype(source, "int32")), integer(128)))
        return self.rewriter.emit(op.astype(lower, "int8"))

    def quantized(self, variable: relax.Var, call: relax.Call) -> Expr | None:
        """The 8-bit values of an expression, in integer arithmetic if possible."""
        dtype = str(call.attrs.out_dtype)
        scale = _scale(call, dtype)
        if scale is None:
            return None
        value = array(call.args[0])
        if value is not None:
            return constant((scale.quantised(value) + (128 if dtype == "uint8" else 0)).astype(dtype))
        wide = self.in_integers(call.args[0], scale)
        if wide is None:
            by_float = op.quantize(call.args[0], _float(scale.scale), relax.const(scale.zero, "int8"), out_dtype="int8")
            made = Real(self.rewriter.emit(by_float), scale)
        elif str(wide.ty.dtype) == "int8":
            made = Real(wide, scale)
        else:
            once = self.rewriter.uses.get(variable, 0) == 1
            stored = self.rewriter.emit(op.astype(wide, "int8"))
            made = Real(stored, scale, wide if once else None, len(self.stored))
        result = made.value
        if dtype == "uint8":
            higher = self.rewriter.emit(op.add(self.rewriter.emit(op.astype(result, "int32")), integer(128)))
            result = self.rewriter.emit(op.astype(higher, "uint8"))
        self.stored[result] = made
        return result

    def _transposed(self, call: relax.Call) -> Expr:
        weights = self.weights[call.args[0]]
        rank = weights.values.ndim
        axes = tuple(reversed(range(rank))) if call.attrs.axes is None else tuple(int(a) for a in call.attrs.axes)
        result = self.rewriter.emit(call)
        self.weights[result] = weights.transposed(axes)
        return result

    def _constant(self, call: relax.Call) -> Expr | None:
        """The value of an expression of constants only, such as a reshaped bias."""
        operands = [constant(self.weights[a].real) if self._is_weight(a) else a for a in call.args]
        return folded(self.rewriter.builder.normalize(relax.Call(call.op, operands, call.attrs, call.ty_args)))

    def _is_weight(self, expr: Expr) -> bool:
        return isinstance(expr, relax.Var) and expr in self.weights

    def _real_total(self, call: relax.Call) -> Expr | None:
        """A matrix multiplication or convolution of quantised tensors in float32, for consumers that do not requantise
        it; not computed if there are none."""
        total = self._sums().total(call, 1.0, None)
        found = None if total is None else self.arithmetic.real(self.rewriter, total)
        if found is not None:
            self.meant[found] = call
        return found

    def _sums(self) -> Sums:
        return Sums(self.rewriter, self.real, self.lookup, self._kernel, self.arithmetic)

    def _stored_view(self, call: relax.Call) -> Expr:
        """A view of a quantised tensor, if the model has it without the two operators."""
        source = self.stored[call.args[0]]
        result = self.rewriter.emit(call)
        same = self.rewriter.emit(relax.Call(call.op, [source.value, *call.args[1:]], call.attrs, call.ty_args))
        self.stored[result] = Real(same, source.scale)
        return result

    # ---- integers ---------------------------------------------------------------------------------------------------

    def in_integers(self, value: Expr, out: Scale) -> Expr | None:
        """The values of `value` in the scale `out`: int8, or int32 within its range; None if that is impossible in
        integers."""
        before = self.rewriter.name
        made = self._in_integers(value, out)
        if made is None:
            self.rewriter.name = before
        return made

    def _in_integers(self, value: Expr, out: Scale) -> Expr | None:
        self.rewriter.take_name(value)
        seen = self._view(value, out)
        if seen is not None:
            return seen
        found = chain(value, self.lookup, self.known)
        self.rewriter.take_name(*reversed(found.through))
        total = self._sums().total(found.core, found.factor, out)
        if total is not None:
            result = self._finished(total, found.bias, out, found.low, found.high)
            if result is not None:
                return result
        return self._by_table(value, out) if self.arithmetic.everything else None

    def _by_table(self, value: Expr, out: Scale) -> Expr | None:
        """Functions of one tensor."""
        call = self.lookup(value)
        if is_op(call, "nn.softmax") and call.args[0] in self.real:
            return softmax(self.rewriter, self.real[call.args[0]], int(call.attrs.axis), out)
        if is_op(call, "nn.layer_norm") and call.args[0] in self.real:
            return layer_norm(self.rewriter, self.real[call.args[0]], call, out)
        single = pointwise(value, self.lookup, self.known, lambda e: isinstance(e, relax.Var) and e in self.real)
        if single is not None:
            root, function = single
            return table(self.rewriter, self.real[root], function, out)
        return None

    def _finished(self, total: Total, bias: np.ndarray | None, out: Scale, low: float, high: float) -> Expr | None:
        if bias is not None:
            total = total.plus(self.rewriter, bias)
        least = LOW if low == -np.inf else int(out.quantised(low))
        most = HIGH if high == np.inf else int(out.quantised(high))
        return self.arithmetic.numbers(self.rewriter, total, out, least, most)

    def _view(self, value: Expr, out: Scale) -> Expr | None:
        """Operators that preserve values: reordering, reshaping, and maxima."""
        call = self.lookup(value)
        if not is_op(call, *VIEWS):
            return None
        if is_op(call, "concat"):
            fields = self.lookup(call.args[0])
            parts = list(fields.fields) if isinstance(fields, relax.Tuple) else []
            if not parts or any(part not in self.real for part in parts):
                return None
            same = [self._as(self.real[part], out) for part in parts]
            return self.rewriter.emit(op.concat(same, call.attrs.axis))
        if call.args[0] not in self.real:
            return None
        source = self._as(self.real[call.args[0]], out)
        return self.rewriter.emit(relax.Call(call.op, [source, *call.args[1:]], call.attrs, call.ty_args))

    def _as(self, source: Real, out: Scale) -> Expr:
        """The int8 values of a tensor with another scale."""
        if source.scale == out:
            return source.value
        total = Total(source.centred(self.rewriter), np.array(source.scale.scale), 255)
        return self.rewriter.emit(op.astype(self.arithmetic.numbers(self.rewriter, total, out, LOW, HIGH), "int8"))

    def _kernel(self, expr: Expr, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Constant weights as (int8 values, scales along `axis`, zero points along `axis`); None for anything else."""
        found = self.weights.get(expr) if isinstance(expr, relax.Var) else None
        if found is None:
            value = array(expr)
            if value is None or value.dtype != np.float32 or not self.arithmetic.everything:
                return None
            q, scales = quantised_weights(value, axis)
            return q, scales, np.zeros_like(scales, dtype=np.int32)
        rank = found.values.ndim
        others = [a for a in range(rank) if a != axis % rank]
        if any(part.shape[a] != 1 for part in (found.scale, found.zero) for a in others):
            return None  # scales along another axis
        channels = found.values.shape[axis % rank]
        values, zero = found.values.astype(np.int32), found.zero.reshape(-1).astype(np.int32)
        if values.max() > HIGH:
            values, zero = values - 128, zero - 128
        spread = [np.broadcast_to(part, channels) for part in (found.scale.reshape(-1), zero)]
        return values.astype(np.int8), spread[0].astype(np.float32), spread[1].astype(np.int32)


def _is_operator(value: Expr) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)


def _dequantize(real: Real) -> Expr:
    return op.dequantize(real.value, _float(real.scale.scale), relax.const(real.scale.zero, "int8"))


def _float(value: float) -> Expr:
    return relax.const(np.float32(value), "float32")


def _scale(call: relax.Call, dtype: str) -> Scale | None:
    """The per-tensor scale in int8; None for a computed or per-channel scale."""
    scale, zero = array(call.args[1]), array(call.args[2])
    if dtype not in ("int8", "uint8") or scale is None or zero is None or scale.size != 1 or zero.size != 1:
        return None
    return Scale(float(scale.reshape(())), int(zero.reshape(())) - (128 if dtype == "uint8" else 0))


def _weights(call: relax.Call) -> _Weights | None:
    values, scale, zero = (array(argument) for argument in call.args)
    if values is None or scale is None or zero is None or values.dtype not in (np.int8, np.uint8, np.int32):
        return None
    rank = values.ndim
    along = [1] * rank
    if scale.size > 1:
        along[int(call.attrs.axis) % rank] = -1
    spread = np.broadcast_to(zero.reshape(-1), scale.size)
    return _Weights(values, scale.astype(np.float64).reshape(along), spread.astype(np.int32).reshape(along))
