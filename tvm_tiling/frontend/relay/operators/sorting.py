"""Order: sorted elements, their places, and the largest ones."""

from __future__ import annotations

from collections.abc import Callable

from tvm.relax import op

from ..operands import Operands, Value, axis_in, numbers, shape_of


def _sort(call: Operands) -> Value:
    x = call.tensor(0)
    return op.sort(x, axis=axis_in(call["axis"], len(shape_of(x))), descending=not call["is_ascend"])


def _argsort(call: Operands) -> Value:
    x = call.tensor(0)
    axis = axis_in(call["axis"], len(shape_of(x)))
    return op.argsort(x, axis=axis, descending=not call["is_ascend"], dtype=str(call["dtype"] or "int32"))


def _topk(call: Operands) -> Value:
    x = call.tensor(0)
    shape = shape_of(x)
    axis = axis_in(call["axis"], len(shape))
    k = int(call.known(1, "k").item()) if len(call.args) > 1 else numbers(call["k"])[0]
    kinds = ("both", "values", "indices")
    if call["ret_type"] not in kinds:
        raise ValueError(f"ret_type = {call['ret_type']!r}; accepted: {', '.join(kinds)}")
    return op.topk(
        x,
        k=k if 0 < k <= shape[axis] else shape[axis],
        axis=axis,
        ret_type=str(call["ret_type"]),
        largest=not call["is_ascend"],
        dtype=str(call["dtype"] or "int32"),
    )


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "argsort": _argsort,
    "dyn.topk": _topk,
    "sort": _sort,
    "topk": _topk,
}
