"""Computation of size values as tensors, where a graph uses them as data."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from .open_shapes import Size
from .size_values import Share, SizeValue


def _constant(values: np.ndarray, dtype: str) -> relax.Expr:
    return relax.const(values.astype(dtype), dtype)


def as_tensor(bb: relax.BlockBuilder, value: SizeValue) -> relax.Expr:
    """The tensor of a size value."""
    elements, shape = list(value.values.flat), value.values.shape
    if all(isinstance(element, bool | int) for element in elements):
        return _constant(np.array(elements, value.dtype).reshape(shape), value.dtype)
    if all(isinstance(element, Share) and isinstance(element.size, int) for element in elements):
        numbers = [float(element.size * element.factor) for element in elements]
        return _constant(np.array(numbers).reshape(shape), value.dtype)
    sizes: list[Size] = [element.size if isinstance(element, Share) else element for element in elements]
    result = bb.emit(op.shape_to_tensor(relax.ShapeExpr(sizes)))
    if shape != (len(elements),):
        result = bb.emit(op.reshape(result, relax.ShapeExpr(list(shape))))
    if value.dtype != "int64":
        result = bb.emit(op.astype(result, value.dtype))
    factors = [float(element.factor) for element in elements if isinstance(element, Share)]
    if any(factor != 1.0 for factor in factors):
        result = bb.emit(op.multiply(result, _constant(np.array(factors).reshape(shape), value.dtype)))
    return result
