"""Cuts of a depthwise convolution on a CPU.

microkernel                rows, columns and vectors of the register tile
threads                    shares of the tiles of rows, and of the panels of channels
channels                   of a block that stays in the first cache
walk_rows, walk_columns    a tile is one row (one column), and loops over its taps inside the image
lanes_along                "channels" or "columns", as the layout has it
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import HardwareError
from ..conv.cpu_conv import ConvForms
from ..conv.depthwise import TILES_APART, UNROLLED, WIDEST_KERNEL, DepthwiseChoice, DepthwiseCut, apart
from ..conv.conv_tiling import ConvTiling
from ..gemm.traffic import ceil_div
from ..tiling import Decision
from .record import Blocks, Cut, Value
from .rule import Undivided, changed, fewer, halves_and_doubles, integer, integers, one_of, refuse_registers

# Sums of a walked tile of one point, in vectors of channels.
WALKED_VECTORS = 8


class DepthwiseCuts(Undivided):
    """Cuts of one convolution; UnsupportedOperator where it has not a group for each channel."""

    forms, name = ("depthwise",), "depthwise"

    def __init__(self, convolution: ConvForms) -> None:
        source = convolution.source
        self.all, self.cpu = convolution, convolution.cpu
        self.choice = DepthwiseChoice(
            convolution.w, self.cpu, source.channel_run, source.output_run, convolution.packing == "ahead"
        )
        self.shape, self.lanes = self.choice.shape, self.choice.lanes
        self.along = "channels" if self.choice.by_channel else "columns"

    def cut_of(self, tiling: Decision) -> Cut:
        """What a decision settles."""
        t, s = tiling, self.shape
        assert isinstance(t, ConvTiling) and t.tile_rows and t.tile_columns and t.vectors and t.columns
        choices: dict[str, Value] = {
            "microkernel": (t.tile_rows, t.tile_columns, t.vectors),
            "threads": (t.threads_rows or 1, t.threads_columns or 1),
            "channels": t.columns,
            "walk_rows": bool(t.walk_rows),
            "walk_columns": bool(t.walk_columns),
            "lanes_along": str(t.lanes_along),
        }
        taps = max(1, s.d.taps * s.h.taps * s.w.taps)
        tile_channels = min(s.groups, t.vectors * self.lanes) if self.choice.by_channel else 1
        channels = min(s.groups, t.columns) if self.choice.by_channel else 1

        def level(name: str, rows: int, columns: int, many: int) -> Blocks:
            left = (s.h.reach(rows), s.w.reach(columns), many)
            return Blocks(level=name, left=left, right=(taps, 1, many), result=(rows, columns, many))

        return Cut.of(
            "conv",
            "depthwise",
            choices,
            (
                level("core", ceil_div(s.h.points, t.threads_rows or 1), s.w.points, s.groups),
                level("L1", s.h.points, t.tile_columns, channels),
                level("registers", t.tile_rows, t.tile_columns, tile_channels),
            ),
        )

    def tiling_of(self, cut: Cut) -> ConvTiling:
        """The decision that a cut stands for here."""
        candidate = self._candidate(cut)
        return self.choice.tiling(candidate, self.choice.cycles(candidate))

    def cost(self, cut: Cut) -> float:
        """Predicted seconds."""
        return self.all.seconds(self.choice.cycles(self._candidate(cut)))

    def decided(self) -> Cut | None:
        """None: it is the one of least cost."""
        return None

    def candidates(self) -> Iterator[Cut]:
        """Every candidate of the decision."""
        for candidate in self.choice.cuts():
            yield self.cut_of(self.choice.tiling(candidate, 1.0))

    def near(self, cut: Cut) -> Iterator[Cut]:
        """Tiles and blocks of half and twice the size."""
        s = self.shape
        rows, columns, vectors = integers(cut, "microkernel", 3)
        if self.choice.by_channel:
            panel = vectors * self.lanes
            for channels in halves_and_doubles(integer(cut, "channels"), panel, ceil_div(s.groups, panel) * panel):
                yield changed(cut, channels=channels)
            if not cut.choice("walk_columns"):
                for other in (columns - 1, columns + 1, *halves_and_doubles(columns, 1, s.w.points)):
                    if 0 < other <= s.w.points:
                        yield changed(cut, microkernel=(1, other, vectors))
        elif not cut.choice("walk_rows"):
            for other in halves_and_doubles(rows, 1, s.h.points):
                yield changed(cut, microkernel=(other, columns, vectors))

    def fits(self, cut: Cut) -> bool:
        """Whether what lies under a column of tiles stays in the first cache."""
        _, columns, _ = integers(cut, "microkernel", 3)
        under = self.choice.under(columns, integer(cut, "channels"))
        return not self.choice.by_channel or under <= self.choice.core.l1

    def _candidate(self, cut: Cut) -> DepthwiseCut:
        """The cut clipped to the shape."""
        s, choice = self.shape, self.choice
        if one_of(cut, "lanes_along", ("channels", "columns")) != self.along:
            raise HardwareError(
                f"cut: lanes_along = {cut.choice('lanes_along')!r}, here neighbouring channels are "
                f"{'adjacent' if choice.by_channel else 'not adjacent'}; accepted: {self.along!r}"
            )
        rows, columns, vectors = integers(cut, "microkernel", 3)
        walk_rows = bool(one_of(cut, "walk_rows", (True, False)))
        walk_columns = bool(one_of(cut, "walk_columns", (True, False)))
        if choice.by_channel:
            rows, walk_rows = 1, True
            columns, vectors, walk_columns = self._wide(columns, vectors, walk_columns)
        else:
            rows, columns, vectors, walk_rows = self._tall(rows, vectors, walk_rows)
            walk_columns = False
        panel = vectors * self.lanes
        channels = self.lanes
        if choice.by_channel:
            channels = min(max(1, integer(cut, "channels") // panel), ceil_div(s.groups, panel)) * panel
        most = (choice.units(s, rows, columns), choice.panels(vectors))
        tr, tn = fewer(integers(cut, "threads", 2), most, self.cpu.cores)
        return DepthwiseCut((tr, tn), rows, columns, vectors, channels, walk_rows, walk_columns)

    def _wide(self, columns: int, vectors: int, walked: bool) -> tuple[int, int, bool]:
        """(columns, vectors, columns walked) of a tile of one row whose lanes are channels."""
        s = self.shape
        vectors = min(vectors, ceil_div(s.groups, self.lanes))
        columns = min(columns, s.w.points)
        if walked or s.w.taps > WIDEST_KERNEL or apart(s.w, columns) > TILES_APART:
            return 1, min(vectors, WALKED_VECTORS), True
        needed = (columns + min(s.w.taps, WIDEST_KERNEL // 2)) * vectors + 4
        refuse_registers(needed, self.cpu.vector_registers, f"1 x {columns} x {vectors}")
        return columns, vectors, False

    def _tall(self, rows: int, vectors: int, walked: bool) -> tuple[int, int, int, bool]:
        """(rows, columns, vectors, rows walked) of a tile whose lanes are columns."""
        s = self.shape
        if s.w.taps > WIDEST_KERNEL or apart(s.w, self.lanes) > TILES_APART:
            raise HardwareError(
                f"cut: form = 'depthwise' with lanes along columns unrolls {s.w.taps} taps of a row and the border; "
                f"accepted: at most {WIDEST_KERNEL} taps and borders of some vectors"
            )
        vectors = min(vectors, 2, ceil_div(s.w.points, self.lanes))
        rows = min(rows, s.h.points)
        taps = max(1, s.h.taps * s.w.taps)
        if walked or rows * vectors * taps > UNROLLED or apart(s.h, rows) > TILES_APART:
            rows, walked = 1, True
        return rows, min(vectors * self.lanes, s.w.points), vectors, walked
