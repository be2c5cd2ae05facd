"""ALU: functions of the vector engine, element-wise and as reductions.

    ALU           c = function(a, b) over d0..d3; b is the number immediate[0] where the flag IMMEDIATE is set. A loop
                  whose stride in c is 0 reduces: c = function(c, a), c being read first

The functions have their own table (hardware/vector_functions.py). A reduction accumulates exactly until its end, and
floats are added in loop order. Converting a float to an integer truncates and saturates.

It takes ceil(elements / lanes) times the cycles of the function, at least the issue interval of the engine; the result
is available after its latency, and an instruction that reads it waits until then. In the tail of a column engine
without `tail_lanes` it takes no cycles of its own: the latency of COLMV includes them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import SimulationError
from ...hardware.machine import Machine
from ...hardware.vector_functions import FIXED, FLOATS, INTEGERS, Function, VectorFunction
from ..program.elements import BOUNDS, is_integer, narrowed, saturated, widened
from ..program.isa import ElementType
from .row import ELEMENTS, Batch, Cycles, How, Instruction


def compute(a: np.ndarray, b: np.ndarray, c: np.ndarray, how: How) -> None:
    """Compute c = function(a, b), or c = function(c, a) along the loops with stride 0 in c."""
    if how.reads_c:
        axes = tuple(axis for axis in ELEMENTS if c.strides[axis] == 0 and c.shape[axis] > 1)
        c = c[tuple(slice(1) if axis in axes else slice(None) for axis in ELEMENTS)]
        c[...] = reduce(how.function, a, c, axes, how.kinds)
    else:
        c[...] = apply(how.function, a, b if how.reads_b else how.immediate[0], how.kinds, how.immediate)


def apply(
    function: VectorFunction,
    a: np.ndarray,
    b: np.ndarray | float | None,
    kinds: tuple[int, int],
    immediate: Sequence[float],
) -> np.ndarray:
    """Return function(a, b) as elements of kinds[1] or as integers within its bounds; `a` and an array `b` are stored
    elements of kinds[0].

    A scalar `b` is converted to the type of a. Floats may overflow; the caller silences the NumPy warning
    (np.errstate). SimulationError for a function that does not support the type.
    """
    kind, result = kinds
    computes = function.computes
    if computes is None:
        return a if kind == result else _as_result(widened(a, kind), result)
    if (INTEGERS if is_integer(kind) else FLOATS) not in function.types:
        if FIXED not in function.types or kind != ElementType.INT16:
            raise SimulationError(
                f"{function.name.upper()} of {ElementType(kind).name.lower()} is not supported; expected "
                f"{function.types[0]}"
            )
        if immediate[0] not in range(16):
            raise SimulationError(
                f"{function.name.upper()} has {immediate[0]:g} fraction bits; expected a whole number from 0 to 15"
            )
        assert callable(computes)
        return _as_result(_table(computes, int(immediate[0]))[a.astype(np.int64) + (1 << 15)], result)
    if isinstance(computes, str) and is_integer(kind):
        # In the type of the operands if it holds every result, else in 64 bits, widened during the computation.
        wide = None if function.selects else np.int64
        return _as_result(getattr(np, computes)(a, _second(b, kind), dtype=wide), result)
    x = widened(a, kind)
    if isinstance(computes, str):
        values = getattr(np, computes)(x, widened(_second(b, kind), kind))
    elif function.operands == 2:
        values = computes(np, x, widened(_second(b, kind), kind))
    elif function.immediates == "elements":
        values = computes(np, x, *(widened(_number(number, kind), kind) for number in immediate))
    elif function.immediates == "reals":
        values = computes(np, x, *immediate)
    elif INTEGERS in function.types:
        values = computes(np, x)
    else:
        values = computes(np, x.astype(np.float64)).astype(np.float32)
    return _as_result(values, result)


def _as_result(values: np.ndarray, kind: int) -> np.ndarray:
    """Convert computed values so that they can be assigned to stored elements."""
    return saturated(values, kind) if is_integer(kind) else narrowed(values, kind)


def reduce(
    function: VectorFunction, a: np.ndarray, c: np.ndarray, axes: tuple[int, ...], kinds: tuple[int, int]
) -> np.ndarray:
    """Reduce with c = function(c, a) along `axes` of a[d0, d1, d2, d3]; return stored elements of kinds[1].

    `c` has extent 1 along those axes. Floats are added in loop order. SimulationError for a function that cannot
    reduce.
    """
    if not isinstance(function.computes, str):
        raise SimulationError(
            f"{function.name.upper()} cannot reduce; expected "
            f"{', '.join(row.name.upper() for row in Function if row.reduces)}"
        )
    kind, result = kinds
    x, start = widened(a, kind), widened(c, result)
    if is_integer(kind) != is_integer(result):
        x, start = x.astype(np.float32), start.astype(np.float32)
    kept = [axis for axis in range(a.ndim) if axis not in axes]
    steps = x.transpose(*axes, *kept).reshape(-1, *(x.shape[axis] for axis in kept))
    first = start.reshape(1, *steps.shape[1:])
    ufunc = getattr(np, function.computes)
    if function.saturates and is_integer(result):
        low, high = BOUNDS[result]
        values = functools.reduce(lambda so_far, step: np.clip(ufunc(so_far, step), low, high), steps, first[0])
    else:
        # accumulate proceeds step by step; reduce would add floats pairwise.
        values = ufunc.accumulate(np.concatenate([first, steps]), axis=0)[-1]
    return narrowed(values.reshape(c.shape), result)


def _second(b: np.ndarray | float | None, kind: int) -> np.ndarray:
    """Return the second operand as stored elements."""
    return b if isinstance(b, np.ndarray) else _number(math.nan if b is None else b, kind)


@functools.lru_cache(maxsize=1 << 12)
def _number(value: float, kind: int) -> np.ndarray:
    """Return an immediate as a stored element of the given type."""
    return np.asarray(narrowed(np.float64(value).reshape(()), kind))


@functools.lru_cache(maxsize=32)
def _table(computes: Callable[..., Any], fraction: int) -> np.ndarray:
    """Return a function evaluated at every 16-bit fixed-point number with `fraction` fraction bits, in that format,
    from -2^15."""
    x = np.arange(-(1 << 15), 1 << 15)
    unit = float(1 << fraction)
    with np.errstate(over="ignore"):
        return np.clip(np.rint(computes(np, x / unit) * unit), *BOUNDS[ElementType.INT16]).astype(np.int64)


def _cycles(batch: Batch, machine: Machine) -> Cycles:
    if machine.vector_is_tail:
        return 0, 0
    unit = machine.vector
    return np.maximum(-(-batch.elements // unit.lanes) * batch.function.cycles, unit.interval), unit.latency


ALU = Instruction(
    7,
    "ALU",
    {"a": ELEMENTS, "b": ELEMENTS, "c": ELEMENTS},
    compute,
    work="elements",
    unit="vector",
    cycles=_cycles,
    takes_function=True,
)
