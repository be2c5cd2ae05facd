"""Integers in the order of floats, for sorting: NaN is larger than every number, and the two zeros are equal."""

from __future__ import annotations

import numpy as np
from tvm import tirx


def order_key(value: tirx.Expr) -> tirx.Expr:
    """Return an integer of the same width as `value`, a float32 or float64: its magnitude's bits, with its sign."""
    floats = str(value.ty)
    dtype = floats.replace("float", "int")
    largest = tirx.max_value(dtype)
    infinity = tirx.const(int(np.array(np.inf, floats).view(dtype)), dtype)
    bits = tirx.reinterpret(dtype, value)
    size = tirx.bitwise_and(bits, largest)
    zero = tirx.const(0, dtype)
    return tirx.Select(size > infinity, largest, tirx.Select(bits < zero, zero - size, size))
