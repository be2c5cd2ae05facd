"""Maxima and minima of floats as in NumPy, ONNX and PyTorch: NaN if an operand is NaN, and infinities preserved.

TIR's max and min drop a NaN in their first operand. TVM's reductions and pools start from the extreme finite number,
which would be the result of only infinities; here they start from an infinity. The index of an extreme is that of the
first NaN, otherwise of the first extreme.

Softmax is unchanged: a NaN, like an infinity, propagates to every element of a row through the sum of its exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import tvm_ffi
from tvm import relax, s_tir, te, tirx, topi

from ...match.extreme import extreme

Expr: TypeAlias = tirx.Expr
ROW_SUMS = ("softmax", "log_softmax")


def with_nan_kept(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with NaN-propagating float max and min, and with reductions that start from an infinity."""
    func = tvm_ffi.structural_map(func, ((tirx.Max, tirx.Min), lambda e: extreme(type(e), e.a, e.b)))
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    starts = [block.init.value for block in blocks if isinstance(block.init, tirx.BufferStore)]
    finite = [v for v in starts if isinstance(v, tirx.FloatImm) and abs(v.value) == _outermost(v)]
    if not finite:
        return func

    # The initial value of a reduction, and the padding of a pool's input next to it.
    def infinite(value: tirx.FloatImm) -> tirx.FloatImm:
        found = any(str(value.ty) == str(v.ty) and value.value == v.value for v in finite)
        return tirx.const(math.copysign(math.inf, value.value), str(value.ty)) if found else value

    return tvm_ffi.structural_map(func, (tirx.FloatImm, infinite))


def _outermost(value: tirx.FloatImm) -> float:
    return float(tirx.max_value(str(value.ty)).value)


# ---- indices --------------------------------------------------------------------------------------------------------


def _place_of(extreme: Callable[..., te.Tensor], name: str) -> Callable[[relax.BlockBuilder, Any], relax.Expr]:
    def legalise(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        place = partial(first_place, extreme=extreme)
        return builder.call_te(place, call.args[0], axis, bool(call.attrs.keepdims), primfunc_name_hint=name)

    return legalise


def first_place(data: te.Tensor, axis: int | None, keep: bool, *, extreme: Callable[..., te.Tensor]) -> te.Tensor:
    """The first index of the `extreme` (topi.max or topi.min), or of a NaN, along an axis or in the flattened tensor.

    In two vectorised steps: the extreme, then the smallest index that holds it.
    """
    rank, dtype = len(data.shape), str(data.dtype)
    reduced = list(range(rank)) if axis is None else [axis % rank]
    best = extreme(data, reduced, True)
    reduced_axes = {a: te.reduce_axis((0, data.shape[a]), name=f"k{a}") for a in reduced}
    shape = [1 if a in reduced_axes else data.shape[a] for a in range(rank) if keep or a not in reduced_axes]

    def element(*at: Expr) -> Expr:
        left = iter([at[a] for a in range(rank) if a not in reduced_axes] if keep else at)
        rows = {a: next(left) for a in range(rank) if a not in reduced_axes}
        value = data[tuple(reduced_axes[a] if a in reduced_axes else rows[a] for a in range(rank))]
        row_best = best[tuple(rows.get(a, 0) for a in range(rank))]
        place: Expr = tirx.const(0, "int64")
        for a, reduced_axis in reduced_axes.items():
            place = place * tirx.Cast("int64", data.shape[a]) + tirx.Cast("int64", reduced_axis.var)
        found = tirx.Select(value.equal(row_best), place, tirx.max_value("int64"))
        if "float" in dtype:
            # No NaN is at least minus infinity; if there is one, nothing equals the extreme.
            found = tirx.Select(tirx.LE(tirx.const(-math.inf, dtype), value), found, place)
        return te.min(found, axis=list(reduced_axes.values()))

    return te.compute(shape, element, name="place")


LEGALISED = {"relax.argmax": _place_of(topi.max, "argmax"), "relax.argmin": _place_of(topi.min, "argmin")}
