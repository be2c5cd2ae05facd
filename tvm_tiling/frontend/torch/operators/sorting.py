"""Sorting, and operators based on it.

TVM's sort compares floats, which leaves a tensor with NaN unsorted. Here integer keys are compared, in PyTorch's order:
NaN above everything, 0 and -0 equal.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ...order_key import order_key
from ..translation import Translation, Unsupported, converter, dtype_of, shape_of
from ..types import computed_in, is_float
from .elementwise import kernel


def _keys(t: Translation, x: relax.Expr, descending: bool) -> relax.Expr:
    """Integer keys whose ascending order is the order of x."""
    dtype = computed_in(dtype_of(x))
    x = t.cast(x, dtype)
    if is_float(dtype):
        x = kernel(t, "sort_keys", order_key, x)
    elif dtype in ("uint64", "uint32", "uint16"):
        raise Unsupported(f"type {dtype} is not supported; expected signed integers, uint8 or floats")
    elif dtype not in ("int32", "int64"):
        x = t.cast(x, "int32")
    return t.emit(op.bitwise_not(x)) if descending else x


def order(t: Translation, x: relax.Expr, dim: int, descending: bool) -> relax.Expr:
    """Indices along an axis in the order of the elements, stable."""
    return t.emit(op.argsort(_keys(t, x, descending), axis=dim % len(shape_of(x)), descending=False, dtype="int64"))


@converter("sort.default", "sort.stable")
def _sort(
    t: Translation, self: relax.Expr, dim: int, descending: bool, stable: bool | None = None
) -> tuple[relax.Expr, relax.Expr]:
    """The sorted elements and their indices; the sort is always stable."""
    shape = shape_of(self)
    if not shape or 0 in shape:
        return self, t.emit(op.full(relax.ShapeExpr(shape), t.cast(0, "int64"), "int64"))
    places = order(t, self, dim, descending)
    return t.emit(op.gather_elements(self, places, dim % len(shape))), places


@converter("topk.default")
def _topk(
    t: Translation,
    self: relax.Expr,
    k: int,
    dim: int,
    largest: bool,
    sorted: bool,
) -> tuple[relax.Expr, relax.Expr]:
    """The first k sorted elements, sorted even if that is not requested."""
    shape = shape_of(self)
    if shape and 0 not in shape and k > 0 and isinstance(shape[dim % len(shape)], int):
        axis = dim % len(shape)
        keys = _keys(t, self, largest)
        places = t.emit(op.topk(keys, k, axis, ret_type="indices", largest=False, dtype="int64"))
        return t.emit(op.gather_elements(self, places, axis)), places
    values, places = _sort(t, self, dim, largest)
    if not t.shape:
        return values, places
    first = [t.emit(op.strided_slice(x, [dim % len(t.shape)], [0], [k])) for x in (values, places)]
    return first[0], first[1]
