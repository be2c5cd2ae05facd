"""Elements as NumPy holds them: how each type is stored, widened to compute with, and narrowed again (page 06).

bfloat16 is kept as the upper half of a float32 in 16 unsigned bits, so that no package beyond NumPy is needed. Integers
saturate when they are narrowed, floats round to nearest, ties to even.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .isa import ElementType

STORED: dict[int, np.dtype[Any]] = {
    ElementType.INT8: np.dtype(np.int8),
    ElementType.INT16: np.dtype(np.int16),
    ElementType.INT32: np.dtype(np.int32),
    ElementType.FLOAT32: np.dtype(np.float32),
    ElementType.BFLOAT16: np.dtype(np.uint16),
    ElementType.UINT8: np.dtype(np.uint8),
    ElementType.FLOAT16: np.dtype(np.float16),
}
"""The type in which the elements of each ElementType lie in a memory."""

_INTEGERS = (ElementType.INT8, ElementType.INT16, ElementType.INT32, ElementType.UINT8)
BOUNDS: dict[int, tuple[int, int]] = {
    kind: (int(np.iinfo(STORED[kind]).min), int(np.iinfo(STORED[kind]).max)) for kind in _INTEGERS
}
"""Least and greatest value of each integer type; floats are not in it."""


def is_integer(kind: int) -> bool:
    return kind in BOUNDS


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 values as the 16 bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = values.astype(np.float32, copy=False).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    quiet = (bits >> 16) | np.uint32(0x40)
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """The values of bfloat16 bits as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def as_float32(stored: np.ndarray, kind: int) -> np.ndarray:
    """Elements of any type as float32 (a copy): exact but for int32 beyond 24 bits, which rounds."""
    return from_bfloat16(stored) if kind == ElementType.BFLOAT16 else stored.astype(np.float32)


def widened(stored: np.ndarray, kind: int) -> np.ndarray:
    """Elements in the type that functions compute in: int64 or float32; may be `stored` itself."""
    if is_integer(kind):
        return stored.astype(np.int64)
    return from_bfloat16(stored) if kind == ElementType.BFLOAT16 else stored.astype(np.float32, copy=False)


def narrowed(values: np.ndarray, kind: int) -> np.ndarray:
    """Computed values (integers or floats) as stored elements of `kind`.

    Integers saturate. A float becomes an integer as in C, its fraction dropped, but saturates too; a NaN becomes 0. An
    integer becomes a float by way of float32.
    """
    if is_integer(kind):
        return saturated(values, kind).astype(STORED[kind], copy=False)
    if kind == ElementType.BFLOAT16:
        return to_bfloat16(values.astype(np.float32, copy=False))
    with np.errstate(over="ignore"):  # beyond the greatest float16 lies infinity
        return values.astype(STORED[kind], copy=False)


def saturated(values: np.ndarray, kind: int) -> np.ndarray:
    """Values (integers or floats) within the bounds of an integer `kind`, not yet of its type; may be `values`."""
    if values.dtype.kind == "f":
        # float32 does not hold the greatest int32, float64 holds all.
        low, high = BOUNDS[kind]
        values = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=high, neginf=low)
    limits = _limits(kind, values.dtype)
    return values if limits is None else values.clip(*limits)


@functools.cache
def _limits(kind: int, held: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """BOUNDS[kind] as arrays of the type `held`, which clip takes in half the time that numbers cost; None where all
    that it holds lies within."""
    if np.can_cast(held, STORED[kind]):
        return None
    low, high = BOUNDS[kind]
    if held.kind != "f":
        low, high = max(low, np.iinfo(held).min), min(high, np.iinfo(held).max)
    return np.array(low, held), np.array(high, held)
