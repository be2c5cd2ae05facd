"""Taps of a window that are consecutive in memory, such as those of a window row over few channels."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import sym, tirx
from tvm.ir import TensorLoad

from ..errors import UnsupportedOperator, attempted
from ..lowering.extents import same
from ..lowering.samples import is_open
from .access import Access, at_indices, strip_cast, variables
from .padding import without_padding

SHORT = 64  # elements: longer runs of a single tap are copied as fast as runs of several


@dataclass(frozen=True)
class TapRun:
    """The innermost two reduction axes of an operand, taps and their channels, read at `load` where all `conditions`
    hold, and zero elsewhere."""

    load: TensorLoad
    conditions: tuple[tirx.Expr, ...]
    tap: tirx.Var
    channel: tirx.Var
    taps: int
    channels: int

    def is_inside(self, place: dict[tirx.Var, tirx.Expr]) -> tirx.Expr:
        """The condition that all taps are inside, at a position of the other axes: that the first and the last one are,
        because each condition bounds a tap on one side."""
        ends = [{**place, self.tap: tirx.const(tap, str(self.tap.ty))} for tap in (0, self.taps - 1)]
        return tirx.all(*(at_indices(condition, end) for condition in self.conditions for end in ends))

    def at(self, place: dict[tirx.Var, tirx.Expr], number: tirx.Expr, dtype: str) -> tirx.Expr:
        """Element `number` of the run at a position of the other axes where all taps are inside, as `dtype`."""
        here = {**place, self.tap: tirx.const(0, str(self.tap.ty)), self.channel: tirx.const(0, str(self.channel.ty))}
        *outer, last = (at_indices(index, here) for index in self.load.indices)
        value = tirx.BufferLoad(self.load.source, [*outer, last + number])
        return value if str(value.ty) == dtype else tirx.Cast(dtype, value)


def tap_run(name: str, a: Access) -> TapRun | None:
    """The run of an operand whose rows are the windows of an image of few channels; None for others."""
    summed, sizes = a.axes[2], a.extents[2]
    if isinstance(a.expr, TensorLoad) or len(summed) < 2 or any(map(is_open, sizes[-2:])):
        return None
    (tap, channel), (taps, channels) = summed[-2:], map(int, sizes[-2:])
    if taps == 1 or channels >= SHORT:
        return None
    among = {v for axis in a.axes for v in axis}
    found = attempted(without_padding, name, a.expr, among)
    if isinstance(found, UnsupportedOperator):
        return None
    load, conditions = strip_cast(found[0]), found[1]
    if not isinstance(load, TensorLoad) or len(load.source.strides) or len(load.indices) < 2:
        return None
    *outer, column, last = load.indices
    one_behind_the_other = (
        last.same_as(channel)
        and same(load.source.shape[-1], channels)
        and _step(column, tap) == 1
        and not any({tap, channel} & variables(index) for index in outer)
    )
    plain = all(isinstance(c, _ORDERS) and channel not in variables(c) and _is_linear(c, tap) for c in conditions)
    return TapRun(load, conditions, tap, channel, taps, channels) if one_behind_the_other and plain else None


_ORDERS = (tirx.LE, tirx.LT, tirx.GE, tirx.GT)


def _is_linear(condition: tirx.Expr, tap: tirx.Var) -> bool:
    return _step(condition.a - condition.b, tap) is not None


def _step(index: tirx.Expr, variable: tirx.Var) -> int | None:
    """The coefficient of the variable, if it is a constant; otherwise None."""
    parts = sym.detect_linear_equation(index, [variable])
    return int(parts[0]) if len(parts) == 2 and isinstance(parts[0], tirx.IntImm) else None
