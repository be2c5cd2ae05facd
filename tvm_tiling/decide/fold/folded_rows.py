"""Geometry of a W-fold convolution on a CPU, where a vector takes the role of a row of M bytes.

A stride along W is first folded into channels, together with the convolution's padding: column x of the image is at
position x + left of a row, and position p is in folded column p // fold, as channels (p % fold) * ci + c. Kernels
dilated along W are then expanded; without a stride they keep their dilation, since any folded column may start a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import UnsupportedOperator
from ...figures import quantity
from ...workload import ConvWorkload
from ..conv.shape import Axis, shapes_of
from ..gemm.traffic import ceil_div


@dataclass(frozen=True)
class FoldedRows:
    """Sizes in elements, positions and lanes; see the module docstring. `w` is the folded axis, with stride 1."""

    n: int
    h: Axis
    w: Axis
    ci: int  # channels of the image
    co: int
    fold: int  # columns folded into channels
    left: int  # padding in front of column 0, before folding
    span: int  # columns of the expanded kernel, before folding
    dilation: int  # dilation of the kernel
    ws: int  # adjacent columns in a row
    lanes: int  # lanes per column: R
    group: int  # elements per lane

    @classmethod
    def of(cls, workload: ConvWorkload, group: int, lanes: int, ws: int) -> FoldedRows:
        """Return rows of `lanes` lanes with `ws` columns each. Raises UnsupportedOperator if that is not admissible."""
        c = workload
        found = {
            quantity(c.groups, "group"): c.groups > 1,
            f"depth {c.d} with {quantity(c.kd, 'tap')}": c.d > 1 or c.kd > 1 or any(c.padding_d),
            "a transposed one": c.transposed,
        }
        if any(found.values()):
            raise UnsupportedOperator(
                "algorithm = 'wfold' requires a two-dimensional convolution with one group, not "
                + " and ".join(what for what, applies in found.items() if applies)
            )
        shape = shapes_of(c)[0]
        sw, w = shape.w.stride, shape.w
        folded = w
        if sw > 1:
            size = ceil_div(c.padding[1] + c.w + c.padding[3], sw)
            folded = replace(w, size=size, taps=ceil_div(w.span, sw), stride=1, dilation=1, start=0)
        if ws > folded.size:
            raise UnsupportedOperator(f"algorithm 'wfold' cannot fold ws = {ws} columns: a row has {folded.size}")
        return cls(c.n, shape.h, folded, c.ci, c.co, sw, c.padding[1], w.span, w.dilation, ws, lanes // ws, group)

    @cached_property
    def channels(self) -> int:
        """Channels of a folded column."""
        return self.ci * self.fold

    @cached_property
    def pci(self) -> int:
        """Elements of a block of channels."""
        return self.lanes * self.group

    @cached_property
    def bci(self) -> int:
        """Number of blocks of channels."""
        return ceil_div(self.channels, self.pci)

    @cached_property
    def steps(self) -> int:
        """Multiply steps for ws points of an output channel."""
        return self.h.taps * self.w.taps * self.bci

    @cached_property
    def columns(self) -> int:
        """Folded columns of the band: those that whole rows of points read, rounded up to whole rows."""
        read = ceil_div(self.w.points, self.ws) * self.ws + (self.w.taps - 1) * self.w.dilation
        return ceil_div(read, self.ws) * self.ws

    def filled(self, columns: int) -> list[tuple[int, int, int, int]]:
        """Return (first, count, from, to): folded columns whose channels [from, to) are inside an image of `columns`
        columns."""
        end = min(self.left + columns, self.columns * self.fold)
        whole = (-(-self.left // self.fold), end // self.fold)
        found = []
        for x in range(self.left // self.fold, -(-end // self.fold)):
            if whole[0] <= x < whole[1]:
                continue
            part = (max(0, self.left - x * self.fold) * self.ci, min(self.fold, end - x * self.fold) * self.ci)
            found.append((x, 1, *part))
        if whole[1] > whole[0]:
            found.append((whole[0], whole[1] - whole[0], 0, self.channels))
        return found
