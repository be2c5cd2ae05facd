"""A convolution as plain convolutions over three axes, each computed by one loop nest of the direct algorithm.

A plain convolution is one such shape. A transposed one consists of several, one for each residue of the output
coordinates modulo the strides: the points of one residue receive every stride-th tap, so they form a convolution of
stride 1. Its taps are traversed backwards, which makes the distance between them positive.

    input coordinate of tap t at output point i = i * stride + t * dilation + start
    output coordinate of point i                = first + i * step
    index of tap t in the kernel                = tap_first + t * tap_step
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd

from ...errors import UnsupportedOperator
from ...workload import ConvWorkload


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution; sizes in points."""

    points: int  # of the output
    size: int  # of the input
    taps: int
    stride: int = 1
    dilation: int = 1
    start: int = 0  # input coordinate of tap 0 at output point 0: minus the padding in front
    first: int = 0
    step: int = 1
    tap_first: int = 0
    tap_step: int = 1

    @cached_property
    def span(self) -> int:
        """Input points from the first to the last tap of one output point, inclusive."""
        return max(0, self.taps - 1) * self.dilation + 1

    def reach(self, points: int) -> int:
        """Return the input points under `points` adjacent output points."""
        return (points - 1) * self.stride + self.span

    def read(self, points: int) -> int:
        """Return the input points that `points` adjacent output points read; points between dilated taps are not
        read."""
        return min(self.reach(points), points * max(1, self.taps))

    def hides(self, points: int) -> bool:
        """Return whether there may be `points` adjacent output points with the same tap outside the input."""
        behind = (self.points - 1) * self.stride + self.start + self.span - self.size
        return max(-self.start, behind) >= points * self.stride

    @property
    def padded(self) -> bool:
        """Whether some tap is outside the input."""
        return self.start < 0 or (self.points - 1) * self.stride + self.start + self.span > self.size

    @cached_property
    def inside(self) -> tuple[int, int]:
        """[first, end) of the output points with all taps inside the input."""
        first = min(self.points, max(0, -(self.start // self.stride)))
        return first, max(first, min(self.points, (self.size - self.span - self.start) // self.stride + 1))


@dataclass(frozen=True)
class ConvShape:
    """Axes d, h, w and channels; `ci` and `co` are per group. `fold`: number of columns folded into channels."""

    n: int
    groups: int
    ci: int
    co: int
    d: Axis
    h: Axis
    w: Axis
    fold: int = 1
    fold_taps: int = 0  # taps of the kernel before folding, if it is folded

    @property
    def planes(self) -> int:
        """Number of output planes over all images and groups."""
        return self.groups * self.n * self.d.points

    @property
    def points(self) -> int:
        """Output points of one channel."""
        return self.n * self.d.points * self.h.points * self.w.points

    @property
    def macs(self) -> int:
        return self.points * self.groups * self.co * self.ci * self.d.taps * self.h.taps * self.w.taps

    def folded(self) -> ConvShape:
        """Return the stride-folded convolution: `stride` adjacent columns along W become channels, and the stride along
        W becomes 1.

        The padding in front is unchanged: rows are padded and folded in one pass.
        """
        sw = self.w.stride
        w = replace(self.w, taps=-(-self.w.taps // sw), stride=1, size=-(-self.w.size // sw))
        return replace(self, ci=self.ci * sw, w=w, fold=sw, fold_taps=self.w.taps)


def shapes_of(workload: ConvWorkload) -> list[ConvShape]:
    """Return the plain convolutions that `workload` consists of; a residue that no tap reaches has an axis without
    taps."""
    c = workload
    sides = (
        (c.d, c.kd, c.stride_d, c.dilation_d, c.padding_d[0], c.do),
        (c.h, c.kh, c.stride[0], c.dilation[0], c.padding[0], c.ho),
        (c.w, c.kw, c.stride[1], c.dilation[1], c.padding[1], c.wo),
    )
    if not c.transposed:
        axes = [
            Axis(points=out, size=size, taps=taps, stride=stride, dilation=dilation, start=-before)
            for size, taps, stride, dilation, before, out in sides
        ]
        return [_shape(c, *axes)]
    d, h, w = ([axis for residue in range(side[2]) for axis in _residue(*side, residue)] for side in sides)
    return [_shape(c, *axes) for axes in ((x, y, z) for x in d for y in h for z in w)]


def float_images(c: ConvWorkload, form: str) -> ConvShape:
    """Return the shape of a two-dimensional float32 convolution that is not transposed. Raises UnsupportedOperator,
    naming the algorithm `form`, for any other convolution.
    """
    padded = any(c.padding_d)
    if c.dtype != "float32" or c.types.b != "float32" or c.transposed or c.d * c.kd > 1 or padded:
        kind = f"{c.dtype}{f' of depth {c.d}' if c.d > 1 else ''}{', transposed' if c.transposed else ''}"
        raise UnsupportedOperator(
            f"algorithm = {form!r} requires a two-dimensional float32 convolution that is not transposed, not "
            f"{kind}{', padded in depth' if padded else ''}"
        )
    return shapes_of(c)[0]


def _shape(c: ConvWorkload, d: Axis, h: Axis, w: Axis) -> ConvShape:
    return ConvShape(c.n, c.groups, c.ci // c.groups, c.co // c.groups, d, h, w)


def _residue(size: int, taps: int, stride: int, dilation: int, before: int, out: int, residue: int) -> list[Axis]:
    """Return the output points first, first + stride, ... of one axis of a transposed convolution; an empty list if
    there are none.

    Point o receives input i through tap t where o = i * stride - before + t * dilation.
    """
    if residue >= out:
        return []
    points = -(-(out - residue) // stride)
    mine = [t for t in range(taps) if (residue + before - t * dilation) % stride == 0]
    if not mine:
        return [Axis(points=points, size=size, taps=0, first=residue, step=stride)]
    apart = stride // gcd(stride, dilation)
    last = mine[-1]
    return [
        Axis(
            points=points,
            size=size,
            taps=len(mine),
            dilation=apart * dilation // stride,
            start=(residue + before - last * dilation) // stride,
            first=residue,
            step=stride,
            tap_first=last,
            tap_step=-apart,
        )
    ]
