"""Operators that read or write elements at positions given by tensors, legalised to TIR that first checks the
positions.

Constants are checked here, computed ones by a kernel at run time (lowering/positions.py). Negative positions count from
the end, as in ONNX and NumPy; `take` accepts only nonnegative positions, unless its mode defines the others. Frontends
that know an operator's name, or another rule, emit their own check before these operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import relax, sym, te, tirx, topi

from ...errors import ModelFormatError
from ...figures import quantity
from ...lowering.positions import checked_positions
from ...lowering.scatter import scattered
from .dataflow import is_op

Builder: TypeAlias = relax.BlockBuilder
Legalise: TypeAlias = Callable[[Builder, Any], relax.Expr]

# For functions whose positions were all checked in the same run: their accesses need no bounds.
CHECKED_HERE = "tvm_tiling.checked"
INSIDE = {CHECKED_HERE: True}


def _extents(tensor: relax.Expr) -> list[Any]:
    """The extents of a tensor, static ones as integers."""
    return [int(extent) if isinstance(extent, tirx.IntImm) else extent for extent in tensor.ty.shape]


def _refuse(operator: str, what: str) -> ModelFormatError:
    return ModelFormatError(f"{operator}: {what}")


# ---- reading --------------------------------------------------------------------------------------------------------


def _take(builder: Builder, call: Any) -> relax.Expr:
    data, indices, mode = call.args[0], call.args[1], str(call.attrs.mode)
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    if axis is None and len(_extents(data)) != 1:
        raise _refuse("take", f"no axis is given for {quantity(len(_extents(data)), 'dimension')}; expected an axis")
    axis = (axis or 0) % len(_extents(data))
    extent = _extents(data)[axis]
    if not isinstance(indices.ty, relax.TensorType):  # a number
        indices = _as_tensor(builder, indices)
    if mode == "fast" or extent == 0:
        indices = checked_positions(builder, indices, extent, "take", wraps=False)
        return builder.call_te(taken, data, indices, axis, primfunc_name_hint="take", primfunc_attrs=INSIDE)
    return builder.call_te(topi.take, data, indices, axis, mode=mode)


def _as_tensor(builder: Builder, number: relax.Expr) -> relax.Expr:
    """A number, constant or computed from shapes, as a scalar tensor."""
    if isinstance(number, tirx.IntImm):
        return relax.const(int(number), "int64")
    return builder.emit(
        builder.call_te(lambda value: te.compute((), lambda: tirx.Cast("int64", value), name="number"), number)
    )


def taken(data: te.Tensor, positions: te.Tensor, axis: int) -> te.Tensor:
    """Elements of `data` at positions along one axis."""
    count = len(positions.shape)

    def element(*at: Any) -> Any:
        return data(*at[:axis], positions(*at[axis : axis + count]), *at[axis + count :])

    return te.compute([*data.shape[:axis], *positions.shape, *data.shape[axis + 1 :]], element, name="take")


def _gather_elements(builder: Builder, call: Any) -> relax.Expr:
    data, indices = call.args
    axis = int(call.attrs.axis) % len(_extents(data))
    _require_smaller("gather_elements", _extents(indices), _extents(data), axis)
    positions = checked_positions(builder, indices, _extents(data)[axis], "gather_elements")

    def gather(source: te.Tensor, places: te.Tensor) -> te.Tensor:
        return te.compute(
            places.shape, lambda *at: source(*at[:axis], places(*at), *at[axis + 1 :]), name="gather_elements"
        )

    return builder.call_te(gather, data, positions, primfunc_name_hint="gather_elements", primfunc_attrs=INSIDE)


def _gather_nd(builder: Builder, call: Any) -> relax.Expr:
    data, indices = call.args
    outer, axes = int(call.attrs.batch_dims), _columns(indices)
    _require_smaller("gather_nd", _extents(indices)[:outer], _extents(data)[:outer])
    checked = checked_positions(builder, indices, _extents(data)[outer : outer + axes], "gather_nd")

    def gather(source: te.Tensor, places: te.Tensor) -> te.Tensor:
        rows = len(places.shape) - 1

        def element(*at: Any) -> Any:
            chosen = [places(*at[:rows], column) for column in range(axes)]
            return source(*at[:outer], *chosen, *at[rows:])

        return te.compute([*places.shape[:-1], *source.shape[outer + axes :]], element, name="gather_nd")

    return builder.call_te(gather, data, checked, primfunc_name_hint="gather_nd", primfunc_attrs=INSIDE)


def _index_tensor(builder: Builder, call: Any) -> relax.Expr:
    data, extents = call.args[0], _extents(call.args[0])
    fields = _fields(builder, call.args[1])
    checked = [
        checked_positions(builder, field, extent, "index_tensor")
        for field, extent in zip(fields, extents, strict=False)
    ]
    return builder.call_te(topi.index_tensor, data, checked, primfunc_attrs=INSIDE)


def _reverse_sequence(builder: Builder, call: Any) -> relax.Expr:
    data, lengths = call.args
    time, batch = int(call.attrs.seq_axis), int(call.attrs.batch_axis)
    checked = checked_positions(
        builder, lengths, _extents(data)[time] + 1, "reverse_sequence", wraps=False, called="length"
    )
    return builder.call_te(topi.reverse_sequence, data, checked, time, batch)


def _dynamic_strided_slice(builder: Builder, call: Any) -> relax.Expr:
    data, begin, end, strides = call.args
    widths = builder.emit(builder.call_te(lambda s: te.compute(s.shape, lambda i: tirx.abs(s[i])), strides))
    checked = checked_positions(
        builder, widths, 2**62, "dynamic_strided_slice", wraps=False, first=1, called="absolute stride"
    )

    def signed(step: te.Tensor, width: te.Tensor) -> te.Tensor:
        return te.compute(step.shape, lambda i: tirx.Select(step[i] < 0, -width[i], width[i]), name="strides")

    def extents(x: te.Tensor, first: te.Tensor, last: te.Tensor, steps: te.Tensor) -> te.Tensor:
        def extent(i: Any) -> Any:
            size: Any = tirx.const(0, "int64")
            for axis, own in enumerate(x.shape):
                size = tirx.Select(i == axis, tirx.Cast("int64", own), size)
            back = steps[i] < 0
            low, high = tirx.Select(back, -one, one - one), tirx.Select(back, size - 1, size)
            start, stop = (
                tirx.min(tirx.max(tirx.Select(place[i] < 0, place[i] + size, place[i]), low), high)
                for place in (first, last)
            )
            length = tirx.Select(
                back,
                tirx.ceildiv(start - stop, tirx.max(-steps[i], 1)),
                tirx.ceildiv(stop - start, tirx.max(steps[i], 1)),
            )
            return tirx.max(length, 0)

        one = tirx.const(1, "int64")
        return te.compute((first.shape[0],), extent, name="extents")

    steps = builder.emit(builder.call_te(signed, strides, checked))
    shape = builder.emit(relax.op.tensor_to_shape(builder.emit(builder.call_te(extents, data, begin, end, steps))))
    made = [tirx.Var("s", "int64") for _ in _extents(data)]
    builder.match_cast(shape, relax.ShapeType(made))
    return builder.call_te(topi.dynamic_strided_slice, data, begin, end, steps, output_shape=made)


# ---- writing --------------------------------------------------------------------------------------------------------


def _scatter_elements(builder: Builder, call: Any) -> relax.Expr:
    data, indices, updates = call.args
    axis = int(call.attrs.axis) % len(_extents(data))
    _require_smaller("scatter_elements", _extents(indices), _extents(data), axis)
    _require_smaller("scatter_elements", _extents(indices), _extents(updates))
    positions = checked_positions(builder, indices, _extents(data)[axis], "scatter_elements")
    how, apart = str(call.attrs.reduction), next((a for a in range(len(_extents(data))) if a != axis), None)

    def target(at: list[Any], places: Sequence[tirx.Buffer]) -> tuple[list[Any], list[Any]]:
        return [*at[:axis], tirx.BufferLoad(places[0], at), *at[axis + 1 :]], at

    def scatter(x: te.Tensor, place: te.Tensor, new: te.Tensor) -> te.Tensor:
        return scattered(x, [place], new, place.shape, target, how, apart)

    return builder.call_te(
        scatter, data, positions, updates, primfunc_name_hint="scatter_elements", primfunc_attrs=INSIDE
    )


def _scatter_nd(builder: Builder, call: Any) -> relax.Expr:
    data, indices, updates = call.args
    axes, rows = _columns(indices), len(_extents(indices)) - 1
    expected = [*_extents(indices)[:-1], *_extents(data)[axes:]]
    if len(expected) != len(_extents(updates)):
        raise _refuse("scatter_nd", f"updates have {len(_extents(updates))} dimensions; expected {len(expected)}")
    _require_smaller("scatter_nd", expected, _extents(updates))
    checked = checked_positions(builder, indices, _extents(data)[:axes], "scatter_nd")
    how = str(call.attrs.reduction)

    def target(at: list[Any], places: Sequence[tirx.Buffer]) -> tuple[list[Any], list[Any]]:
        chosen = [tirx.BufferLoad(places[0], [*at[:rows], column]) for column in range(axes)]
        return [*chosen, *at[rows:]], at

    def scatter(x: te.Tensor, place: te.Tensor, new: te.Tensor) -> te.Tensor:
        return scattered(x, [place], new, [*place.shape[:-1], *x.shape[axes:]], target, how)

    return builder.call_te(scatter, data, checked, updates, primfunc_name_hint="scatter_nd", primfunc_attrs=INSIDE)


def _index_put(builder: Builder, call: Any) -> relax.Expr:
    data, values, extents = call.args[0], call.args[2], _extents(call.args[0])
    fields = _fields(builder, call.args[1])
    if len(fields) != len(extents):
        raise _refuse("index_put", f"{len(fields)} index tensors are given; expected {len(extents)}, one per dimension")
    checked = [
        checked_positions(builder, field, extent, "index_put") for field, extent in zip(fields, extents, strict=True)
    ]
    how = "add" if call.attrs.accumulate else "update"
    shapes = [_fixed("index_put", tensor) for tensor in (*checked, values)]
    shape = _broadcast(shapes[:-1])
    if _broadcast([shape, shapes[-1]]) != shape:
        raise _refuse("index_put", f"values have shape {shapes[-1]}; expected a shape that broadcasts to {shape}")

    def put(x: te.Tensor, places: list[te.Tensor], new: te.Tensor) -> te.Tensor:
        def target(at: list[Any], buffers: Sequence[tirx.Buffer]) -> tuple[list[Any], list[Any]]:
            where = [tirx.BufferLoad(buffer, _aligned(at, buffer.shape)) for buffer in buffers]
            return where, _aligned(at, new.shape)

        return scattered(x, places, new, shape, target, how)

    return builder.call_te(put, data, checked, values, primfunc_name_hint="index_put", primfunc_attrs=INSIDE)


def _broadcast(shapes: Sequence[Sequence[Any]]) -> list[Any]:
    """The broadcast shape of tensors of these shapes."""
    found: list[Any] = [1] * max(len(shape) for shape in shapes)
    for shape in shapes:
        for place, extent in enumerate(shape, start=len(found) - len(shape)):
            if found[place] == 1:
                found[place] = extent
            elif extent not in (1, found[place]):
                raise _refuse("index_put", f"shapes {', '.join(map(str, shapes))} do not broadcast")
    return found


def _aligned(at: list[Any], shape: Sequence[Any]) -> list[Any]:
    """The indices into a tensor of `shape` that is broadcast to `at`."""
    last = at[len(at) - len(shape) :]
    return [0 if int(extent) == 1 else index for index, extent in zip(last, shape, strict=True)]


# ---- shapes ---------------------------------------------------------------------------------------------------------


def _fixed(operator: str, tensor: relax.Expr) -> list[int]:
    """The extents of a tensor, all of which have to be static."""
    extents = _extents(tensor)
    if not all(isinstance(extent, int) for extent in extents):
        raise _refuse(operator, f"the shape is {extents}; expected a static one")
    return extents


def _columns(indices: relax.Expr) -> int:
    """The number of positions per index: the last extent, which has to be static."""
    last = _extents(indices)[-1]
    if not isinstance(last, int):
        raise _refuse("indices", f"the last extent is {last}; expected a static one")
    return last


def _require_smaller(operator: str, shape: Sequence[Any], of: Sequence[Any], but: int | None = None) -> None:
    """Raise ModelFormatError if a tensor of `shape` has, or may have, more elements than one of shape `of` along a
    dimension other than `but`."""
    if len(shape) != len(of):
        raise _refuse(operator, f"indices have {quantity(len(shape), 'dimension')}; expected {len(of)}")
    for place, (own, most) in enumerate(zip(shape, of, strict=True)):
        fixed = isinstance(own, int) and isinstance(most, int)
        if place != but and (own > most if fixed else not sym.Analyzer().can_prove_equal(own, most)):
            known = "" if fixed else ", which is known only at run time"
            raise _refuse(
                operator, f"{own} indices along dimension {place} are too many; expected at most {most}{known}"
            )


def _fields(builder: Builder, expr: relax.Expr) -> list[relax.Expr]:
    """The tensors in a tuple."""
    bound = builder.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
    if isinstance(bound, relax.Tuple):
        return list(bound.fields)
    if isinstance(expr.ty, relax.TupleType):
        return [builder.emit(relax.TupleGetItem(expr, place)) for place in range(len(expr.ty.fields))]
    return [expr]


def refuse_impossible(mod: tvm.IRModule) -> None:
    """Raise ModelFormatError if a function requests more of the largest elements than there are: TVM would read past
    the end."""

    def visit(call: relax.Expr) -> None:
        if not is_op(call, "topk"):
            return
        extent, k = _extents(call.args[0])[int(call.attrs.axis)], int(call.attrs.k)
        if isinstance(extent, int) and k > extent:
            raise _refuse("topk", f"k is {k}; expected at most {extent}")

    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, visit)


LEGALISED: dict[str, Legalise] = {
    "relax.dynamic_strided_slice": _dynamic_strided_slice,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.index_put": _index_put,
    "relax.index_tensor": _index_tensor,
    "relax.reverse_sequence": _reverse_sequence,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    "relax.take": _take,
}
