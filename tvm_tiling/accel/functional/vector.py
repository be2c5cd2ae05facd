"""ALU: the functions of the vector engine, element by element and as reductions (page 06).

Integers are computed exactly and saturate once, when they become elements of c; floats are computed in float32 and
rounded once. The sums of a reduction are kept as exactly until its end. Division of integers drops the fraction.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...errors import SimulationError
from ..program.elements import BOUNDS, is_integer, narrowed, widened
from ..program.isa import ElementType, Function

_BINARY: dict[int, np.ufunc] = {
    Function.ADD: np.add,
    Function.SUB: np.subtract,
    Function.MUL: np.multiply,
    Function.MAX: np.maximum,
    Function.MIN: np.minimum,
}
# In float64 and rounded, so that the library's float32 variants for different processors make no difference.
_SMOOTH: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    Function.SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
    Function.TANH: np.tanh,
    Function.EXP: np.exp,
    Function.SQRT: np.sqrt,
}


def apply(
    function: int, a: np.ndarray, b: np.ndarray | float | None, kinds: tuple[int, int], immediate: Sequence[float]
) -> np.ndarray:
    """function(a, b) as stored elements of kinds[1]; `a` and an array `b` are stored elements of kinds[0].

    A number `b` is taken as an element of a's type. SimulationError for a function that this type does not have.
    """
    kind, result = kinds
    if function == Function.COPY and kind == result:
        return a
    if function in (Function.SIGMOID, Function.TANH) and kind == ElementType.INT16:
        if immediate[0] not in range(16):
            raise SimulationError(
                f"{Function(function).name} with {immediate[0]:g} fraction bits, accepted: a whole number from 0 to 15"
            )
        return narrowed(_table(function, int(immediate[0]))[a.astype(np.int64) + (1 << 15)], result)
    x = widened(a, kind)
    with np.errstate(all="ignore"):
        if function in _BINARY:
            values = _BINARY[function](x, _second(b, kind))
        elif function == Function.RELU:
            values = np.maximum(x, 0)
        elif function == Function.CLIP:
            values = np.minimum(np.maximum(x, _second(immediate[0], kind)), _second(immediate[1], kind))
        elif function == Function.COPY:
            values = x
        elif function == Function.DIV:
            values = _divided(x, _second(b, kind))
        elif function == Function.SHIFT and is_integer(kind):
            values = _shifted(x, _second(b, kind))
        elif function == Function.SCALE:
            values = np.rint(x.astype(np.float64) * immediate[0]) + immediate[1]
        elif function in _SMOOTH and not is_integer(kind):
            values = _SMOOTH[function](x.astype(np.float64)).astype(np.float32)
        else:
            raise SimulationError(
                f"{Function(function).name} of {ElementType(kind).name.lower()}, accepted: "
                + ("whole numbers" if function == Function.SHIFT else "floats")
            )
    return narrowed(values, result)


def reduce(function: int, a: np.ndarray, c: np.ndarray, axes: tuple[int, ...], kinds: tuple[int, int]) -> np.ndarray:
    """c = function(c, a) again and again along `axes` of a[d0, d1, d2, d3], as stored elements of kinds[1].

    `c` has those axes once round. Floats are added in the order of the loops. SimulationError for a function that does
    not reduce.
    """
    if function not in _BINARY:
        raise SimulationError(
            f"{Function(function).name} as a reduction, accepted: {', '.join(Function(f).name for f in _BINARY)}"
        )
    kind, result = kinds
    x, start = widened(a, kind), widened(c, result)
    if is_integer(kind) != is_integer(result):
        x, start = x.astype(np.float32), start.astype(np.float32)
    kept = [axis for axis in range(a.ndim) if axis not in axes]
    steps = x.transpose(*axes, *kept).reshape(-1, *(x.shape[axis] for axis in kept))
    first = start.reshape(1, *steps.shape[1:])
    with np.errstate(all="ignore"):
        if function == Function.MUL and is_integer(result):
            values = _saturating_product(first[0], steps, result)
        else:
            # accumulate goes step by step, where reduce would add floats pairwise.
            values = _BINARY[function].accumulate(np.concatenate([first, steps]), axis=0)[-1]
    return narrowed(values.reshape(c.shape), result)


def _second(b: np.ndarray | float | None, kind: int) -> np.ndarray:
    """The second operand in the type that is computed in."""
    return widened(b, kind) if isinstance(b, np.ndarray) else _number(math.nan if b is None else b, kind)


@functools.lru_cache(maxsize=1 << 12)
def _number(value: float, kind: int) -> np.ndarray:
    """An immediate as an element of that type."""
    return np.asarray(widened(narrowed(np.float64(value).reshape(()), kind), kind))


def _shifted(x: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """floor(x / 2^bits + 1/2). More than 31 to the left is as good as 31, and as 40 to the right."""
    if bits.ndim == 0:
        by = min(max(int(bits), -31), 40)
        return x << -by if by <= 0 else (x + (1 << (by - 1))) >> by
    bits = np.clip(bits, -31, 40)
    right, left = np.maximum(bits, 0), np.maximum(-bits, 0)
    half = np.where(right > 0, np.left_shift(np.int64(1), np.maximum(right - 1, 0)), 0)
    return np.left_shift(np.right_shift(x + half, right), left)


def _divided(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return x / by
    if not np.all(by):
        raise SimulationError("DIV of a whole number by 0")
    return np.sign(x) * np.sign(by) * (np.abs(x) // np.abs(by))


def _saturating_product(start: np.ndarray, steps: np.ndarray, kind: int) -> np.ndarray:
    """Products of integers saturate step by step, as 64 bits hold no more than two factors."""
    low, high = BOUNDS[kind]
    for step in steps:
        start = np.clip(start * step, low, high)
    return start


@functools.lru_cache(maxsize=32)
def _table(function: int, fraction: int) -> np.ndarray:
    """The value of a function at every 16-bit number with so many fraction bits, in that format, -2^15 first."""
    x = np.arange(-(1 << 15), 1 << 15)
    unit = float(1 << fraction)
    with np.errstate(over="ignore"):
        return np.clip(np.rint(_SMOOTH[function](x / unit) * unit), *BOUNDS[ElementType.INT16]).astype(np.int64)
