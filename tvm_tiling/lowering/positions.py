"""Tensors of positions: every value is checked once before any kernel uses it as an address.

Operators that gather, scatter or reverse elements read positions from a file or a caller. A separate kernel reads them
(they are few compared to the data), counts negative ones from the end if the operator does, and refuses those outside
the range. Constants are checked when the model is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..errors import ModelFormatError
from ..refusal import REFUSE, sentence
from .checked import Verdict, checked, constant_value, is_checked

Extent: TypeAlias = int | tirx.Expr
CHECKED = "tvm_tiling.positions"  # attribute of the kernel: the extents against which its values are checked


def checked_positions(
    builder: relax.BlockBuilder,
    indices: relax.Expr,
    extents: Extent | Sequence[Extent],
    operator: str,
    *,
    wraps: bool = True,
    first: int = 0,
    called: str = "index",
) -> relax.Expr:
    """Return the integer tensor `indices` as positions from 0 in axes of `extents`.

    extents: of one axis, or one for each column of the last dimension of `indices`. wraps: whether -1 is the last
    position; otherwise `first` is the smallest valid value. operator, called: the operator and the name of its values,
    for the error, which is ModelFormatError at once for a constant and WorkloadError at run time for computed values.
    """
    columns = list(extents) if isinstance(extents, Sequence) else [extents]
    columns = [int(extent) if isinstance(extent, int | tirx.IntImm) else extent for extent in columns]
    rule = _Rule(operator, called, None if wraps and str(indices.ty.dtype).startswith("int") else first)
    value = constant_value(builder, indices)
    if value is not None and all(isinstance(extent, int) for extent in columns):
        return _checked_constant(value, columns, rule)
    key = ", ".join(map(str, columns))
    if not rule.low and is_checked(builder, indices, CHECKED, key):
        return indices
    dtype = _result_type(str(indices.ty.dtype), columns)

    def check(source: te.Tensor, *sizes: Extent) -> te.Tensor:
        return _checking(source, sizes, rule, dtype)

    call = builder.call_te(check, indices, *columns, primfunc_name_hint="positions", primfunc_attrs={CHECKED: key})
    return builder.emit(call)


@dataclass(frozen=True)
class _Rule:
    """What is accepted, and how an error names it; `low` is None if negative values count from the end."""

    operator: str
    called: str
    low: int | None

    def least(self, size: Any) -> Any:
        return -size if self.low is None else self.low


def _result_type(dtype: str, extents: Sequence[Extent]) -> str:
    """Return a signed type that holds every position."""
    fits = all(isinstance(extent, int) and extent < 2**31 for extent in extents)
    return "int32" if dtype == "int32" and fits else "int64"


def _checked_constant(value: np.ndarray, extents: Sequence[int], rule: _Rule) -> relax.Expr:
    size = np.asarray(extents if len(extents) > 1 else extents[0], dtype="int64")
    low = np.asarray(rule.least(size))
    outside = (value < low) | (value >= size)
    if outside.any():
        at = tuple(int(place) for place in np.argwhere(outside)[0])
        least, last = (int(np.broadcast_to(limit, value.shape)[at]) for limit in (low, size - 1))
        raise ModelFormatError(sentence(rule.operator, rule.called, int(value[at]), least, last, at))
    dtype = _result_type(str(value.dtype), extents)
    return relax.const(np.where(value < 0, value + size, value).astype(dtype), dtype)


def _checking(source: te.Tensor, extents: Sequence[Extent], rule: _Rule, dtype: str) -> te.Tensor:
    def judge(value: Any, column: int) -> Verdict:
        value, size = _wide(value), _wide(extents[column])
        low = _wide(rule.least(size))
        return Verdict(
            is_wrong=tirx.any(value < low, value >= size),
            kept=tirx.Cast(dtype, tirx.Select(value < 0, value + size, value)),
            refusal=lambda *at: T.call_packed(REFUSE, rule.operator, rule.called, value, low, size - 1, *at),
        )

    return checked(source, len(extents), judge, dtype, "positions")


def _wide(value: Any) -> Any:
    return tirx.const(value, "int64") if isinstance(value, int) else tirx.Cast("int64", value)
