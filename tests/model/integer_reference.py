"""A quantised graph computed by NumPy, operator by operator, independently of the compiler."""

from __future__ import annotations

import itertools

import numpy as np
import tvm
from tvm import relax


def reference(mod: tvm.IRModule, *inputs: np.ndarray):
    """Return the outputs of the function "main" of a Relax module."""
    main = mod["main"]
    values = dict(zip(main.params, inputs, strict=True))

    def value(expr):
        if isinstance(expr, relax.Var):
            return values[expr]
        if isinstance(expr, tvm.ir.GenericConst):
            return expr.value.numpy()
        if isinstance(expr, relax.Tuple):
            return [value(field) for field in expr.fields]
        if isinstance(expr, relax.TupleGetItem):
            return value(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.ShapeExpr):
            return tuple(int(extent) for extent in expr.values)
        if isinstance(expr, relax.Call):
            operands = [value(a) if isinstance(a, relax.Expr) else a for a in expr.args]
            result = OPERATORS[expr.op.name.removeprefix("relax.")](expr.attrs, *operands)
            assert result.dtype == np.dtype(str(expr.ty.dtype)), expr
            return result
        return expr.value

    for block in main.body.blocks:
        for binding in block.bindings:
            values[binding.var] = value(binding.value)
    return value(main.body.body)


def ints(values):
    return tuple(int(v) for v in values)


def convolution(attrs, x, w):
    """Accumulate in int64, which equals int32 as long as nothing wraps."""
    assert str(attrs.data_layout) == "NCHW" and str(attrs.kernel_layout) == "OIHW"
    top, left, bottom, right = ints(attrs.padding)
    (sh, sw), (dh, dw), groups = ints(attrs.strides), ints(attrs.dilation), int(attrs.groups)
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    co, ci, kh, kw = w.shape
    ho, wo = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1, (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    out = np.zeros((x.shape[0], co, ho, wo), np.float64)  # represents integers up to 2^53
    each = co // groups
    for g, i, j in itertools.product(range(groups), range(kh), range(kw)):
        part = x[
            :, g * ci : (g + 1) * ci, i * dh : i * dh + (ho - 1) * sh + 1 : sh, j * dw : j * dw + (wo - 1) * sw + 1 : sw
        ]
        rows = w[g * each : (g + 1) * each, :, i, j].astype(np.float64)
        out[:, g * each : (g + 1) * each] += np.einsum("nchw,oc->nohw", part.astype(np.float64), rows, optimize=True)
    assert np.abs(out).max() < 2**31
    return out.astype(str(attrs.out_dtype))


def largest_of_windows(attrs, x):
    assert str(attrs.layout) == "NCHW" and not attrs.ceil_mode
    top, left, bottom, right = ints(attrs.padding)
    (kh, kw), (sh, sw) = ints(attrs.pool_size), ints(attrs.strides)
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=np.iinfo(x.dtype).min)
    ho, wo = (x.shape[2] - kh) // sh + 1, (x.shape[3] - kw) // sw + 1
    windows = [
        x[:, :, i : i + (ho - 1) * sh + 1 : sh, j : j + (wo - 1) * sw + 1 : sw] for i in range(kh) for j in range(kw)
    ]
    return np.maximum.reduce(windows)


def product(attrs, a, b):
    out = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return out.astype(str(attrs.out_dtype))


def quantized(attrs, x, scale, zero):
    steps = np.rint(x / scale) + zero.astype(np.float32)
    return np.clip(steps, -128, 127).astype(str(attrs.out_dtype))


def dequantized(attrs, q, scale, zero):
    along = [1] * q.ndim
    if scale.size > 1:
        along[int(attrs.axis)] = -1
    return (q.astype(np.int32) - zero.reshape(along if zero.size > 1 else ())).astype(np.float32) * scale.reshape(
        along if scale.size > 1 else ()
    )


def axes_of(attrs):
    return None if attrs.axis is None else ints(attrs.axis)


def padded(attrs, x):
    widths = ints(attrs.pad_width)
    return np.pad(x, list(zip(widths[::2], widths[1::2], strict=True)), constant_values=int(attrs.pad_value))


OPERATORS = {
    "nn.conv2d": convolution,
    "nn.max_pool2d": largest_of_windows,
    "nn.pad": padded,
    "matmul": product,
    "quantize": quantized,
    "dequantize": dequantized,
    "add": lambda _, a, b: a + b,
    "subtract": lambda _, a, b: a - b,
    "multiply": lambda _, a, b: a * b,
    "divide": lambda _, a, b: a / b,
    "maximum": lambda _, a, b: np.maximum(a, b),
    "minimum": lambda _, a, b: np.minimum(a, b),
    "right_shift": lambda _, a, b: a >> b,
    "sqrt": lambda _, a: np.sqrt(a),
    "round": lambda _, a: np.rint(a),
    "astype": lambda attrs, a: a.astype(str(attrs.dtype)),
    "take": lambda attrs, a, i: np.take(a, i, axis=int(attrs.axis)),
    "sum": lambda attrs, a: a.sum(axis=axes_of(attrs), keepdims=bool(attrs.keepdims), dtype=a.dtype),
    "max": lambda attrs, a: a.max(axis=axes_of(attrs), keepdims=bool(attrs.keepdims)),
    "reshape": lambda _, a, shape: a.reshape(shape),
    "squeeze": lambda attrs, a: np.squeeze(a, axes_of(attrs)),
    "expand_dims": lambda attrs, a: np.expand_dims(a, axes_of(attrs)),
    "permute_dims": lambda attrs, a: np.transpose(a, None if attrs.axes is None else ints(attrs.axes)),
    "concat": lambda attrs, parts: np.concatenate(parts, int(attrs.axis)),
}
