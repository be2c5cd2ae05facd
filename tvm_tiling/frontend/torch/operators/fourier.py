"""Discrete Fourier transforms, each axis as a matrix multiplication with a constant matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import torch
from tvm import relax
from tvm.relax import op

from ..translation import Complex, Translation, Unsupported, Value, converter, converter_of_complex, shape_of
from ..types import DTYPES
from .loops import from_lines, lines
from .products import product

_LONGEST = 2048  # elements along an axis: two matrices of 16 MiB in float32


def _waves(t: Translation, rows: int, columns: int, size: int, forward: bool) -> tuple[relax.Expr, relax.Expr]:
    """cos and sin of the angles of elements and frequencies, (rows, columns)."""
    if size > _LONGEST:
        raise Unsupported(f"a transform of {size} elements is not supported; expected at most {_LONGEST}")
    turns = torch.outer(torch.arange(rows), torch.arange(columns)) % size
    angle = turns.double() * ((-2 if forward else 2) * math.pi / size)
    dtype = DTYPES[t.dtype]
    return t.constant(angle.cos().to(dtype)), t.constant(angle.sin().to(dtype))


def _along(t: Translation, value: Complex, axis: int, forward: bool) -> Complex:
    """An unnormalised transform of complex numbers along an axis."""
    shape = shape_of(value.real)
    size = shape[axis]
    cosine, sine = _waves(t, size, size, size, forward)
    real, imag = (lines(t, each, axis) for each in (value.real, value.imag))

    def times(left: relax.Expr, right: relax.Expr) -> relax.Expr:
        return product(t, left, right, t.dtype)

    found = (
        t.emit(op.subtract(times(real, cosine), times(imag, sine))),
        t.emit(op.add(times(real, sine), times(imag, cosine))),
    )
    return Complex(*(from_lines(t, each, axis, shape) for each in found))


def _factor(t: Translation, sizes: Sequence[int], normalization: int) -> relax.Expr:
    """PyTorch's three normalisations: 1, one over the square root of the number of elements, one over that number."""
    count = prod(sizes)
    return t.cast({0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization], t.dtype)


def _scaled(t: Translation, value: Complex, sizes: Sequence[int], normalization: int) -> Complex:
    if normalization == 0:
        return value
    factor = _factor(t, sizes, normalization)
    return Complex(*(t.emit(op.multiply(each, factor)) for each in (value.real, value.imag)))


@converter("_fft_r2c.default")
@converter_of_complex("_fft_r2c.default")
def _of_reals(t: Translation, self: relax.Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    shape = list(shape_of(self))
    axes = [axis % len(shape) for axis in dim]
    sizes = [shape[axis] for axis in axes]
    last = axes[-1]
    size = shape[last]
    shape[last] = size // 2 + 1 if onesided else size
    data = lines(t, t.cast(self, t.dtype), last)
    parts = [product(t, data, wave, t.dtype) for wave in _waves(t, size, shape[last], size, True)]
    found = Complex(*(from_lines(t, each, last, shape) for each in parts))
    for axis in axes[:-1]:
        found = _along(t, found, axis, True)
    return _scaled(t, found, sizes, normalization)


@converter("_fft_c2c.default")
@converter_of_complex("_fft_c2c.default")
def _of_complex(t: Translation, self: Value, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    shape = shape_of(self.real)
    axes = [axis % len(shape) for axis in dim]
    found = self
    for axis in axes:
        found = _along(t, found, axis, forward)
    return _scaled(t, found, [shape[axis] for axis in axes], normalization)


@converter("_fft_c2r.default")
@converter_of_complex("_fft_c2r.default")
def _to_reals(t: Translation, self: Value, dim: Sequence[int], normalization: int, last_dim_size: int) -> relax.Expr:
    """The real transform from the first half of the frequencies; the others are their conjugates."""
    shape = list(shape_of(self.real))
    axes = [axis % len(shape) for axis in dim]
    found, last, size = self, axes[-1], last_dim_size
    for axis in axes[:-1]:
        found = _along(t, found, axis, False)
    half = shape[last]
    shape[last] = size
    cosine, sine = _waves(t, half, size, size, False)
    # Each frequency represents itself and its conjugate, except the first and, for an even size, the last.
    times = torch.full((half, 1), 2.0, dtype=DTYPES[t.dtype])
    times[0] = 1
    if size % 2 == 0:
        times[size // 2] = 1
    times[size // 2 + 1 :] = 0
    cosine, sine = (t.constant(t.known[wave] * times) for wave in (cosine, sine))
    real, imag = (lines(t, each, last) for each in (found.real, found.imag))
    total = t.emit(op.subtract(product(t, real, cosine, t.dtype), product(t, imag, sine, t.dtype)))
    sizes = [shape[axis] for axis in axes]
    result = from_lines(t, total, last, shape)
    return t.emit(op.multiply(result, _factor(t, sizes, normalization))) if normalization else result
