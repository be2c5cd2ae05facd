"""Recognition of blocks that reduce elements of a buffer by +, max or min from a constant."""

from __future__ import annotations

from typing import NamedTuple

from tvm import DataType, tirx
from tvm.ir import TensorLoad

from .access import strip_cast

_NAMES = {tirx.Add: "add", tirx.Max: "max", tirx.Min: "min"}


class Reduction(NamedTuple):
    """result = function(result, element), starting at `start`; `function` is "add", "max" or "min"."""

    function: str
    element: TensorLoad
    start: float


def reduction_of(init: tirx.Stmt | None, store: tirx.Stmt) -> Reduction | None:
    """The reduction in a block's statements, with or without a cast of elements to the result type; None for anything
    else, and for integer sums of fewer than 32 bits, which wrap around where other implementations saturate."""
    if not isinstance(init, tirx.BufferStore) or not isinstance(store, tirx.BufferStore):
        return None
    function, start = _NAMES.get(type(store.value)), getattr(init.value, "value", None)
    kind = DataType(str(store.buffer.dtype))
    if function is None or not isinstance(start, int | float):
        return None
    if function == "add" and "int" in str(kind) and kind.bits < 32:
        return None
    terms = [strip_cast(term) for term in (store.value.a, store.value.b)]
    others = [term for term in terms if not (isinstance(term, TensorLoad) and term.source.same_as(store.buffer))]
    if len(others) != 1 or not isinstance(others[0], TensorLoad):
        return None
    return Reduction(function, others[0], float(start))
