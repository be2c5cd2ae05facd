"""Padding of tensors, and dilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi
from tvm.relax import op

from ....figures import quantity
from ...open_shapes import plus
from ..operands import Operands, Value, dtype_of, is_integer, numbers, rank_of, value_of


def pad_width(call: Operands, rank: int) -> list[tuple[int, int]]:
    """Elements before and after each dimension. Raises ValueError."""
    given = call["pad_width"]
    widths = [tuple(numbers(pair)) for pair in given] if isinstance(given, list) else []
    if len(widths) != rank or not all(len(pair) == 2 for pair in widths):
        raise ValueError(f"pad_width has {quantity(len(widths), 'pair')}; expected {rank}, one per dimension")
    return [(before, behind) for before, behind in widths]


def _pad(call: Operands) -> Value:
    x = call.tensor(0)
    widths = pad_width(call, rank_of(x))
    mode = call["pad_mode"]
    _require_room(call, x, widths, 1 if mode == "reflect" else None)
    if mode in _PLACES:
        return call.te(lambda held: bordered(held, widths, _PLACES[mode]), x)
    if mode != "constant":
        raise ValueError(f"pad_mode = {mode!r}; expected constant, {', '.join(_PLACES)}")
    # The value was an attribute until 0.7; since 0.8 it is an operand.
    if len(call.args) < 2:
        return constant_border(call, x, widths, call["pad_value"])
    value = value_of(call.tensor(1))
    if value is None:
        return call.te(_bordered_by, x, call.tensor(1), widths)
    return constant_border(call, x, widths, value.reshape(-1)[0])


def _require_room(call: Operands, x: relax.Expr, widths: list[tuple[int, int]], kept: int | None) -> None:
    """Require, by ValueError or a guard, that padding does not crop more than the extent, and mirrors at most the
    extent less `kept`; None: it mirrors nothing."""
    for extent, pair in zip(call.extents(x), widths, strict=True):
        call.shapes.require_at_least(plus(extent, *pair), 0)
        if kept is not None:
            for width in pair:
                call.shapes.require_at_least(plus(extent, -kept), width)


def constant_border(call: Operands, x: relax.Expr, widths: list[tuple[int, int]], value: Any) -> relax.Expr:
    """`x` padded with one known value."""
    number = int(value) if is_integer(x) or dtype_of(x) == "bool" else float(value)
    if min(min(pair) for pair in widths) < 0 or not np.isfinite(number) or dtype_of(x) == "bool":
        return call.te(_bordered_by, x, relax.const(np.array(number, dtype_of(x)), dtype_of(x)), widths)
    return op.nn.pad(x, [width for pair in widths for width in pair], "constant", number)


def _bordered_by(x: te.Tensor, value: te.Tensor, widths: list[tuple[int, int]]) -> te.Tensor:
    """`x` padded with a value known at run time; negative padding crops."""
    shape = [extent + before + behind for extent, (before, behind) in zip(x.shape, widths, strict=True)]
    fill = value if not value.shape else te.compute((), lambda: value[tuple(0 for _ in value.shape)], name="fill")

    def element(*at: Any) -> tirx.PrimExpr:
        places = [place - before for place, (before, _) in zip(at, widths, strict=True)]
        inside = [tirx.all(place >= 0, place < extent) for place, extent in zip(places, x.shape, strict=True)]
        return tirx.if_then_else(tirx.all(*inside), x[tuple(places)], fill[()])

    return te.compute(shape, element, name="bordered")


def bordered(x: te.Tensor, widths: list[tuple[int, int]], source: Callable[[Any, Any], Any]) -> te.Tensor:
    """`x` padded with its own elements; `source` maps a position and an extent to their position."""
    shape = [extent + before + behind for extent, (before, behind) in zip(x.shape, widths, strict=True)]

    def element(*at: Any) -> tirx.PrimExpr:
        places = [
            source(place - before, extent) if before or behind else place
            for place, extent, (before, behind) in zip(at, x.shape, widths, strict=True)
        ]
        return x[tuple(places)]

    return te.compute(shape, element, name="bordered")


def _edge(place: Any, extent: Any) -> Any:
    return tirx.max(tirx.min(place, extent - 1), 0)


def _reflected(place: Any, extent: Any) -> Any:
    """Reflect at the outermost element, which is not repeated."""
    low = tirx.if_then_else(place < 0, -place, place)
    return tirx.if_then_else(low > extent - 1, 2 * (extent - 1) - low, low)


def _symmetric(place: Any, extent: Any) -> Any:
    """Reflect at the edge, so that the outermost element is repeated."""
    low = tirx.if_then_else(place < 0, -place - 1, place)
    return tirx.if_then_else(low > extent - 1, 2 * extent - 1 - low, low)


_PLACES = {"edge": _edge, "reflect": _reflected}


def _mirror_pad(call: Operands) -> Value:
    x = call.tensor(0)
    sources = {"SYMMETRIC": _symmetric, "REFLECT": _reflected}
    if call["mode"] not in sources:
        raise ValueError(f"mode = {call['mode']!r}; expected {', '.join(sources)}")
    widths = pad_width(call, rank_of(x))
    _require_room(call, x, widths, 1 if call["mode"] == "REFLECT" else 0)
    return call.te(lambda held: bordered(held, widths, sources[call["mode"]]), x)


def _dilate(call: Operands) -> Value:
    x = call.tensor(0)
    return call.te(topi.nn.dilate, x, call.dims("strides", rank_of(x)), call["dilation_value"])


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "nn.dilate": _dilate,
    "nn.mirror_pad": _mirror_pad,
    "nn.pad": _pad,
}
