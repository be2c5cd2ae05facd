"""Element types in NumPy: how each type is stored, widened for computation, and narrowed again.

bfloat16 is stored as the upper half of a float32 in 16 unsigned bits, so that no package beyond NumPy is needed.
Narrowing saturates integers and rounds floats to nearest, ties to even.
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
"""The NumPy type that stores elements of each ElementType."""

_INTEGERS = (ElementType.INT8, ElementType.INT16, ElementType.INT32, ElementType.UINT8)
BOUNDS: dict[int, tuple[int, int]] = {
    kind: (int(np.iinfo(STORED[kind]).min), int(np.iinfo(STORED[kind]).max)) for kind in _INTEGERS
}
"""Minimum and maximum of each integer type; float types are absent."""


def is_integer(kind: int) -> bool:
    return kind in BOUNDS


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to bfloat16, ties to even, and return the 16 bits; a NaN stays a NaN."""
    bits = values.astype(np.float32, copy=False).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    quiet = (bits >> 16) | np.uint32(0x40)
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, quiet, rounded).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Return the values of bfloat16 bits as float32, exactly."""
    # NumPy 1 shifts a single element by Python's 16 in 64 bits.
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_float32(stored: np.ndarray, kind: int) -> np.ndarray:
    """Return elements of any type as float32 (a copy): exact except for int32 beyond 24 bits, which rounds."""
    return from_bfloat16(stored) if kind == ElementType.BFLOAT16 else stored.astype(np.float32)


def widened(stored: np.ndarray, kind: int) -> np.ndarray:
    """Return elements in the type that functions compute in, int64 or float32; may return `stored` itself."""
    if is_integer(kind):
        return stored.astype(np.int64)
    return from_bfloat16(stored) if kind == ElementType.BFLOAT16 else stored.astype(np.float32, copy=False)


def narrowed(values: np.ndarray, kind: int) -> np.ndarray:
    """Convert computed values (integers or floats) to stored elements of `kind`.

    Integers saturate. Converting a float to an integer truncates as in C but saturates; NaN becomes 0. An integer is
    converted to a float through float32.
    """
    if is_integer(kind):
        return saturated(values, kind).astype(STORED[kind], copy=False)
    if kind == ElementType.BFLOAT16:
        return to_bfloat16(values.astype(np.float32, copy=False))
    with np.errstate(over="ignore"):  # values beyond the largest float16 become infinity
        return values.astype(STORED[kind], copy=False)


def saturated(values: np.ndarray, kind: int) -> np.ndarray:
    """Clip values (integers or floats) to the bounds of an integer `kind` without converting them; may return
    `values`."""
    if values.dtype.kind == "f":
        # float32 cannot represent the largest int32, float64 can represent all.
        low, high = BOUNDS[kind]
        values = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=high, neginf=low)
    limits = _limits(kind, values.dtype)
    return values if limits is None else values.clip(*limits)


@functools.cache
def _limits(kind: int, held: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return BOUNDS[kind] as arrays of the type `held`, which clip handles twice as fast as scalars, or None if `held`
    never exceeds the bounds."""
    if np.can_cast(held, STORED[kind]):
        return None
    low, high = BOUNDS[kind]
    if held.kind != "f":
        low, high = max(low, np.iinfo(held).min), min(high, np.iinfo(held).max)
    return np.array(low, held), np.array(high, held)
