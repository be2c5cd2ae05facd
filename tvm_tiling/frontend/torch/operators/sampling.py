"""Images sampled at positions given by a tensor: grid_sample and its affine grids.

A position may have any value, including infinities and NaN: it is clamped as a float before it is cast to an integer,
so that all reads are within the image.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import torch
from tvm import relax, te, tirx

from ..translation import Translation, Unsupported, converter, shape_of
from ..types import DTYPES, computed_in
from .products import product as matrix_product
from .products import turned
from .views import reshaped

Expr: TypeAlias = Any
_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)
_CUBIC = -0.75


@converter("grid_sampler_2d.default", "grid_sampler_3d.default", "grid_sampler.default")
def _grid_sampler(
    t: Translation,
    input: relax.Expr,
    grid: relax.Expr,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> relax.Expr:
    wide = computed_in(t.dtype)
    image = shape_of(input)[2:]
    rank = len(image)
    if 0 in shape_of(input):
        raise Unsupported(f"an image of shape {shape_of(input)} is not supported; expected elements")
    if interpolation_mode == _BICUBIC and rank == 3:
        raise Unsupported("bicubic interpolation of volumes is not supported; expected images")
    sampler = _Sampler(wide, interpolation_mode, padding_mode, bool(align_corners))
    taps = {_BILINEAR: 2, _NEAREST: 1, _BICUBIC: 4}[interpolation_mode]
    shape = t.shape

    def sample(x: te.Tensor, grid: te.Tensor) -> te.Tensor:
        # Compute neighbours once for all channels: position, or -1 if outside the image, and weight, for each axis.
        lined = (shape[0], *shape[2:], taps)
        places, weights = [], []
        for axis, extent in enumerate(image):
            # The last axis of the grid lists the image axes from last to first.
            place, weight = sampler.of_axis(grid, rank - 1 - axis, extent)
            places.append(te.compute(lined, place, name=f"places{axis}"))
            weights.append(te.compute(lined, weight, name=f"weights{axis}"))
        tap_axes = [te.reduce_axis((0, taps), name=f"k{axis}") for axis in range(rank)]

        def element(*at: Expr) -> Expr:
            spots = [tuple([at[0], *at[2:], tap_axis]) for tap_axis in tap_axes]
            inside = tirx.all(*(where[spot] >= 0 for where, spot in zip(places, spots, strict=True)))
            found = [tirx.max(where[spot], 0) for where, spot in zip(places, spots, strict=True)]
            # NaN weights outside the image still count.
            value = tirx.if_then_else(inside, x[tuple([*at[:2], *found])], tirx.const(0, wide))
            for weight, spot in zip(weights, spots, strict=True):
                value = value * weight[spot]
            return te.sum(value, axis=tap_axes)

        return te.compute(shape, element, name="grid_sample")

    sampled = t.te(sample, t.cast(input, wide), t.cast(grid, wide), primfunc_name_hint="grid_sample")
    return t.cast(sampled, t.dtype)


class _Sampler:
    """Computes the neighbours of positions along an axis; arithmetic in type `dtype`."""

    def __init__(self, dtype: str, mode: int, padding: int, align: bool) -> None:
        self.dtype, self.mode, self.padding, self.align = dtype, mode, padding, align

    def of_axis(self, grid: te.Tensor, column: int, extent: int) -> list[Callable[..., Expr]]:
        """Position and weight, as functions of the grid index and the tap."""

        def place(*at: Expr) -> Expr:
            return self.neighbour(self.unnormalised(grid[tuple([*at[:-1], column])], extent), extent, at[-1])[0]

        def weight(*at: Expr) -> Expr:
            return self.neighbour(self.unnormalised(grid[tuple([*at[:-1], column])], extent), extent, at[-1])[1]

        return [place, weight]

    def number(self, value: float) -> Expr:
        return tirx.const(float(value), self.dtype)

    def unnormalised(self, place: Expr, extent: int) -> Expr:
        """Convert from [-1, 1] to elements."""
        if self.align:
            return (place + self.number(1)) / self.number(2) * self.number(extent - 1)
        return ((place + self.number(1)) * self.number(extent) - self.number(1)) / self.number(2)

    def neighbour(self, place: Expr, extent: int, tap: Expr) -> tuple[Expr, Expr]:
        """The `tap`-th neighbour of `place`, -1 if outside the image, and its weight."""
        step = tirx.Cast(self.dtype, tap)
        if self.mode == _NEAREST:
            return self.whole(tirx.nearbyint(self.padded(place, extent)), extent), self.number(1)
        if self.mode == _BILINEAR:
            place = self.padded(place, extent)
            first = tirx.floor(place)
            share = place - first
            return self.whole(first + step, extent), tirx.Select(tap == 0, self.number(1) - share, share)
        first = tirx.floor(place)
        distance = tirx.abs(place - first + self.number(1) - step)
        weight = tirx.Select(tirx.any(tap == 1, tap == 2), self._near(distance), self._far(distance))
        return self.whole(self.padded(first + step - self.number(1), extent), extent), weight

    def whole(self, place: Expr, extent: int) -> Expr:
        """An integral position as an integer; -1 if it is outside, or NaN."""
        inside = tirx.all(place >= self.number(0), place <= self.number(extent - 1))
        return tirx.Select(inside, tirx.Cast("int32", self.limited(place, extent)), -1)

    def padded(self, place: Expr, extent: int) -> Expr:
        if self.padding == _ZEROS:
            return place
        return self.limited(self.reflected(place, extent) if self.padding == _REFLECTION else place, extent)

    def limited(self, place: Expr, extent: int) -> Expr:
        low, high = self.number(0), self.number(extent - 1)
        return tirx.Select(place > low, tirx.Select(place < high, place, high), low)

    def reflected(self, place: Expr, extent: int) -> Expr:
        low, high = (0, 2 * (extent - 1)) if self.align else (-1, 2 * extent - 1)
        if low == high:
            return self.number(0)
        least, span = self.number(low / 2), self.number((high - low) / 2)
        away = tirx.abs(place - least)
        flips = tirx.floor(away / span)
        extra = away - flips * span
        odd = flips - tirx.floor(flips / self.number(2)) * self.number(2)
        return tirx.Select(odd < self.number(0.5), extra + least, span - extra + least)

    def _near(self, x: Expr) -> Expr:
        a = _CUBIC
        return ((self.number(a + 2) * x - self.number(a + 3)) * x) * x + self.number(1)

    def _far(self, x: Expr) -> Expr:
        a = _CUBIC
        return ((self.number(a) * x - self.number(5 * a)) * x + self.number(8 * a)) * x - self.number(4 * a)


@converter("affine_grid_generator.default")
def _affine_grid(t: Translation, theta: relax.Expr, size: Sequence[int], align_corners: bool) -> relax.Expr:
    """Each position of an image of `size`, from -1 to 1, transformed by the matrix of its batch element."""
    wide = computed_in(t.dtype)
    image = [int(extent) for extent in size[2:]]
    lines = []
    for extent in image:
        line = torch.linspace(-1, 1, extent, dtype=DTYPES[wide]) if extent > 1 else torch.zeros(1, dtype=DTYPES[wide])
        lines.append(line if align_corners else line * (extent - 1) / extent)
    # Columns list the last axis first; the last column is the offset.
    planes = torch.meshgrid(*lines, indexing="ij")[::-1]
    base = torch.stack([*planes, torch.ones(image, dtype=DTYPES[wide])], -1).reshape(1, prod(image), len(image) + 1)
    moved = matrix_product(t, t.constant(base), turned(t, t.cast(theta, wide)), wide)
    return t.cast(reshaped(t, moved, t.shape), t.dtype)
