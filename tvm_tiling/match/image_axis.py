"""An image axis: which input row each output row and tap reads, determined from the index values themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ImageAxis:
    """The parameters of an axis as in ConvWorkload, and the location of row 0 and tap 0 in the source.

    Only padding that is read counts: rows after the image that no tap reaches are excluded, so that a stride may leave
    less than the source declared. Input rows a whole stride or more after the last one read are excluded as well.
    """

    size: int  # input rows
    points: int  # output rows
    kernel: int  # taps
    stride: int = 1
    before: int = 0  # padding
    behind: int = 0
    dilation: int = 1
    transposed: bool = False
    more: int = 0  # output padding
    first: int = 0  # index of row 0 in the source
    tap_first: int = 0  # the tap of the source that is tap 0, and its step
    tap_step: int = 1

    @property
    def is_plain(self) -> bool:
        """Return whether output row i reads exactly input row i."""
        same = self.size == self.points and self.first == 0 and self.stride == 1
        return same and self.kernel == 1 and self.before == self.behind == 0


def image_axis(
    index: np.ndarray, read: np.ndarray, taps: np.ndarray, size: int, *, transposed: bool
) -> ImageAxis | str:
    """The axis whose output row o and tap r read row index[o, r] of `size` where read[o, r] is true, and zero
    elsewhere; or the reason, as text, why neither a convolution nor, with `transposed`, a transposed one reads this
    way.

    `index` has one output row more than `read`, to determine the stride of a single row; `taps` are those that are
    nonzero in some kernel.
    """
    used = np.flatnonzero(taps)
    step = int(used[1] - used[0]) if len(used) > 1 else 1
    if not len(used) or (np.diff(used) != step).any():
        return "the zeros in the kernel are not evenly spaced"
    fit = _transposed if transposed else _convolution
    return fit(index[:, used], read[:, used], size, int(used[0]), step)


def _convolution(index: np.ndarray, read: np.ndarray, size: int, tap_first: int, tap_step: int) -> ImageAxis | str:
    points, kernel = read.shape
    stride = int(index[1, 0] - index[0, 0])
    if points == 1:
        stride = max(stride, 1)
    index = index[:points]
    dilation = int(index[0, 1] - index[0, 0]) if kernel > 1 else 1
    linear = index[0, 0] + stride * np.arange(points)[:, None] + dilation * np.arange(kernel)
    if stride < 1 or dilation == 0 or (index != linear).any():
        return "the rows read are not stride * (output row) + dilation * tap - padding"
    if dilation < 0:
        index, read, dilation = index[:, ::-1], read[:, ::-1], -dilation
        tap_first, tap_step = tap_first + (kernel - 1) * tap_step, -tap_step
    inside = (index >= 0) & (index < size)
    if (read & ~inside).any():
        return f"row {int(index[read & ~inside][0])} is read, but there are {size}"
    if (inside & ~read).any():
        return f"row {int(index[inside & ~read][0])} of {size} is treated as padding"
    first, before = max(0, int(index[0, 0])), max(0, -int(index[0, 0]))
    end = int(index[-1, -1]) + 1
    behind = max(0, end - size)
    rows = (end if size - end >= stride else size) - first
    return ImageAxis(
        rows, points, kernel, stride, before, behind, dilation, first=first, tap_first=tap_first, tap_step=tap_step
    )


def _transposed(index: np.ndarray, read: np.ndarray, size: int, tap_first: int, tap_step: int) -> ImageAxis | str:
    """The axis with row = source * stride - padding + tap * dilation, for taps in either direction."""
    points, kernel = read.shape
    index = index[:points]
    row, tap = np.nonzero(read)
    if not len(row):
        return "no input row is read"
    source = index[row, tap]
    for stride in _strides(row, tap, source, points + kernel * tap_step):
        dilation, flipped = _dilation(row - source * stride, tap, tap_step)
        taps = np.arange(kernel)[::-1] if flipped else np.arange(kernel)
        before = int(source[0] * stride + taps[tap[0]] * dilation - row[0])
        spread = np.arange(points)[:, None] + before - dilation * taps
        expected = (spread % stride == 0) & (spread >= 0) & (spread < size * stride)
        if before < 0 or (expected != read).any() or (index[read] != (spread // stride)[read]).any():
            continue
        behind = (size - 1) * stride + dilation * (kernel - 1) + 1 - before - points
        return ImageAxis(
            size,
            points,
            kernel,
            stride if size > 1 else max(stride, 1 - behind),
            before,
            max(0, behind),
            dilation,
            transposed=True,
            more=max(0, -behind),
            tap_first=tap_first + (kernel - 1) * tap_step if flipped else tap_first,
            tap_step=-tap_step if flipped else tap_step,
        )
    return "the rows read are not those of a transposed convolution"


def _strides(row: np.ndarray, tap: np.ndarray, source: np.ndarray, most: int) -> Sequence[int]:
    """The stride implied by two rows read with the same tap, otherwise all candidates up to `most`."""
    for t in np.unique(tap):
        rows, sources = row[tap == t], source[tap == t]
        if len(rows) > 1:
            down, across = int(rows[1] - rows[0]), int(sources[1] - sources[0])
            return [down // across] if 0 < across <= down else []
    return range(1, most + 1)


def _dilation(offset: np.ndarray, tap: np.ndarray, tap_step: int) -> tuple[int, bool]:
    """(dilation, whether the taps are reversed) from the offset between output row and upsampled input row at each
    tap."""
    other = np.flatnonzero(tap != tap[0])
    if not len(other):
        # A single tap determines neither: assume a rotated, dilated kernel, as front ends emit.
        return tap_step, True
    slope = int(offset[other[0]] - offset[0]) // int(tap[other[0]] - tap[0])
    return max(1, abs(slope)), slope < 0
