"""Stride-fold: a stride along W is folded into channels, so that a convolution of stride 1 is left (page 05).

Columns and channels are neighbours in memory, so sw columns of ci channels are one column of sw*ci channels:

    input   H x W x Ci         ->  H x ceil(W/sw) x (sw*Ci)
    kernel  Co x Kh x Kw x Ci  ->  Co x Kh x ceil(Kw/sw) x (sw*Ci), zeros where the kernel has no tap
    stride  sw                 ->  1

A step of one folded column is a step of sw columns. What is left is where folded columns start. An output point reads
columns from sw*i - left on, left being the border:

- sw divides W: the image is folded as it lies, from its column 0 on, and no data moves. Window i then starts inside a
  folded column unless sw divides left. It is made to start where a folded column does by (-left mod sw) zeros in front
  of the kernel, which need one folded column more where they do not fit the kernel's own rest; the border becomes
  ceil(left/sw) folded columns.
- sw does not divide W: rows would start at different places of a folded column. They are written once with the
  convolution's own border and zeros up to a multiple of sw behind; the border is part of them then.

The width of the border on the right is what the output needs. A folded window may end beyond the last column that the
plain one reads, so at most one point more than the plain output has may come out: it is dropped (`surplus`).

Kernels dilated along W are expanded first. Folding interleaves the channels of groups, so there must be one group.
Rows, depth and images are untouched: their stride, dilation and border stay.
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
    """The index map of a stride-fold and its inverse. Source: page 05.

    Coordinates are those of page 05: rows y, columns x, channels c, taps kw; folded ones are `x_folded`, `kw_folded`,
    `c_folded`. With a stride of 1 the map is the identity, but for a dilated kernel, which is expanded all the same.

    UnsupportedOperator for a transposed convolution, and for several groups where the stride exceeds 1.
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
        """Columns that become one: the stride along W."""
        return self.workload.stride[1]

    @property
    def moves_data(self) -> bool:
        """Whether rows must be written anew, with their border, because the factor does not divide W."""
        return self.workload.w % self.factor != 0

    @property
    def width(self) -> int:
        """Folded columns of a row."""
        _, left, _, right = self.workload.padding
        border = left + right if self.moves_data else 0
        return ceil_div(self.workload.w + border, self.factor)

    @property
    def shift(self) -> int:
        """Columns in front of column 0 that a folded row begins with: the left border where data moves."""
        return self.workload.padding[1] if self.moves_data else 0

    @property
    def left(self) -> int:
        """Folded columns of the border on the left."""
        return 0 if self.moves_data else ceil_div(self.workload.padding[1], self.factor)

    @property
    def zeros(self) -> int:
        """Zero columns in front of the kernel, before it is folded."""
        return 0 if self.moves_data else -self.workload.padding[1] % self.factor

    @property
    def expanded_kw(self) -> int:
        """Columns of the kernel with zeros between dilated taps."""
        return self.workload.dilation[1] * (self.workload.kw - 1) + 1

    @property
    def kernel_width(self) -> int:
        """Columns of the folded kernel."""
        return ceil_div(self.zeros + self.expanded_kw, self.factor)

    @property
    def right(self) -> int:
        """Folded columns of the border on the right: what the output needs."""
        return max(0, self.workload.wo - 1 + self.kernel_width - self.left - self.width)

    @property
    def surplus(self) -> int:
        """Points at the end of an output row that are dropped: 0 or 1."""
        return self.folded().wo - self.workload.wo

    def folded(self) -> ConvWorkload:
        """The folded convolution: stride 1 and no dilation along W, factor * ci channels, `surplus` points too many."""
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

    # ---- the input's map: whole numbers or any expressions with + - * // % -------------------------------------------

    def fold_index(self, y: Any, x: Any, c: Any) -> tuple[Any, Any, Any]:
        """Where input element (y, x, c) lies in the folded input: (y, x_folded, c_folded).

        Columns of the border, x < 0 or x >= w, have places too; x_folded < 0 lies in the folded border.
        """
        column = x + self.shift
        return y, column // self.factor, column % self.factor * self.workload.ci + c

    def unfold_index(self, y: Any, x_folded: Any, c_folded: Any) -> tuple[Any, Any, Any]:
        """The inverse of `fold_index`: (y, x, c). The element is a zero where not 0 <= x < w."""
        ci = self.workload.ci
        return y, x_folded * self.factor + c_folded // ci - self.shift, c_folded % ci

    # ---- the kernel's map --------------------------------------------------------------------------------------------

    def fold_tap(self, kw: Any, c: Any) -> tuple[Any, Any]:
        """Where tap kw of channel c (of the group's ci/groups) lies in the folded kernel: (kw_folded, c_folded)."""
        column = kw * self.workload.dilation[1] + self.zeros
        return column // self.factor, column % self.factor * self._kernel_channels + c

    def unfold_tap(self, kw_folded: int, c_folded: int) -> tuple[int, int] | None:
        """The inverse of `fold_tap`: (kw, c), or None where the folded kernel has a zero."""
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
        """`x` [..., w, ci] as [..., width, factor*ci]; where no data moves, a view of a dense `x`."""
        import numpy as np

        w = self.workload
        if self.moves_data:
            _, left, _, right = w.padding
            tail = self.width * self.factor - (left + w.w + right)
            x = np.pad(x, [(0, 0)] * (x.ndim - 2) + [(left, right + tail), (0, 0)])
        return x.reshape(*x.shape[:-2], self.width, self.factor * w.ci)

    def unfold_input(self, folded: np.ndarray) -> np.ndarray:
        """The inverse of `fold_input`: [..., w, ci] without border and tail."""
        w = self.workload
        rows = folded.reshape(*folded.shape[:-2], self.width * self.factor, w.ci)
        return rows[..., self.shift : self.shift + w.w, :]

    def fold_weights(self, weights: np.ndarray) -> np.ndarray:
        """`weights` [..., kw, ci/groups] as [..., kernel_width, factor*ci/groups], zeros where there is no tap."""
        import numpy as np

        *rest, _, channels = weights.shape
        columns = np.zeros((*rest, self.kernel_width * self.factor, channels), weights.dtype)
        columns[..., self._taps, :] = weights
        return columns.reshape(*rest, self.kernel_width, self.factor * channels)

    def unfold_weights(self, folded: np.ndarray) -> np.ndarray:
        """The inverse of `fold_weights`: [..., kw, ci/groups]."""
        *rest, _, channels = folded.shape
        columns = folded.reshape(*rest, self.kernel_width * self.factor, channels // self.factor)
        return columns[..., self._taps, :]

    @property
    def _taps(self) -> slice:
        """The columns of the unfolded kernel, zeros included, that hold taps."""
        return slice(self.zeros, self.zeros + self.expanded_kw, self.workload.dilation[1])
