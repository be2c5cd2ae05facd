"""Operators that read or write elements at positions given by other tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx, topi
from tvm.relax import op

from ...open_shapes import Size
from ..operands import (
    OpenOperand,
    Operands,
    Value,
    axis_in,
    bounded,
    constant,
    dtype_of,
    numbers,
    rank_of,
    shape_of,
    value_of,
)

_TAKE_MODES = ("clip", "wrap", "fast")


def _take(call: Operands) -> Value:
    x, indices, axis = call.tensor(0), call.tensor(1), call["axis"]
    if call["mode"] not in _TAKE_MODES:
        raise ValueError(f"mode = {call['mode']!r}; expected {', '.join(_TAKE_MODES)}")
    if axis is None:
        x, axis = call.emit(op.reshape(x, [-1])), 0
    rank = rank_of(x)
    batch = int(call["batch_dims"] or 0)
    if batch:
        shape_of(x)
        batch = axis_in(batch, rank_of(indices), 1)
        return call.te(topi.take, x, indices, axis_in(axis, rank), batch, str(call["mode"]))
    return op.take(x, indices, axis_in(axis, rank), mode=str(call["mode"]))


def _gather(call: Operands) -> Value:
    x = call.tensor(0)
    axis = axis_in(call["axis"], rank_of(x))
    return op.gather_elements(x, call.positions(call.tensor(1), call.extents(x)[axis]), axis)


def _places_last(call: Operands, indices: Value, extents: list[Size]) -> Value:
    """Indices whose first axis has one entry per axis of `extents`: range-checked, with that axis moved last."""
    known, rank = value_of(indices), rank_of(indices)
    if known is not None:
        return call.positions(constant(np.moveaxis(known, 0, -1), "int64"), extents)
    moved = call.emit(op.permute_dims(indices, [*range(1, rank), 0])) if rank > 1 else indices
    # the type that Relax's operators require
    wide = moved if dtype_of(moved) == "int64" else call.emit(op.astype(moved, "int64"))
    return call.positions(wide, extents)


def _columns(call: Operands, indices: Value) -> int:
    """The number of dimensions that indices address, which is their first extent."""
    count = call.extents(indices)[0]
    if not isinstance(count, int):
        raise OpenOperand("indices for a dynamic number of dimensions")
    return count


def _gather_nd(call: Operands) -> Value:
    x, indices, outer = call.tensor(0), call.tensor(1), int(call["batch_dims"] or 0)
    extents = call.extents(x)[outer : outer + _columns(call, indices)]
    return op.gather_nd(x, _places_last(call, indices, extents), outer)


def _scatter(reduction: str | None) -> Callable[[Operands], Value]:
    """Write or combine elements at positions along one axis. Two separate operators until 0.11."""

    def convert(call: Operands) -> Value:
        x, indices, updates = call.tensor(0), call.tensor(1), call.tensor(2)
        how = reduction or str(call["reduction"])
        axis = axis_in(call["axis"] if call["axis"] is not None else 0, rank_of(x))
        return op.scatter_elements(x, call.positions(indices, call.extents(x)[axis]), updates, axis, how)

    return convert


def _scatter_nd(call: Operands) -> Value:
    x, indices, updates = call.tensor(0), call.tensor(1), call.tensor(2)
    places = _places_last(call, indices, call.extents(x)[: _columns(call, indices)])
    return op.scatter_nd(x, places, updates, str(call["mode"]))


def _adv_index(call: Operands) -> Value:
    x, *indices = call.tensors(0)
    extents = shape_of(x)
    if len(indices) > len(extents):
        raise ValueError(f"{len(indices)} index tensors are too many; expected up to {len(extents)}, one per dimension")
    checked = [call.positions(index, extent) for index, extent in zip(indices, extents, strict=False)]
    return call.te(topi.adv_index, x, checked)


def _unravel_index(call: Operands) -> Value:
    indices = call.tensor(0)
    extents = [int(extent) for extent in call.known(1, "the shape").reshape(-1)]
    rows, rest = [], indices
    for extent in reversed(extents):
        size = constant(extent, dtype_of(indices))
        rows.append(call.emit(op.floor_mod(rest, size)))
        rest = call.emit(op.floor_divide(rest, size))
    apart = [1, *shape_of(indices)]
    return op.concat([call.emit(op.reshape(row, apart)) for row in reversed(rows)], 0)


def _invert_permutation(call: Operands) -> Value:
    places = call.tensor(0)
    bounded(math.prod(shape_of(places)), "places")
    zeros = constant(np.zeros(shape_of(places)), dtype_of(places))
    counted = constant(np.arange(shape_of(places)[0]), dtype_of(places))
    return op.scatter_elements(zeros, call.positions(places, shape_of(places)[0], wraps=False), counted, 0, "update")


def _sparse_to_dense(call: Operands) -> Value:
    places, values, default = call.tensor(0), call.tensor(1), call.tensor(2)
    return call.te(_dense, places, values, default, numbers(call["output_shape"]))


def _dense(places: te.Tensor, values: te.Tensor, default: te.Tensor, shape: list[int]) -> te.Tensor:
    """A tensor of `default` with `values` at `places`; of several values at one position, the last one counts."""
    rank = len(places.shape)
    count = 1 if rank == 0 else int(places.shape[0])
    fill = default[tuple(0 for _ in default.shape)]

    def element(*at: Any) -> tirx.PrimExpr:
        result = fill
        for number in range(count):
            value = values[number] if values.shape else values[()]
            axes = [places[()]] if rank == 0 else [places[number]] if rank == 1 else None
            wanted = axes if axes is not None else [places[number, axis] for axis in range(len(shape))]
            here = [place == where for place, where in zip(at, wanted, strict=True)]
            result = tirx.if_then_else(tirx.all(*here), value, result)
        return result

    return te.compute(shape, element, name="dense")


def _matrix_set_diag(call: Operands) -> Value:
    sides = ["RIGHT" if call[f"{side}_diag_right_align"] else "LEFT" for side in ("super", "sub")]
    span = (int(call["k1"]), int(call["k2"]))
    return call.te(topi.matrix_set_diag, call.tensor(0), call.tensor(1), span, "_".join(sides))


def _trilu(call: Operands) -> Value:
    away = int(call.known(1, "the diagonal").item())
    return (op.triu if call["upper"] else op.tril)(call.tensor(0), away)


def _searchsorted(call: Operands) -> Value:
    dtype = str(call["dtype"] or "int32")
    return call.te(topi.searchsorted, call.tensor(0), call.tensor(1), bool(call["right"]), dtype)


def _einsum(call: Operands) -> Value:
    parts = call.tensors(0)
    return call.te(lambda *tensors: topi.einsum(str(call["equation"]), *tensors), *parts)


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "adv_index": _adv_index,
    "einsum": _einsum,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "invert_permutation": _invert_permutation,
    "matrix_set_diag": _matrix_set_diag,
    "scatter": _scatter("update"),
    "scatter_add": _scatter("add"),
    "scatter_elements": _scatter(None),
    "scatter_nd": _scatter_nd,
    "searchsorted": _searchsorted,
    "sparse_to_dense": _sparse_to_dense,
    "take": _take,
    "trilu": _trilu,
    "unravel_index": _unravel_index,
}
