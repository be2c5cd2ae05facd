"""Layers computed by plain NumPy: channels first, any number of spatial dimensions."""

from __future__ import annotations

import itertools
import math

import numpy as np


def padded(x, before, behind, value=0):
    """Return `x` with a border around its spatial dimensions."""
    return np.pad(x, [(0, 0), (0, 0), *zip(before, behind, strict=True)], constant_values=value)


def convolution(x, w, strides, pads, dilation, groups=1):
    """x [n, c, ...], w [o, c / groups, ...] in float64, or in the given integers."""
    count = x.ndim - 2
    x = x.astype("int64" if x.dtype.kind in "iu" else "f8")
    wide = padded(x, pads[:count], pads[count:])
    kernel = w.shape[2:]
    sizes = [
        (extent - (k - 1) * d - 1) // s + 1
        for extent, k, d, s in zip(wide.shape[2:], kernel, dilation, strides, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[0], *sizes), np.result_type(x, w, "int64" if x.dtype.kind in "iu" else "f8"))
    per_in, per_out = x.shape[1] // groups, w.shape[0] // groups
    for tap in itertools.product(*map(range, kernel)):
        spans = tuple(
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, size, s in zip(tap, dilation, sizes, strides, strict=True)
        )
        piece = wide[(slice(None), slice(None), *spans)]
        for group in range(groups):
            part = piece[:, group * per_in : (group + 1) * per_in]
            weights = w[(slice(group * per_out, (group + 1) * per_out), slice(None), *tap)]
            out[:, group * per_out : (group + 1) * per_out] += np.einsum("nc...,oc->no...", part, weights)
    return out


def transposed(x, w, strides, pads, more, groups=1):
    """x [n, c, ...], w [c, o / groups, ...]; `more` rows at the end of each dimension."""
    count = x.ndim - 2
    x = x.astype("int64" if x.dtype.kind in "iu" else "f8")
    kernel = w.shape[2:]
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    sizes = [(extent - 1) * s + k + m for extent, s, k, m in zip(x.shape[2:], strides, kernel, more, strict=True)]
    out = np.zeros(
        (x.shape[0], per_out * groups, *sizes), np.result_type(x, w, "int64" if x.dtype.kind in "iu" else "f8")
    )
    for tap in itertools.product(*map(range, kernel)):
        spans = tuple(
            slice(t, t + (extent - 1) * s + 1, s) for t, extent, s in zip(tap, x.shape[2:], strides, strict=True)
        )
        for group in range(groups):
            part = x[:, group * per_in : (group + 1) * per_in]
            weights = w[(slice(group * per_in, (group + 1) * per_in), slice(None), *tap)]
            place = (slice(None), slice(group * per_out, (group + 1) * per_out), *spans)
            out[place] += np.einsum("nc...,co->no...", part, weights)
    inner = tuple(slice(pads[axis], out.shape[axis + 2] - pads[count + axis]) for axis in range(count))
    return out[(slice(None), slice(None), *inner)]


def pool(x, kind, size, strides, pads, ceil=False, include=False, dilation=None):
    """Return windows over the spatial dimensions of x [n, c, ...]."""
    count = x.ndim - 2
    dilation = dilation or [1] * count
    rounding = math.ceil if ceil else math.floor
    outs = [
        rounding((extent + pads[axis] + pads[count + axis] - (size[axis] - 1) * dilation[axis] - 1) / strides[axis]) + 1
        for axis, extent in enumerate(x.shape[2:])
    ]
    out = np.zeros((*x.shape[:2], *outs))
    for place in itertools.product(*map(range, outs)):
        picked, total = [], 1
        for axis, at in enumerate(place):
            start = at * strides[axis] - pads[axis]
            taps = [start + tap * dilation[axis] for tap in range(size[axis])]
            end = x.shape[2 + axis] + pads[count + axis]
            total *= len([tap for tap in taps if tap < end])
            picked.append([tap for tap in taps if 0 <= tap < x.shape[2 + axis]])
        window = x[(slice(None), slice(None), *np.ix_(*picked))]
        axes = tuple(range(2, x.ndim))
        if kind == "max":
            out[(slice(None), slice(None), *place)] = window.max(axes)
        else:
            number = total if include else math.prod(map(len, picked))
            out[(slice(None), slice(None), *place)] = window.sum(axes) / number
    return out


def requantized(x, scale, zero, out_scale, out_zero, dtype, rounding="UPWARD", axis=0):
    """Convert integers from one scale to another, with TVM's 31-bit integer multipliers, one element at a time."""
    scale = np.broadcast_to(np.float32(scale), x.shape[axis : axis + 1]) if np.ndim(scale) else np.float32(scale)
    out = np.zeros(x.shape, "int64")
    for place in np.ndindex(x.shape):
        ratio = float(scale[place[axis]] if np.ndim(scale) else scale) / float(np.float32(out_scale))
        part, shift = math.frexp(ratio)
        factor = math.floor(part * 2**31 + 0.5)
        if factor == 2**31:
            factor, shift = factor // 2, shift + 1
        value = (int(x[place]) - zero) << max(shift, 0)
        right = 31 - min(shift, 0)
        product = value * factor
        half = 1 << (right - 1)
        if rounding == "TONEAREST" and product < 0:
            half -= 1
        out[place] = ((product + half) >> right) + out_zero
    limits = np.iinfo(dtype)
    return np.clip(out, limits.min, limits.max).astype(dtype)


def away_from_zero(x):
    """Round to integers, halves away from zero."""
    return np.trunc(x) + np.where(np.abs(x - np.trunc(x)) >= 0.5, np.sign(x), 0)


def quantized(x, scale, zero, dtype="int8"):
    limits = np.iinfo(dtype)
    return np.clip(away_from_zero(x / np.float32(scale)) + np.float32(zero), limits.min, limits.max).astype(dtype)
