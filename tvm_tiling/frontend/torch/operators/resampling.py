"""Image resizing: a weighted sum of a few elements along each axis, with weights known at compile time.

The position of an output element in the input is a function of its index, by PyTorch's arithmetic in PyTorch's type, so
neighbours and weights are tables. TVM's image resize is used where it gives the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Any

import numpy as np
import torch
from tvm import relax
from tvm.relax import op

from ...interpolation import interpolated
from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import DTYPES, computed_in, is_float

# For one axis: the input positions and weights of each output element, both (outputs, taps).
_Taps = tuple[np.ndarray, np.ndarray]
# Coefficients of Keys' kernel in PyTorch, plain and antialiased.
_CUBIC, _CUBIC_ANTIALIASED = -0.75, -0.5


def _scale(before: int, after: int, align: bool, given: float | None, dtype: str) -> np.floating[Any]:
    """The number of input elements per output element, in the type in which PyTorch computes it."""
    number = np.dtype(dtype).type
    if align:
        return number(before - 1) / number(after - 1) if after > 1 else number(0)
    return number(1.0 / given) if given is not None and given > 0 else number(before) / number(after)


def _sources(before: int, after: int, align: bool, given: float | None, dtype: str) -> np.ndarray:
    """Positions of output elements in the input."""
    number = np.dtype(dtype).type
    scale = _scale(before, after, align, given, dtype)
    places = np.arange(after).astype(dtype)
    return scale * places if align else scale * (places + number(0.5)) - number(0.5)


def _nearest(before: int, after: int, given: float | None, *, exact: bool) -> np.ndarray:
    scale = _scale(before, after, False, given, "float32")
    places = np.arange(after).astype("float32")
    return np.minimum(np.floor((places + np.float32(0.5)) * scale if exact else places * scale), before - 1)


def _linear(before: int, after: int, align: bool, given: float | None, dtype: str) -> _Taps:
    if before == after:
        return np.arange(after)[:, None], np.ones((after, 1), dtype)
    places = np.maximum(_sources(before, after, align, given, dtype), 0)
    first = np.minimum(np.floor(places), before - 1)
    second = np.minimum(first + 1, before - 1)
    share = np.clip(places - first, 0, 1)
    return np.stack([first, second], 1), np.stack([1 - share, share], 1)


def _cubic(before: int, after: int, align: bool, given: float | None, dtype: str) -> _Taps:
    places = _sources(before, after, align, given, dtype)
    first = np.floor(places)
    steps = np.arange(-1, 3)
    distance = np.abs(steps - (places - first)[:, None])
    return np.clip(first[:, None] + steps, 0, before - 1), _keys(distance, _CUBIC)


def _keys(distance: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic kernel with the coefficient `a`."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - distance, 0)


def _antialiased(
    before: int,
    after: int,
    align: bool,
    given: float | None,
    dtype: str,
    *,
    reach: int,
    kernel: Callable[[np.ndarray], np.ndarray],
) -> _Taps:
    """Taps of a kernel as wide as an output element, if that is wider than an input element."""
    scale = float(_scale(before, after, align, given, dtype))
    widened = max(scale, 1.0)
    support = reach * widened
    centres = scale * (np.arange(after) + 0.5)
    first = np.maximum((centres - support + 0.5).astype("int64"), 0)
    counts = np.minimum((centres + support + 0.5).astype("int64"), before) - first
    steps = np.arange(counts.max())
    weights = kernel(np.abs((steps + (first - centres)[:, None] + 0.5) / widened))
    weights = np.where(steps < counts[:, None], weights, 0)
    return np.minimum(first[:, None] + steps, before - 1), weights / weights.sum(axis=1, keepdims=True)


# ---- application ----------------------------------------------------------------------------------------------------


def _picked(t: Translation, data: relax.Expr, axis: int, places: np.ndarray) -> relax.Expr:
    extent = shape_of(data)[axis]
    if np.array_equal(places, np.arange(extent)):
        return data
    return t.emit(op.take(data, t.constant(torch.from_numpy(places.astype("int64"))), axis=axis))


def _weighted(t: Translation, data: relax.Expr, axis: int, taps: _Taps) -> relax.Expr:
    """Weighted sums of the elements of `data` along `axis`."""
    places, weights = taps
    dtype = dtype_of(data)
    if places.shape[1] == 1:
        return _picked(t, data, axis, places[:, 0])

    index = t.constant(torch.from_numpy(places.astype("int64")))
    weight = t.constant(torch.from_numpy(np.ascontiguousarray(weights)).to(DTYPES[dtype]))
    return interpolated(t.builder, data, axis, index, weight)


def _given(scales: Sequence[float] | None, rank: int) -> list[float | None]:
    return list(scales) if scales is not None else [None] * rank


def _register_nearest(name: str, rank: int, *, exact: bool) -> None:
    def convert(t: Translation, data: relax.Expr, scales: Sequence[float | None]) -> relax.Expr:
        before, after = shape_of(data)[2:], t.shape[2:]
        places = [_nearest(b, a, given, exact=exact) for b, a, given in zip(before, after, scales, strict=True)]
        if rank == 2 and dtype_of(data) == "float32" and _tvm_picks(before, after, places):
            return _tvm_resize(t, data, "nearest_neighbor", "asymmetric", "floor")
        for axis, picked in enumerate(places):
            data = _picked(t, data, 2 + axis, picked)
        return data

    _register(name, rank, convert, aligned=False)


def _tvm_picks(before: Sequence[int], after: Sequence[int], places: Sequence[np.ndarray]) -> bool:
    """Return whether integer factors give these positions: TVM's rule is then exact, because its error is below its
    rounding tolerance."""
    pairs = list(zip(before, after, strict=True))
    if any(a % b or a > 1 << 10 for b, a in pairs):
        return False
    return all(np.array_equal(p, np.arange(a) // (a // b)) for p, (b, a) in zip(places, pairs, strict=True))


def _tvm_resize(t: Translation, data: relax.Expr, method: str, place: str, rounding: str) -> relax.Expr:
    return t.emit(
        op.image.resize2d(
            data,
            size=relax.ShapeExpr(list(t.shape[2:])),
            roi=[0.0] * 4,
            layout="NCHW",
            method=method,
            coordinate_transformation_mode=place,
            rounding_method=rounding,
        )
    )


def _register_linear(name: str, rank: int) -> None:
    def convert(t: Translation, data: relax.Expr, scales: Sequence[float | None], align: bool) -> relax.Expr:
        before, after = shape_of(data)[2:], t.shape[2:]
        if rank == 2 and t.dtype == "float32" and _tvm_agrees(before, after, align, scales):
            return _tvm_resize(t, data, "linear", "align_corners" if align else "half_pixel", "")
        return _separable(t, data, align, scales, _linear)

    _register(name, rank, convert, aligned=True)


def _tvm_agrees(before: Sequence[int], after: Sequence[int], align: bool, scales: Sequence[float | None]) -> bool:
    """Return whether the positions are those of TVM's rule, which uses sizes but no scales, up to rounding."""
    if align:
        return min(after) > 1
    return all(
        given is None or floor(b * given) == a == b * given for b, a, given in zip(before, after, scales, strict=True)
    )


def _register_fallback(name: str, taps: Callable[..., _Taps]) -> None:
    def convert(t: Translation, data: relax.Expr, scales: Sequence[float | None], align: bool) -> relax.Expr:
        return _separable(t, data, align, scales, taps)

    _register(name, 2, convert, aligned=True)


def _separable(
    t: Translation, data: relax.Expr, align: bool, scales: Sequence[float | None], taps: Callable[..., _Taps]
) -> relax.Expr:
    if not is_float(t.dtype):
        raise Unsupported(f"interpolation between elements of {t.dtype} is not supported; expected floats")
    wide = computed_in(t.dtype)
    before, after = shape_of(data)[2:], t.shape[2:]
    data = t.cast(data, wide)
    for axis in reversed(range(len(before))):
        data = _weighted(t, data, 2 + axis, taps(before[axis], after[axis], align, scales[axis], wide))
    return t.cast(data, t.dtype)


def _register(name: str, rank: int, convert: Callable[..., relax.Expr], *, aligned: bool) -> None:
    """Register a converter for both overloads of an operator: with a list of scales, or with separate scales."""
    scales = {1: ["scales"], 2: ["scales_h", "scales_w"], 3: ["scales_d", "scales_h", "scales_w"]}[rank]

    @converter(f"{name}.vec")
    def by_list(
        t: Translation,
        input: relax.Expr,
        output_size: Value,
        scale_factors: Sequence[float] | None,
        **corners: bool,
    ) -> relax.Expr:
        return convert(t, input, _given(scale_factors, rank), *_aligned(corners))

    @converter(f"{name}.default")
    def one_by_one(t: Translation, self: relax.Expr, output_size: Sequence[int], **more: Any) -> relax.Expr:
        given = [more.pop(scale) for scale in scales]
        return convert(t, self, given, *_aligned(more))

    def _aligned(corners: dict[str, Any]) -> list[bool]:
        if set(corners) != ({"align_corners"} if aligned else set()):
            raise Unsupported(f"arguments {sorted(corners)} do not match; expected those of {name}")
        return list(corners.values())


for _rank in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_rank}d", _rank, exact=False)
    _register_nearest(f"_upsample_nearest_exact{_rank}d", _rank, exact=True)
_register_linear("upsample_linear1d", 1)
_register_linear("upsample_bilinear2d", 2)
_register_linear("upsample_trilinear3d", 3)
_register_fallback("upsample_bicubic2d", _cubic)


def _bilinear_antialiased(*axis: Any) -> _Taps:
    return _antialiased(*axis, reach=1, kernel=_triangle)


def _bicubic_antialiased(*axis: Any) -> _Taps:
    return _antialiased(*axis, reach=2, kernel=lambda distance: _keys(distance, _CUBIC_ANTIALIASED))


_register_fallback("_upsample_bilinear2d_aa", _bilinear_antialiased)
_register_fallback("_upsample_bicubic2d_aa", _bicubic_antialiased)
