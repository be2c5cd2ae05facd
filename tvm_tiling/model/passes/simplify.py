"""Simplification of a graph by its constants: constant folding, folding of batch norm into the preceding weights, and
removal of operators without elements.

Constants are computed with NumPy. TVM's own FoldConstant compiles a kernel for each call, which takes 39 s for a
ResNet-50 whose weights come from one operator each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from ...lowering.extents import alike
from ...runtime.arrays import numpy_type
from .dataflow import Expr, Rewriter, array, constant, extents_of, ints, is_op, rewrite, shape_of

# Constants that would exceed this size, in bytes, remain calls unless their operands are as large.
LARGEST_GROWTH = 256 << 20


def simplify(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with constants folded, batch norm folded, and operators without effect at inference removed."""
    return rewrite(rewrite(mod, _call), _scale_into_weights)


def _call(rewriter: Rewriter, _: relax.Var, value: Expr) -> Expr | None:
    if isinstance(value, relax.TupleGetItem):
        source = rewriter.value(value.tuple_value)
        if is_op(source, "nn.batch_norm") and value.index == 0:
            return _batch_norm(rewriter, source)
        if is_op(source, "nn.dropout") and value.index == 0:
            return source.args[0]
        return source.fields[value.index] if isinstance(source, relax.Tuple) else None
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if is_op(value, "nn.batch_norm") and value.attrs.training:
        return _training_batch_norm(rewriter, value)
    known = folded(value)
    return known if known is not None else _plainer(rewriter, value)


def _plainer(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """The same with fewer operators: without broadcasts and slices that change nothing, sums over stacked tensors, and
    empty concatenations."""
    if is_op(call, "broadcast_to", "reshape") or (is_op(call, "strided_slice") and _forward(call)):
        return call.args[0] if alike(extents_of(call.args[0]), extents_of(call)) else None
    if is_op(call, "concat"):
        return _without_empty(rewriter, call)
    if not is_op(call, "sum") or call.attrs.axis is None or ints(call.attrs.axis) != (0,) or call.attrs.keepdims:
        return None
    stacked = rewriter.value(call.args[0])
    if not is_op(stacked, "stack") or int(stacked.attrs.axis or 0) != 0:
        return None
    terms = rewriter.value(stacked.args[0])
    if not isinstance(terms, relax.Tuple):
        return None
    total = terms.fields[0]
    for term in terms.fields[1:]:
        total = rewriter.emit(relax.op.add(total, term))
    return total


def _forward(call: relax.Call) -> bool:
    """Whether a slice takes elements in ascending order."""
    if len(call.args) < 5:
        return True
    steps = _operand(call.args[4])
    return isinstance(steps, list) and all(step > 0 for step in steps)


def _without_empty(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """A concatenation without empty operands, which TVM does not support as constants."""
    parts = rewriter.value(call.args[0])
    if not isinstance(parts, relax.Tuple):
        return None
    filled = [part for part in parts.fields if 0 not in (shape_of(part) or ())]
    if len(filled) == len(parts.fields) or not filled:
        return None
    return filled[0] if len(filled) == 1 else relax.op.concat(filled, call.attrs.axis)


def folded(call: relax.Call) -> tvm.ir.GenericConst | None:
    """The value of a call whose operands are constants; None if the operator is not supported here."""
    compute = _NUMPY.get(call.op.name[6:])
    operands = [_operand(argument) for argument in call.args]
    if compute is None or any(operand is None for operand in operands):
        return None
    shape = shape_of(call)
    dtype = str(call.ty.dtype) if isinstance(call.ty, relax.TensorType) else ""
    if shape is None or 0 in shape or not dtype:
        return None
    if not is_op(call, *_SAME_NUMBERS) and "bfloat16" in (
        dtype,
        *(str(operand.dtype) for operand in _arrays(operands)),
    ):
        return None  # NumPy and the kernels compute it differently
    size = int(np.prod(shape)) * numpy_type(dtype).itemsize
    known = sum(operand.nbytes for operand in operands if isinstance(operand, np.ndarray))
    if size > max(LARGEST_GROWTH, 2 * known):
        return None
    with np.errstate(all="ignore"):
        result = compute(call.attrs, *operands)
        return (
            None
            if result is None
            else constant(np.asarray(result).astype(numpy_type(dtype), copy=False).reshape(shape))
        )


def _operand(expr: Expr) -> Any:
    if isinstance(expr, tvm.ir.GenericConst):
        return array(expr)
    if isinstance(expr, relax.ShapeExpr) and all(hasattr(v, "value") for v in expr.values):
        return ints(expr.values)
    if isinstance(expr, tirx.IntImm | tirx.FloatImm):
        return expr.value
    if isinstance(expr, relax.Tuple):
        fields = [_operand(field) for field in expr.fields]
        return None if any(field is None for field in fields) else fields
    return None


def _arrays(operands: Sequence[Any]) -> Iterator[np.ndarray]:
    for operand in operands:
        yield from _arrays(operand) if isinstance(operand, list) else [operand] * isinstance(operand, np.ndarray)


def _axes(attrs: Any) -> tuple[int, ...] | None:
    axes = attrs.axes if hasattr(attrs, "axes") else attrs.axis
    return None if axes is None else ints(axes)


def _binary(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda _, a, b: function(a, b)


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda _, a: function(a)


def _sliced(a: np.ndarray, axes: Any, starts: Any, ends: Any, steps: Any) -> np.ndarray:
    slices = [slice(None)] * a.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        slices[axis] = slice(start, end, step)
    return a[tuple(slices)]


# Cases undefined for integers are left to the passes that reject or define them.


def _quotient(_: Any, a: np.ndarray, b: np.ndarray) -> Any:
    if a.dtype.kind == "f":
        return a / b
    if not b.all():
        return None
    whole, rest = np.floor_divide(a, b), np.remainder(a, b)
    return whole + ((rest != 0) & ((a < 0) != (b < 0)))  # towards zero


def _power(_: Any, a: np.ndarray, b: np.ndarray) -> Any:
    return None if a.dtype.kind in "iu" and (b < 0).any() else np.power(a, b)


def _cast(attrs: Any, a: np.ndarray) -> Any:
    dtype = numpy_type(str(attrs.dtype))
    if a.dtype.kind not in "iub" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        whole = np.trunc(a.astype("float64"))
        if not ((whole >= limits.min) & (whole < float(limits.max) + 1)).all():
            return None
    return a.astype(dtype)


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": _binary(np.add),
    "subtract": _binary(np.subtract),
    "multiply": _binary(np.multiply),
    "divide": _quotient,
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "power": _power,
    "sqrt": _unary(np.sqrt),
    "rsqrt": _unary(lambda a: 1 / np.sqrt(a)),
    "exp": _unary(np.exp),
    "negative": _unary(np.negative),
    "abs": _unary(np.abs),
    "astype": _cast,
    "broadcast_to": lambda _, a, shape: np.broadcast_to(a, shape),
    "reshape": lambda _, a, shape: a.reshape(shape),
    "permute_dims": lambda attrs, a: np.transpose(a, _axes(attrs)),
    "expand_dims": lambda attrs, a: np.expand_dims(a, _axes(attrs) or ()),
    "squeeze": lambda attrs, a: np.squeeze(a, _axes(attrs)),
    "zeros": lambda _, shape: np.zeros(shape),
    "ones": lambda _, shape: np.ones(shape),
    "full": lambda _, shape, value: np.full(shape, value),
    "arange": lambda attrs, start, end, step: np.arange(start, end, step, dtype=str(attrs.dtype)),
    "strided_slice": lambda _, a, axes, starts, ends, steps=None: _sliced(a, axes, starts, ends, steps),
    "concat": lambda attrs, parts: np.concatenate(parts, int(attrs.axis) if attrs.axis is not None else None),
}


# Operators for any type: their result is a rounding, or exact.
_SAME_NUMBERS = (
    "astype",
    "broadcast_to",
    "reshape",
    "permute_dims",
    "expand_dims",
    "squeeze",
    "strided_slice",
    "concat",
)


# ---- batch norm -----------------------------------------------------------------------------------------------------


def _batch_norm(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """scale * x + shift for a batch norm at inference whose four vectors are constant."""
    vectors = [array(argument) for argument in call.args[1:]]
    shape = extents_of(call.args[0])
    if shape is None or any(v is None for v in vectors):
        return None
    gamma, beta, mean, variance = (v.astype(np.float64) for v in vectors if v is not None)
    scale = 1 / np.sqrt(variance + float(call.attrs.epsilon))
    scale = scale * gamma if call.attrs.scale else scale
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    axis = int(call.attrs.axis) % len(shape)
    along = [len(mean) if d == axis else 1 for d in range(len(shape))]
    dtype = str(call.args[0].ty.dtype)
    scaled = rewriter.emit(relax.op.multiply(call.args[0], constant(scale.reshape(along).astype(dtype))))
    return relax.op.add(scaled, constant(shift.reshape(along).astype(dtype)))


def _training_batch_norm(rewriter: Rewriter, call: relax.Call) -> Expr:
    """A batch norm by the mean and variance of its data, with the updated running ones: TVM's decomposition for
    inference treats it as one by the running statistics."""
    data, gamma, beta, *running = call.args
    rank, momentum, dtype = call.ty.fields[0].ndim, float(call.attrs.momentum), str(data.ty.dtype)
    axis = int(call.attrs.axis) % rank
    others = [place for place in range(rank) if place != axis]

    def number(value: float) -> Expr:
        return relax.const(value, dtype)

    def along(vector: Expr) -> Expr:
        return rewriter.emit(relax.op.expand_dims(vector, others))

    mean = rewriter.emit(relax.op.mean(data, others))
    away = rewriter.emit(relax.op.subtract(data, along(mean)))
    variance = rewriter.emit(relax.op.mean(rewriter.emit(relax.op.multiply(away, away)), others))
    inverse = rewriter.emit(relax.op.rsqrt(rewriter.emit(relax.op.add(variance, number(float(call.attrs.epsilon))))))
    if call.attrs.scale:
        inverse = rewriter.emit(relax.op.multiply(inverse, gamma))
    result = rewriter.emit(relax.op.multiply(away, along(inverse)))
    if call.attrs.center:
        result = rewriter.emit(relax.op.add(result, along(beta)))
    updated = [
        rewriter.emit(
            relax.op.add(
                rewriter.emit(relax.op.multiply(before, number(1 - momentum))),
                rewriter.emit(relax.op.multiply(now, number(momentum))),
            )
        )
        for before, now in zip(running, (mean, variance), strict=True)
    ]
    return relax.Tuple([result, *updated])


def _scale_into_weights(rewriter: Rewriter, variable: relax.Var, value: Expr) -> Expr | None:
    """conv(x, w) * s, and (conv(x, w) + b) * s, with s along the output channels: fold the factor into the weights."""
    if not is_op(value, "multiply"):
        return None
    left, right = value.args
    factor = array(right)
    if factor is None:
        left, right = right, left
        factor = array(right)
    if factor is None or factor.dtype != np.float32 or not isinstance(left, relax.Var):
        return None
    source = rewriter.value(left)
    bias = None
    if is_op(source, "add") and array(source.args[1]) is not None:
        bias, source = array(source.args[1]), rewriter.value(source.args[0])
    scaled = _scaled_convolution(source, factor)
    if scaled is None:
        return None
    rewriter.take_name(left)
    if bias is None:
        return scaled
    return relax.op.add(rewriter.emit(scaled), constant((bias * factor).astype(np.float32)))


def _scaled_convolution(call: Expr, factor: np.ndarray) -> relax.Call | None:
    """A convolution whose constant kernels are multiplied by a factor along the output channels."""
    if not is_op(call, "nn.conv1d", "nn.conv2d", "nn.conv3d"):
        return None
    kernels, shape = array(call.args[1]), extents_of(call)
    out, stored = str(call.attrs.out_layout or call.attrs.data_layout), str(call.attrs.kernel_layout)
    if kernels is None or shape is None or not (out.isalpha() and stored.isalpha()):
        return None
    channel = out.index("C")
    channels = kernels.shape[stored.index("O")]
    aligned = (1,) * (len(shape) - factor.ndim) + factor.shape
    if any(size not in (1, channels if d == channel else 1) for d, size in enumerate(aligned)):
        return None
    along = [-1 if letter == "O" else 1 for letter in stored]
    vector = np.broadcast_to(factor.reshape(-1), (channels,)).reshape(along)
    return relax.Call(
        call.op, [call.args[0], constant((kernels * vector).astype(kernels.dtype))], call.attrs, call.ty_args
    )


# ---- operators without elements -------------------------------------------------------------------------------------


def without_empty(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` without operators that have an empty result, which is replaced by a tensor of its shape, and without means
    over no elements, which are NaN: TVM divides by the number of elements, or by an extent, in such kernels."""
    main = mod["main"]
    blocks = main.body.blocks if isinstance(main.body, relax.SeqExpr) else []
    values = [*main.params, *(binding.var for block in blocks for binding in block.bindings)]
    return rewrite(mod, _without_elements) if any(0 in (shape_of(value) or ()) for value in values) else mod


def _without_elements(_: Rewriter, _variable: relax.Var, value: Expr) -> Expr | None:
    shape = shape_of(value)
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op) or shape is None:
        return None
    dtype = str(value.ty.dtype)
    if 0 in shape:
        return None if is_op(value, "zeros") else relax.op.zeros(relax.ShapeExpr(shape), dtype)
    if is_op(value, "mean", "variance", "std") and 0 in (shape_of(value.args[0]) or ()):
        return relax.op.full(relax.ShapeExpr(shape), relax.const(math.nan, dtype), dtype)
    return None
