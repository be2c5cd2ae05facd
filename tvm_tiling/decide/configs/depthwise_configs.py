"""Configurations of a depthwise convolution on a CPU.

microkernel                rows, columns and vectors of the register tile
threads                    division of the tiles of rows and of the panels of channels among cores
channels                   channels of a block that stays in L1
walk_rows, walk_columns    whether a tile is one row (one column) and loops over its taps inside the image
lanes_along                "channels" or "columns", depending on the layout
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import HardwareError
from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import ConvAlgorithms
from ..conv.depthwise import TILES_APART, UNROLLED, WIDEST_KERNEL, DepthwiseChoice, DepthwiseConfig, apart
from ..gemm.traffic import ceil_div
from ..tiling import Decision
from .choice_configs import ChoiceConfigs
from .record import Blocks, Config, Value
from .rule import changed, fewer, halves_and_doubles, integer, integers, one_of, refuse_registers

# Accumulators, in vectors of channels, of a tile of one point that loops over its taps.
WALKED_VECTORS = 8


class DepthwiseConfigs(ChoiceConfigs[DepthwiseConfig]):
    """Configurations of one convolution. Raises UnsupportedOperator unless there is one group per channel."""

    forms, name = ("depthwise",), "depthwise"

    choice: DepthwiseChoice

    def __init__(self, convolution: ConvAlgorithms) -> None:
        source = convolution.source
        self.all, self.cpu = convolution, convolution.cpu
        self.choice = DepthwiseChoice(
            convolution.w, self.cpu, source.channel_run, source.output_run, convolution.packing == "ahead"
        )
        self.shape, self.lanes = self.choice.shape, self.choice.lanes
        self.along = "channels" if self.choice.by_channel else "columns"

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
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

        return Config.of(
            "conv",
            "depthwise",
            choices,
            (
                level("core", ceil_div(s.h.points, t.threads_rows or 1), s.w.points, s.groups),
                level("L1", s.h.points, t.tile_columns, channels),
                level("registers", t.tile_rows, t.tile_columns, tile_channels),
            ),
        )

    def near(self, config: Config) -> Iterator[Config]:
        """Yield tiles and blocks of half and twice the size."""
        s = self.shape
        rows, columns, vectors = integers(config, "microkernel", 3)
        if self.choice.by_channel:
            panel = vectors * self.lanes
            for channels in halves_and_doubles(integer(config, "channels"), panel, ceil_div(s.groups, panel) * panel):
                yield changed(config, channels=channels)
            if not config.choice("walk_columns"):
                for other in (columns - 1, columns + 1, *halves_and_doubles(columns, 1, s.w.points)):
                    if 0 < other <= s.w.points:
                        yield changed(config, microkernel=(rows, other, vectors))
        elif not config.choice("walk_rows"):
            for other in halves_and_doubles(rows, 1, s.h.points):
                yield changed(config, microkernel=(other, columns, vectors))

    def fits(self, config: Config) -> bool:
        """Return whether the input under a column of tiles stays in L1."""
        _, columns, _ = integers(config, "microkernel", 3)
        under = self.choice.under(columns, integer(config, "channels"))
        return not self.choice.by_channel or under <= self.choice.core.l1

    def _candidate(self, config: Config) -> DepthwiseConfig:
        """Return the configuration clipped to the shape."""
        s, choice = self.shape, self.choice
        if one_of(config, "lanes_along", ("channels", "columns")) != self.along:
            raise HardwareError(
                f"config: lanes_along = {config.choice('lanes_along')!r}, but here adjacent channels are "
                f"{'contiguous' if choice.by_channel else 'not contiguous'}; expected {self.along!r}"
            )
        rows, columns, vectors = integers(config, "microkernel", 3)
        walk_rows = bool(one_of(config, "walk_rows", (True, False)))
        walk_columns = bool(one_of(config, "walk_columns", (True, False)))
        if choice.dot is not None:
            rows, columns, vectors = min(rows, s.h.points), min(columns, s.w.points), 1
            walk_rows = walk_columns = False
            refuse_registers(rows * columns + 4, self.cpu.vector_registers, f"{rows} x {columns}")
        elif choice.by_channel:
            rows, walk_rows = 1, True
            columns, vectors, walk_columns = self._wide(columns, vectors, walk_columns)
        else:
            rows, columns, vectors, walk_rows = self._tall(rows, vectors, walk_rows)
            walk_columns = False
        panel = vectors * self.lanes
        channels = self.lanes
        if choice.by_channel:
            channels = min(max(1, integer(config, "channels") // panel), ceil_div(s.groups, panel)) * panel
        most = (choice.units(s, rows, columns), choice.panels(vectors))
        tr, tn = fewer(integers(config, "threads", 2), most, self.cpu.cores)
        return DepthwiseConfig((tr, tn), rows, columns, vectors, channels, walk_rows, walk_columns)

    def _wide(self, columns: int, vectors: int, walked: bool) -> tuple[int, int, bool]:
        """Return (columns, vectors, loop over columns) of a tile of one row with lanes along channels."""
        s = self.shape
        vectors = min(vectors, ceil_div(s.groups, self.lanes))
        columns = min(columns, s.w.points)
        if walked or s.w.taps > WIDEST_KERNEL or apart(s.w, columns) > TILES_APART:
            return 1, min(vectors, WALKED_VECTORS), True
        needed = (columns + min(s.w.taps, WIDEST_KERNEL // 2)) * vectors + 4
        refuse_registers(needed, self.cpu.vector_registers, f"1 x {columns} x {vectors}")
        return columns, vectors, False

    def _tall(self, rows: int, vectors: int, walked: bool) -> tuple[int, int, int, bool]:
        """Return (rows, columns, vectors, loop over rows) of a tile with lanes along columns."""
        s = self.shape
        if s.w.taps > WIDEST_KERNEL or apart(s.w, self.lanes) > TILES_APART:
            raise HardwareError(
                f"config: algorithm = 'depthwise' with lanes along columns unrolls {s.w.taps} taps of a row and the "
                f"padding; expected at most {WIDEST_KERNEL} taps and padding of at most {TILES_APART} vectors"
            )
        vectors = min(vectors, 2, ceil_div(s.w.points, self.lanes))
        rows = min(rows, s.h.points)
        taps = max(1, s.h.taps * s.w.taps)
        if walked or rows * vectors * taps > UNROLLED or apart(s.h, rows) > TILES_APART:
            rows, walked = 1, True
        return rows, min(vectors * self.lanes, s.w.points), vectors, walked
