"""Configurations of W-fold and Winograd convolutions on a CPU.

wfold      ws: adjacent columns in a vector; microkernel: vectors of points and output channels of the register tile;
           threads: division of output rows and channels among cores; band: output rows copied at once; inner_order
winograd   m: outputs of an image tile in each direction; microkernel: rows and vectors; threads: division of image
           tiles and output channels among cores; block_tiles, block_channels: transformed, and summed, at once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...errors import DatabaseError, UnsupportedOperator
from ...figures import quantity
from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import ConvAlgorithms
from ..conv.winograd import (
    WinogradModel,
    WinogradTiling,
    accepted_error,
    admissible,
    candidates,
    predicted_error,
    refusal,
)
from ..fold.cpu_wfold import MOST_CHANNELS, WFoldConfig, WFoldModel
from ..gemm.traffic import ceil_div
from ..tiling import Decision
from .record import Blocks, Config, Value
from .rule import changed, fewer, halves_and_doubles, integer, integers, order, refuse_registers

CHANNELS = tuple(1 << bit for bit in range(MOST_CHANNELS.bit_length()))


class WFoldConfigs:
    """Configurations of the algorithm "wfold" for one convolution. Raises UnsupportedOperator if no granularity is
    admissible."""

    forms, name = ("wfold",), "wfold"

    def __init__(self, convolution: ConvAlgorithms) -> None:
        source = convolution.source
        self.all, self.cpu = convolution, convolution.cpu
        self.model = WFoldModel(
            convolution.w,
            self.cpu,
            input_run=source.channel_run,
            output_run=source.output_run,
            prepacked=convolution.packing == "ahead",
        )
        self.rows = {rows.ws: rows for rows in self.model.admissible}

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        t = tiling
        assert isinstance(t, ConvTiling) and t.ws and t.tile_columns and t.columns and t.keep_rows
        choices: dict[str, Value] = {
            "ws": t.ws,
            "microkernel": (t.tile_columns // t.ws, t.columns),
            "threads": (t.threads_rows or 1, t.threads_columns or 1),
            "band": t.keep_rows,
            "inner_order": str(t.inner_order),
        }
        rows = self.rows[t.ws]
        taps = rows.h.taps * rows.w.taps

        def level(name: str, high: int, wide: int, channels: int) -> Blocks:
            left = (rows.h.reach(high), rows.w.reach(wide), rows.channels)
            return Blocks(level=name, left=left, right=(taps, rows.channels, channels), result=(high, wide, channels))

        shares = (ceil_div(rows.n * rows.h.points, t.threads_rows or 1), ceil_div(rows.co, t.threads_columns or 1))
        levels = (
            level("core", shares[0], rows.w.points, shares[1]),
            level("L2", t.keep_rows, rows.w.points, shares[1]),
            level("L1", 1, t.tile_columns, t.columns),
        )
        return Config.of("conv", "wfold", choices, levels)

    def tiling_of(self, config: Config) -> ConvTiling:
        """Return the decision of a configuration for this shape."""
        candidate = self._candidate(config)
        return self.model.tiling(candidate, self.model.cycles(candidate), "as given by the configuration")

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.all.seconds(self.model.cycles(self._candidate(config)))

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return the predicted cycles by cause."""
        return self.model.parts(self._candidate(config))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision."""
        for candidate in self.model.configs():
            yield self.config_of(self.model.tiling(candidate, 1.0, ""))

    def near(self, config: Config) -> Iterator[Config]:
        """Yield bands of half and twice the size, the other loop order, and a tile with one vector fewer."""
        rows = self.rows[integer(config, "ws")]
        vectors, channels = integers(config, "microkernel", 2)
        for band in halves_and_doubles(integer(config, "band"), 1, rows.h.points):
            yield changed(config, band=band)
        yield changed(config, inner_order="nm" if order(config) == "mn" else "mn")
        if vectors > 1:
            yield changed(config, microkernel=(vectors - 1, channels))

    def fits(self, config: Config) -> bool:
        """Return whether a band stays in L2."""
        rows = self.rows[integer(config, "ws")]
        row = rows.bci * rows.columns * rows.pci * self.model.plain.element
        return row * rows.h.reach(integer(config, "band")) <= self.model.core.l2

    def _candidate(self, config: Config) -> WFoldConfig:
        """Return the configuration clipped to the shape."""
        ws = integer(config, "ws")
        if ws not in self.rows:
            raise UnsupportedOperator(
                f"config: ws = {ws} columns do not suit vectors of {self.model.lanes} lanes and this convolution's "
                "rows; "
                f"expected {', '.join(map(str, self.rows))}"
            )
        rows = self.rows[ws]
        vectors, channels = integers(config, "microkernel", 2)
        if channels not in CHANNELS:
            raise DatabaseError(
                f"config: microkernel has {channels} output channels; expected {', '.join(map(str, CHANNELS))}"
            )
        needed = vectors * (channels + 1) + channels
        refuse_registers(needed, self.cpu.vector_registers, f"{vectors} x {channels}")
        while channels >= 2 * rows.co:
            channels //= 2
        vectors = min(vectors, ceil_div(rows.w.points, ws))
        most = (rows.n * rows.h.points, ceil_div(rows.co, channels))
        tr, tn = fewer(integers(config, "threads", 2), most, self.cpu.cores)
        band = min(integer(config, "band"), rows.h.points)
        return WFoldConfig(rows, vectors, channels, (tr, tn), order(config) == "mn", band)


class WinogradConfigs:
    """Configurations of Winograd's algorithm for one convolution. Raises UnsupportedOperator if no tile is accurate
    enough."""

    forms, name = ("winograd",), "winograd"

    def __init__(self, convolution: ConvAlgorithms) -> None:
        if not convolution.winograd_allowed:
            raise UnsupportedOperator("algorithm = 'winograd' is disabled by winograd=False")
        w, source = convolution.w, convolution.source
        if why := refusal(w):
            raise UnsupportedOperator(f"conv: {why}")
        sizes = admissible(w, convolution.tolerance)
        if not sizes:
            accepted = accepted_error(w, convolution.tolerance)
            raise UnsupportedOperator(f"conv: the predicted error of Winograd convolution exceeds {accepted:.1e}")
        self.all, self.cpu, self.w = convolution, convolution.cpu, w
        adjacent = (source.channel_run > 1 or w.ci == 1, source.output_run > 1 or w.co == 1)
        prepacked = convolution.packing == "ahead"
        self.models = {m: WinogradModel(w, self.cpu, m, prepacked, adjacent) for m in sizes}

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        assert isinstance(tiling, ConvTiling) and tiling.winograd is not None
        return self._config(tiling.winograd)

    def _config(self, t: WinogradTiling) -> Config:
        w, points = self.w, t.points**2
        choices: dict[str, Value] = {
            "m": t.m,
            "microkernel": (t.rows, t.vectors),
            "threads": (t.threads_tiles, t.threads_channels),
            "block_tiles": t.block_tiles,
            "block_channels": t.block_channels,
        }

        def level(name: str, tiles: int, channels: int) -> Blocks:
            return Blocks(
                level=name, left=(points, tiles, w.ci), right=(points, w.ci, channels), result=(points, tiles, channels)
            )

        tiles = ceil_div(self.models[t.m].tiles, t.threads_tiles)
        levels = (
            level("core", tiles, ceil_div(w.co, t.threads_channels)),
            level("L2", t.block_tiles, t.block_channels),
            level("L1", t.rows, t.vectors * t.lanes),
        )
        return Config.of("conv", "winograd", choices, levels)

    def tiling_of(self, config: Config) -> ConvTiling:
        """Return the decision of a configuration for this shape."""
        return self.all.winograd_tiling(self._candidate(config))

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.all.seconds(self._candidate(config).predicted_cycles)

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return the predicted cycles by cause."""
        return self.models[integer(config, "m")].parts(self._candidate(config))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision."""
        yield from map(self._config, candidates(self.models))

    def near(self, config: Config) -> Iterator[Config]:
        """Yield blocks of half and twice the size."""
        model = self.models[integer(config, "m")]
        rows, vectors = integers(config, "microkernel", 2)
        panel = vectors * model.lanes
        for tiles in halves_and_doubles(integer(config, "block_tiles"), rows, ceil_div(model.tiles, rows) * rows):
            yield changed(config, block_tiles=tiles)
        most = ceil_div(self.w.co, panel) * panel
        for channels in halves_and_doubles(integer(config, "block_channels"), panel, most):
            yield changed(config, block_channels=channels)

    def fits(self, config: Config) -> bool:
        """Return whether a block's inputs and sums stay in L2 together."""
        model, tiles = self.models[integer(config, "m")], integer(config, "block_tiles")
        return 4 * model.points * tiles * (self.w.ci + integer(config, "block_channels")) <= model.gemm.l2

    def _candidate(self, config: Config) -> WinogradTiling:
        """Return the configuration clipped to the shape."""
        m = integer(config, "m")
        if m not in self.models:
            raise UnsupportedOperator(
                f"config: m = {m} is not a Winograd tile size of this kernel, or not accurate enough for "
                f"{quantity(self.w.ci, 'channel')}; expected {', '.join(map(str, self.models))}"
            )
        model = self.models[m]
        rows, vectors = integers(config, "microkernel", 2)
        refuse_registers((rows + 1) * vectors + 1, self.cpu.vector_registers, f"{rows} x {vectors}")
        vectors = min(vectors, ceil_div(self.w.co, model.lanes))
        panel, rows = vectors * model.lanes, min(rows, model.tiles)
        most = (ceil_div(model.tiles, rows), ceil_div(self.w.co, panel))
        tiles, channels = fewer(integers(config, "threads", 2), most, self.cpu.cores)
        share = ceil_div(model.tiles, tiles)
        found = WinogradTiling(
            m=m,
            points=model.a,
            rows=rows,
            vectors=vectors,
            lanes=model.lanes,
            block_tiles=min(max(1, integer(config, "block_tiles") // rows), ceil_div(share, rows)) * rows,
            block_channels=min(max(1, integer(config, "block_channels") // panel), ceil_div(most[1], channels)) * panel,
            threads_tiles=tiles,
            threads_channels=channels,
            pack_w=self.all.packing,
            predicted_error=predicted_error(self.w, m),
        )
        return replace(found, predicted_cycles=model.cycles(found))
