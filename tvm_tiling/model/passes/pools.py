"""Pooling with large windows along one axis after the other.

The maximum of a window of kh x kw elements takes kh * kw - 1 comparisons; that of its rows and then of their results
takes kh + kw - 2, for one tensor more. The networks of the YOLO family pool windows of 5 to 13 elements this way. The
mean of a window is that of its rows' means, also if padding does not count: then each row has as many elements inside.
"""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.relax import op

from .dataflow import Expr, Rewriter, extents_of, ints, is_op, rewrite

# Elements of a window, relative to those read along one axis after the other, from which on that is faster: 5 x 5 with
# stride 1 takes half the time, 3 x 3 somewhat more.
_GAIN = 2.0


def with_pools_by_axis(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with its nn.max_pool2d and nn.avg_pool2d of large windows as two, along the columns and then along the
    rows."""
    return rewrite(mod, _by_axis)


def _by_axis(rewriter: Rewriter, variable: relax.Var, call: Expr) -> Expr | None:
    means = is_op(call, "nn.avg_pool2d")
    if not means and not is_op(call, "nn.max_pool2d"):
        return None
    attrs = call.attrs
    if means and (attrs.ceil_mode or str(variable.ty.dtype) not in ("float32", "float64")):
        return None  # windows past the padding count other elements; a narrow mean would be rounded twice
    (height, width), (down, across), (rows, columns) = map(ints, (attrs.pool_size, attrs.strides, attrs.dilation))
    top, left, bottom, right = ints(attrs.padding)
    if height * width < _GAIN * (_rows_for_each(variable, call, down) * width + height):
        return None
    function, counts = (op.nn.avg_pool2d, bool(attrs.count_include_pad)) if means else (op.nn.max_pool2d, False)

    def pool(data: Expr, *window: tuple[int, ...]) -> Expr:
        return function(data, *window, bool(attrs.ceil_mode), counts, str(attrs.layout), str(attrs.out_layout))

    along_rows = pool(call.args[0], (1, width), (1, across), (0, left, 0, right), (1, columns))
    return pool(rewriter.emit(along_rows), (height, 1), (down, 1), (top, 0, bottom, 0), (rows, 1))


def _rows_for_each(variable: relax.Var, call: Expr, stride: int) -> float:
    """The rows of the input for each row of the result: more than the stride for a window that fills the image."""
    axis = str(call.attrs.layout).index("H")
    given, result = extents_of(call.args[0]), extents_of(variable)
    if given is None or result is None:
        return stride
    rows, results = given[axis], result[axis]
    return max(stride, rows / max(1, results)) if isinstance(rows, int) and isinstance(results, int) else stride
