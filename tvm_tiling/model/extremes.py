"""Largest and smallest of floats as NumPy, ONNX and PyTorch define them: NaN where an operand is NaN, infinities kept.

TIR's max and min forget NaN in their first operand. TVM's reductions and pools start from the outermost finite number,
which is what is left of nothing but infinities; here they start from an infinity. The place of an extreme is that of
the first NaN, else of the first extreme.

Softmax is left alone: a NaN, like an infinity, reaches every element of a row by the sum of its exponentials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx

from ..match.extreme import extreme

Expr: TypeAlias = tirx.Expr
_ROW_SUMS = ("softmax", "log_softmax")


def legalised(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with its operators as PrimFuncs, as TVM's LegalizeOps makes them but for extremes of floats."""
    places = {"relax.argmax": _place_of(_above, "argmax"), "relax.argmin": _place_of(_below, "argmin")}
    mod = relax.transform.LegalizeOps(places)(mod)
    changed = {
        variable: with_nan_kept(func)
        for variable, func in mod.functions.items()
        if isinstance(func, tirx.PrimFunc) and not variable.name_hint.startswith(_ROW_SUMS)
    }
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable, func in changed.items():
        updated.update_func(variable, func)
    return updated


def with_nan_kept(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with each max and min of floats right for NaN, and those over axes from an infinity on."""
    func = tvm_ffi.structural_map(func, ((tirx.Max, tirx.Min), lambda e: extreme(type(e), e.a, e.b)))
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    starts = [block.init.value for block in blocks if isinstance(block.init, tirx.BufferStore)]
    finite = [v for v in starts if isinstance(v, tirx.FloatImm) and abs(v.value) == _outermost(v)]
    if not finite:
        return func

    # The start of a reduction, and what pads the input of a pool beside it.
    def infinite(value: tirx.FloatImm) -> tirx.FloatImm:
        found = any(str(value.ty) == str(v.ty) and value.value == v.value for v in finite)
        return tirx.const(math.copysign(math.inf, value.value), str(value.ty)) if found else value

    return tvm_ffi.structural_map(func, (tirx.FloatImm, infinite))


def _outermost(value: tirx.FloatImm) -> float:
    return float(tirx.max_value(str(value.ty)).value)


# ---- places ---------------------------------------------------------------------------------------------------------


def _above(a: Expr, b: Expr) -> Expr:
    return a > b


def _below(a: Expr, b: Expr) -> Expr:
    return a < b


def _place_of(better: Callable[[Expr, Expr], Expr], name: str) -> Callable[[relax.BlockBuilder, Any], relax.Expr]:
    def legalise(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        place = partial(first_place, better=better)
        return builder.call_te(place, call.args[0], axis, bool(call.attrs.keepdims), primfunc_name_hint=name)

    return legalise


def first_place(data: te.Tensor, axis: int | None, keep: bool, *, better: Callable[[Expr, Expr], Expr]) -> te.Tensor:
    """The first place along an axis, or in all of the tensor, whose element none is better than; NaN is best of all."""
    rank, dtype = len(data.shape), str(data.dtype)
    reduced = list(range(rank)) if axis is None else [axis % rank]
    walks = [te.reduce_axis((0, data.shape[a]), name=f"k{a}") for a in reduced]
    floats = "float" in dtype

    def combine(left: Sequence[Expr], right: Sequence[Expr]) -> tuple[Expr, Expr]:
        kept = tirx.any(better(left[1], right[1]), tirx.all(left[1].equal(right[1]), left[0] < right[0]))
        chosen = [tirx.Select(kept, a, b) for a, b in zip(left, right, strict=True)]
        if floats:
            # TVM turns "not at least" into "less", which does not hold for NaN either.
            number = left[1] >= tirx.const(-math.inf, dtype)
            chosen = [tirx.Select(number, a, b) for a, b in zip(chosen, left, strict=True)]
        return chosen[0], chosen[1]

    def start(place: str, value: str) -> tuple[Expr, Expr]:
        outermost = math.inf if better is _below else -math.inf
        finite = tirx.max_value(value) if better is _below else tirx.min_value(value)
        return tirx.max_value(place), tirx.const(outermost, value) if floats else finite

    reducer = te.comm_reducer(combine, start, name="first_place")
    shape = [1 if a in reduced else data.shape[a] for a in range(rank) if keep or a not in reduced]

    def element(*at: Expr) -> Any:
        left = iter([at[a] for a in range(rank) if a not in reduced] if keep else at)
        where = [walks[reduced.index(a)] if a in reduced else next(left) for a in range(rank)]
        place: Expr = tirx.const(0, "int64")
        for walk in walks:
            place = place * tirx.Cast("int64", walk.dom.extent) + tirx.Cast("int64", walk.var)
        return reducer((place, data[tuple(where)]), axis=walks)

    places, _ = te.compute(shape, element, name="place")
    return te.compute(shape, lambda *at: places[at], name="first_place")
