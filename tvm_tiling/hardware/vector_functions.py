"""Table of the functions of vector engines: names in machine descriptions, semantics and cost.

Integers are computed exactly and saturate once, when converted to elements of the result; floats are computed in
float32 and rounded once. A function without an integer version is computed in float64 and rounded to float32, so that
differences between processors' float32 implementations do not matter.

NumPy is passed as an argument to what a row computes: a machine description names functions and does not need NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import SimulationError
from .numbered import Row, Table

INTEGERS, FLOATS, FIXED = "whole numbers", "floats", "16-bit fixed point"


@dataclass(frozen=True, eq=False)
class VectorFunction(Row):
    """A function of a vector engine.

    `number` in programs and `name` in descriptions and text. `operands`: 1 (a) or 2 (a and b, which may be an
    immediate). `computes`: None returns a itself; the name of a binary NumPy ufunc, which can also reduce; or a
    function of NumPy, a as int64 or float32, then b or, as `immediates` says, the two immediate numbers: as elements of
    a's type ("elements") or unconverted ("reals"). `types` of a: INTEGERS, FLOATS, and FIXED for int16 by a table with
    immediate[0] fraction bits. `saturates`: an integer reduction saturates after every step, because 64 bits would
    overflow otherwise. `selects`: the result is one of the operands. `cycles` that an engine takes for as many elements
    as it has lanes.
    """

    operands: int = 1
    computes: Callable[..., Any] | str | None = None
    immediates: Literal["", "elements", "reals"] = ""
    types: tuple[str, ...] = (INTEGERS, FLOATS)
    saturates: bool = False
    selects: bool = False
    cycles: int = 1

    @property
    def reduces(self) -> bool:
        """Whether it can reduce along a loop."""
        return isinstance(self.computes, str)


def _shifted(np: Any, x: Any, bits: Any) -> Any:
    """Return floor(x / 2^bits + 1/2). Left shifts beyond 31 bits equal 31, right shifts beyond 40 equal 40."""
    if bits.ndim == 0:
        by = min(max(int(bits), -31), 40)
        return x << -by if by <= 0 else (x + (1 << (by - 1))) >> by
    bits = np.clip(bits, -31, 40)
    right, left = np.maximum(bits, 0), np.maximum(-bits, 0)
    half = np.where(right > 0, np.left_shift(np.int64(1), np.maximum(right - 1, 0)), 0)
    return np.left_shift(np.right_shift(x + half, right), left)


def _divided(np: Any, x: Any, by: Any) -> Any:
    """Return x / by, truncated for integers. SimulationError for an integer 0."""
    if x.dtype.kind == "f":
        return x / by
    if not np.all(by):
        raise SimulationError("DIV of an integer by 0")
    return np.sign(x) * np.sign(by) * (np.abs(x) // np.abs(by))


def _clipped(np: Any, x: Any, low: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _scaled(np: Any, x: Any, factor: float, offset: float) -> Any:
    """Requantise in one step, like ONNX's QuantizeLinear: round(x * factor), ties to even, + offset."""
    return np.rint(x.astype(np.float64) * factor) + offset


SMOOTH = (FLOATS, FIXED)

Function: Table[VectorFunction] = Table(
    (
        VectorFunction(0, "copy"),
        VectorFunction(1, "add", 2, "add"),
        VectorFunction(2, "sub", 2, "subtract"),
        VectorFunction(3, "mul", 2, "multiply", saturates=True),
        VectorFunction(4, "max", 2, "maximum", selects=True),
        VectorFunction(5, "min", 2, "minimum", selects=True),
        # Right by b, left if b is negative; ties are rounded up.
        VectorFunction(6, "shift", 2, _shifted, types=(INTEGERS,)),
        VectorFunction(7, "clip", 1, _clipped, immediates="elements"),
        VectorFunction(8, "relu", 1, lambda np, x: np.maximum(x, 0)),
        VectorFunction(9, "sigmoid", 1, lambda np, x: 1 / (1 + np.exp(-x)), types=SMOOTH),
        VectorFunction(10, "tanh", 1, lambda np, x: np.tanh(x), types=SMOOTH),
        VectorFunction(11, "scale", 1, _scaled, immediates="reals"),
        VectorFunction(12, "div", 2, _divided),
        VectorFunction(13, "exp", 1, lambda np, x: np.exp(x), types=(FLOATS,)),
        VectorFunction(14, "sqrt", 1, lambda np, x: np.sqrt(x), types=(FLOATS,)),
    )
)
"""All vector functions, by number and by name."""
