"""Stride-fold: folds a stride along W into channels, leaving a convolution of stride 1 (design page 05).

Columns and channels are adjacent in memory, so sw columns of ci channels are one column of sw*ci channels:

    input   H x W x Ci         ->  H x ceil(W/sw) x (sw*Ci)
    kernel  Co x Kh x Kw x Ci  ->  Co x Kh x ceil(Kw/sw) x (sw*Ci), zeros where the kernel has no tap
    stride  sw                 ->  1

A step of one folded column is a step of sw columns. It remains to align the start of folded columns. An output point
reads columns from sw*i - left on, where left is the padding:

- sw divides W: the image is folded in place from column 0 on, and no data moves. Window i then starts inside a folded
  column unless sw divides left. Prepending (-left mod sw) zero columns to the kernel aligns it; they need one more
  folded column if they do not fit the kernel's own remainder. The padding becomes ceil(left/sw) folded columns.
- sw does not divide W: rows would start at different offsets in a folded column. They are copied once with the
  convolution's padding, followed by zeros up to a multiple of sw; the padding is then part of the row.

The padding on the right is as wide as the output needs. A folded window may end beyond the last column of the original
one, so there may be one output point more than in the original output; it is dropped (`surplus`).

Kernels dilated along W are expanded first. Folding would interleave the channels of groups, so there must be one group.
Rows, depth and images are unaffected: their stride, dilation and padding remain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...errors import UnsupportedOperator
from ...workload import ConvWorkload
from ..gemm.traffic import ceil_div

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class StrideFold:
    """The index map of the stride-fold of a convolution, `workload`, and its inverse.

    Coordinates are rows y, columns x, channels c and taps kw; the folded ones are `x_folded`, `kw_folded` and
    `c_folded`. With a stride of 1 the map is the identity, except that a dilated kernel is still expanded. Raises
    UnsupportedOperator for a transposed convolution, and for several groups if the stride exceeds 1.
    """

    workload: ConvWorkload

    def __post_init__(self) -> None:
        w = self.workload
        if w.transposed:
            raise UnsupportedOperator(
                "stride-fold: a transposed convolution has no stride to fold; expected transposed=False"
            )
        if w.groups > 1 and self.factor > 1:
            raise UnsupportedOperator(
                f"stride-fold: stride {self.factor} along W with groups = {w.groups} would interleave the channels of "
                "groups; expected groups=1, or a stride of 1 along W"
            )

    @property
    def factor(self) -> int:
        """Number of columns that become one: the stride along W."""
        return self.workload.stride[1]

    @property
    def moves_data(self) -> bool:
        """Whether rows must be copied with their padding because the factor does not divide W."""
        return self.workload.w % self.factor != 0

    @property
    def width(self) -> int:
        """Folded columns of a row."""
        _, left, _, right = self.workload.padding
        border = left + right if self.moves_data else 0
        return ceil_div(self.workload.w + border, self.factor)

    @property
    def shift(self) -> int:
        """Columns in front of column 0 in a folded row: the left padding if data moves."""
        return self.workload.padding[1] if self.moves_data else 0

    @property
    def left(self) -> int:
        """Folded columns of padding on the left."""
        return 0 if self.moves_data else ceil_div(self.workload.padding[1], self.factor)

    @property
    def zeros(self) -> int:
        """Zero columns in front of the kernel before it is folded."""
        return 0 if self.moves_data else -self.workload.padding[1] % self.factor

    @property
    def expanded_kw(self) -> int:
        """Columns of the kernel including zeros between dilated taps."""
        return self.workload.dilation[1] * (self.workload.kw - 1) + 1

    @property
    def kernel_width(self) -> int:
        """Columns of the folded kernel."""
        return ceil_div(self.zeros + self.expanded_kw, self.factor)

    @property
    def right(self) -> int:
        """Folded columns of padding on the right, as many as the output needs."""
        return max(0, self.workload.wo - 1 + self.kernel_width - self.left - self.width)

    @property
    def surplus(self) -> int:
        """Points at the end of an output row that are dropped: 0 or 1."""
        return self.folded().wo - self.workload.wo

    def folded(self) -> ConvWorkload:
        """Return the folded convolution: stride 1 and no dilation along W, factor * ci channels, `surplus` points too
        many."""
        w = self.workload
        top, _, bottom, _ = w.padding
        return replace(
            w,
            w=self.width,
            ci=self.factor * w.ci,
            kw=self.kernel_width,
            stride=(w.stride[0], 1),
            padding=(top, self.left, bottom, self.right),
            dilation=(w.dilation[0], 1),
        )

    # ---- the input's map: integers or any expressions with + - * // % ------------------------------------------------

    def fold_index(self, y: Any, x: Any, c: Any) -> tuple[Any, Any, Any]:
        """Return the position (y, x_folded, c_folded) of input element (y, x, c) in the folded input.

        Columns of the padding, x < 0 or x >= w, have positions too; x_folded < 0 is in the folded padding.
        """
        column = x + self.shift
        return y, column // self.factor, column % self.factor * self.workload.ci + c

    def unfold_index(self, y: Any, x_folded: Any, c_folded: Any) -> tuple[Any, Any, Any]:
        """Return the inverse of `fold_index`: (y, x, c). The element is zero unless 0 <= x < w."""
        ci = self.workload.ci
        return y, x_folded * self.factor + c_folded // ci - self.shift, c_folded % ci

    # ---- the kernel's map --------------------------------------------------------------------------------------------

    def fold_tap(self, kw: Any, c: Any) -> tuple[Any, Any]:
        """Return the position (kw_folded, c_folded) of tap kw and channel c (of the group's ci/groups) in the folded
        kernel."""
        column = kw * self.workload.dilation[1] + self.zeros
        return column // self.factor, column % self.factor * self._kernel_channels + c

    def unfold_tap(self, kw_folded: int, c_folded: int) -> tuple[int, int] | None:
        """Return the inverse of `fold_tap`, (kw, c), or None where the folded kernel has a zero."""
        channels, dilation = self._kernel_channels, self.workload.dilation[1]
        column = kw_folded * self.factor + c_folded // channels - self.zeros
        if column % dilation or not 0 <= column < self.expanded_kw:
            return None
        return column // dilation, c_folded % channels

    @property
    def _kernel_channels(self) -> int:
        return self.workload.ci // self.workload.groups

    # ---- whole arrays ------------------------------------------------------------------------------------------------

    def fold_input(self, x: np.ndarray) -> np.ndarray:
        """Return `x` [..., w, ci] as [..., width, factor*ci]; a view of a dense `x` if no data moves."""
        import numpy as np

        w = self.workload
        if self.moves_data:
            _, left, _, right = w.padding
            tail = self.width * self.factor - (left + w.w + right)
            x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(left, right + tail), (0, 0)])
        return x.reshape(*x.shape[:-2], self.width, self.factor * w.ci)

    def unfold_input(self, folded: np.ndarray) -> np.ndarray:
        """Return the inverse of `fold_input`: [..., w, ci] without padding and tail."""
        w = self.workload
        rows = folded.reshape(*folded.shape[:-2], self.width * self.factor, w.ci)
        return rows[..., self.shift : self.shift + w.w, :]

    def fold_weights(self, weights: np.ndarray) -> np.ndarray:
        """Return `weights` [..., kw, ci/groups] as [..., kernel_width, factor*ci/groups], with zeros where there is no
        tap."""
        import numpy as np

        *rest, _, channels = weights.shape
        columns = np.zeros((*rest, self.kernel_width * self.factor, channels), weights.dtype)
        columns[..., self._taps, :] = weights
        return columns.reshape(*rest, self.kernel_width, self.factor * channels)

    def unfold_weights(self, folded: np.ndarray) -> np.ndarray:
        """Return the inverse of `fold_weights`: [..., kw, ci/groups]."""
        *rest, _, channels = folded.shape
        columns = folded.reshape(*rest, self.kernel_width * self.factor, channels // self.factor)
        return columns[..., self._taps, :]

    @property
    def _taps(self) -> slice:
        """The columns of the unfolded kernel, including zeros, that hold taps."""
        return slice(self.zeros, self.zeros + self.expanded_kw, self.workload.dilation[1])
