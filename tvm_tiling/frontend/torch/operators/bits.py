"""Bit casts, the parts of floats, and hashes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from tvm import relax, te, tirx
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, converter, dtype_of, shape_of
from ..types import DTYPES, computed_in, is_float
from .elementwise import kernel
from .loops import looped
from .reductions import reduced_axes
from .views import permuted, reshaped


def _width(dtype: str) -> int:
    return torch.empty((), dtype=DTYPES[dtype]).element_size() * 8


def _as_bits(x: tirx.Expr, dtype: str) -> tirx.Expr:
    """The bits of an element as an unsigned integer."""
    bits = f"uint{_width(dtype)}"
    return tirx.Cast(bits, x) if dtype == "bool" else x if dtype == bits else tirx.reinterpret(bits, x)


def _from_bits(x: tirx.Expr, dtype: str) -> tirx.Expr:
    if dtype == "bool":
        return x != tirx.const(0, "uint8")
    return x if dtype == f"uint{_width(dtype)}" else tirx.reinterpret(dtype, x)


@converter("view.dtype", "view_copy.dtype")
def _view_as(t: Translation, self: relax.Expr, dtype: Any) -> relax.Expr:
    """A bit cast to a narrower type multiplies the last axis, one to a wider type divides it; the lowest bits come
    first."""
    old, new = dtype_of(self), t.dtype
    if old == new:
        return self
    narrow, wide = sorted((_width(old), _width(new)))
    ratio = wide // narrow
    if ratio == 1:
        return kernel(t, "bits", lambda x: _from_bits(_as_bits(x, old), new), self)
    shape = t.shape

    def parts(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            source = (*at[:-1], tirx.floordiv(at[-1], ratio))
            whole = _as_bits(x[source], old)
            shift = tirx.Cast(f"uint{wide}", tirx.floormod(at[-1], ratio) * narrow)
            return _from_bits(tirx.Cast(f"uint{narrow}", whole >> shift), new)

        return te.compute(shape, element, name="bits")

    def joined(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            total = tirx.const(0, f"uint{wide}")
            for place in range(ratio):
                source = (*at[:-1], at[-1] * ratio + place)
                some = tirx.Cast(f"uint{wide}", _as_bits(x[source], old))
                total = tirx.bitwise_or(total, some << tirx.const(place * narrow, f"uint{wide}"))
            return _from_bits(total, new)

        return te.compute(shape, element, name="bits")

    return t.te(parts if _width(old) > _width(new) else joined, self, primfunc_name_hint="bits")


@converter("frexp.Tensor")
def _frexp(t: Translation, self: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """x = mantissa * 2^exponent with 1/2 <= |mantissa| < 1; 0, infinities and NaN have the exponent 0."""
    dtype = computed_in(t.dtype)
    bits, places, bias = ("int64", 52, 1022) if dtype == "float64" else ("int32", 23, 126)
    scale = 2.0 ** (places + 2)
    x = t.cast(self, dtype)

    def parts(a: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        small = tirx.abs(a) < tirx.const(2.0 ** (1 - bias), dtype)
        normal = tirx.Select(small, a * tirx.const(scale, dtype), a)
        held = tirx.reinterpret(bits, normal)
        raw = tirx.bitwise_and(held >> tirx.const(places, bits), tirx.const(2 * bias + 3, bits))
        exponent = raw - tirx.const(bias, bits) - tirx.Select(small, tirx.const(places + 2, bits), tirx.const(0, bits))
        cleared = tirx.bitwise_and(held, tirx.const(~((2 * bias + 3) << places), bits))
        mantissa = tirx.reinterpret(dtype, tirx.bitwise_or(cleared, tirx.const(bias << places, bits)))
        plain = tirx.any(tirx.EQ(a, tirx.const(0, dtype)), tirx.isnan(a), tirx.isinf(a))
        return tirx.Select(plain, a, mantissa), tirx.Select(plain, tirx.const(0, bits), exponent)

    mantissa = kernel(t, "mantissa", lambda a: parts(a)[0], x)
    exponent = kernel(t, "exponent", lambda a: tirx.Cast("int32", parts(a)[1]), x)
    return t.cast(reshaped(t, mantissa, shape_of(self)), t.dtype), exponent


@converter("hash_tensor.default")
def _hash(t: Translation, self: relax.Expr, dim: int | Sequence[int], keepdim: bool, mode: int) -> relax.Expr:
    """The exclusive or of the bits of all elements, floats as float64 and integers as int64; PyTorch only has mode 0
    and rejects reductions of empty axes."""
    shape, axes = shape_of(self), reduced_axes(self, dim)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    count, length = prod(shape[axis] for axis in kept), prod(shape[axis] for axis in axes)
    dtype = "float64" if is_float(dtype_of(self)) else "int64"
    rows = reshaped(t, permuted(t, t.cast(self, dtype), [*kept, *axes]), (count, length))

    def body(values: Any, hashes: Any) -> None:
        with tir.parallel(0, count) as i:
            hashes[i] = tirx.const(0, "uint64")
            with tir.serial(0, length) as j:
                hashes[i] = tirx.bitwise_xor(hashes[i], _as_bits(values[i, j], dtype))

    return reshaped(t, looped(t, "hash", [rows], [((count,), "uint64")], body)[0], t.shape)
