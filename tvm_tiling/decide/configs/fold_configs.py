"""Cuts of a W-folded convolution on a CPU (page 05), and of Winograd's form.

wfold      ws: neighbours of a vector; microkernel: vectors of points and output channels of the register tile;
           threads: shares of output rows and channels; band: output rows copied at once; inner_order
winograd   m: outputs of an image tile in each direction; microkernel: rows and vectors; threads: shares of image
           tiles and output channels; block_tiles, block_channels: transformed, and summed, at once
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...errors import DatabaseError, UnsupportedOperator
from ..conv.cpu_conv import ConvForms
from ..conv.conv_tiling import ConvTiling
from ..conv.winograd import WinogradModel, WinogradTiling, accepted_error, admissible, predicted_error, refusal
from ..fold.cpu_wfold import MOST_CHANNELS, WFoldCut, WFoldModel
from ..gemm.traffic import ceil_div
from ..tiling import Decision
from .record import Blocks, Cut, Value
from .rule import changed, fewer, halves_and_doubles, integer, integers, order, refuse_registers

CHANNELS = tuple(1 << bit for bit in range(MOST_CHANNELS.bit_length()))


class WFoldCuts:
    """Cuts of form "wfold" of one convolution; UnsupportedOperator where no granularity is admissible."""

    forms, name = ("wfold",), "wfold"

    def __init__(self, convolution: ConvForms) -> None:
        source = convolution.source
        self.all, self.cpu = convolution, convolution.cpu
        self.model = WFoldModel(
            convolution.w,
            self.cpu,
            input_run=source.channel_run,
            output_run=source.output_run,
            ahead=convolution.packing == "ahead",
        )
        self.rows = {rows.ws: rows for rows in self.model.admissible}

    def cut_of(self, tiling: Decision) -> Cut:
        """What a decision settles."""
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
        return Cut.of("conv", "wfold", choices, levels)

    def tiling_of(self, cut: Cut) -> ConvTiling:
        """The decision that a cut stands for here."""
        candidate = self._candidate(cut)
        return self.model.tiling(candidate, self.model.cycles(candidate), "the cut's")

    def cost(self, cut: Cut) -> float:
        """Predicted seconds."""
        return self.all.seconds(self.model.cycles(self._candidate(cut)))

    def parts(self, cut: Cut) -> Mapping[str, float]:
        """What the predicted cycles are spent on."""
        return self.model.parts(self._candidate(cut))

    def decided(self) -> Cut | None:
        """None: it is the one of least cost."""
        return None

    def candidates(self) -> Iterator[Cut]:
        """Every candidate of the decision."""
        for candidate in self.model.cuts():
            yield self.cut_of(self.model.tiling(candidate, 1.0, ""))

    def near(self, cut: Cut) -> Iterator[Cut]:
        """Bands and tiles of half and twice the size, the other order, a vector fewer."""
        rows = self.rows[integer(cut, "ws")]
        vectors, channels = integers(cut, "microkernel", 2)
        for band in halves_and_doubles(integer(cut, "band"), 1, rows.h.points):
            yield changed(cut, band=band)
        yield changed(cut, inner_order="nm" if order(cut) == "mn" else "mn")
        if vectors > 1:
            yield changed(cut, microkernel=(vectors - 1, channels))

    def fits(self, cut: Cut) -> bool:
        """Whether a band stays in the second cache."""
        rows = self.rows[integer(cut, "ws")]
        row = rows.bci * rows.columns * rows.pci * self.model.plain.element
        return row * rows.h.reach(integer(cut, "band")) <= self.model.core.l2

    def _candidate(self, cut: Cut) -> WFoldCut:
        """The cut clipped to the shape."""
        ws = integer(cut, "ws")
        if ws not in self.rows:
            raise UnsupportedOperator(
                f"cut: ws = {ws} neighbours in a vector of {self.model.lanes} lanes and the rows of this convolution; "
                f"accepted: {', '.join(map(str, self.rows))}"
            )
        rows = self.rows[ws]
        vectors, channels = integers(cut, "microkernel", 2)
        if channels not in CHANNELS:
            raise DatabaseError(
                f"cut: microkernel has {channels} output channels; accepted: {', '.join(map(str, CHANNELS))}"
            )
        needed = vectors * (channels + 1) + channels
        refuse_registers(needed, self.cpu.vector_registers, f"{vectors} x {channels}")
        while channels >= 2 * rows.co:
            channels //= 2
        vectors = min(vectors, ceil_div(rows.w.points, ws))
        most = (rows.n * rows.h.points, ceil_div(rows.co, channels))
        tr, tn = fewer(integers(cut, "threads", 2), most, self.cpu.cores)
        band = min(integer(cut, "band"), rows.h.points)
        return WFoldCut(rows, vectors, channels, (tr, tn), order(cut) == "mn", band)


class WinogradCuts:
    """Cuts of Winograd's form of one convolution; UnsupportedOperator where no tile is accurate enough."""

    forms, name = ("winograd",), "winograd"

    def __init__(self, convolution: ConvForms) -> None:
        if not convolution.winograd_allowed:
            raise UnsupportedOperator("form = 'winograd' is switched off by winograd=False")
        w, source = convolution.w, convolution.source
        if why := refusal(w):
            raise UnsupportedOperator(f"conv: {why}")
        sizes = admissible(w, convolution.tolerance)
        if not sizes:
            accepted = accepted_error(w, convolution.tolerance)
            raise UnsupportedOperator(f"conv: Winograd's predicted error exceeds what is accepted, {accepted:.1e}")
        self.all, self.cpu, self.w = convolution, convolution.cpu, w
        adjacent = (source.channel_run > 1 or w.ci == 1, source.output_run > 1 or w.co == 1)
        ahead = convolution.packing == "ahead"
        self.models = {m: WinogradModel(w, self.cpu, m, ahead, adjacent) for m in sizes}

    def cut_of(self, tiling: Decision) -> Cut:
        """What a decision settles."""
        assert isinstance(tiling, ConvTiling) and tiling.winograd is not None
        return self._cut(tiling.winograd)

    def _cut(self, t: WinogradTiling) -> Cut:
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
        return Cut.of("conv", "winograd", choices, levels)

    def tiling_of(self, cut: Cut) -> ConvTiling:
        """The decision that a cut stands for here."""
        return self.all.winograd_tiling(self._candidate(cut))

    def cost(self, cut: Cut) -> float:
        """Predicted seconds."""
        return self.all.seconds(self._candidate(cut).predicted_cycles)

    def parts(self, cut: Cut) -> Mapping[str, float]:
        """What the predicted cycles are spent on."""
        return self.models[integer(cut, "m")].parts(self._candidate(cut))

    def decided(self) -> Cut | None:
        """None: it is the one of least cost."""
        return None

    def candidates(self) -> Iterator[Cut]:
        """Every candidate of the decision."""
        for model in self.models.values():
            yield from map(self._cut, model.cuts())

    def near(self, cut: Cut) -> Iterator[Cut]:
        """Blocks of half and twice the size."""
        model = self.models[integer(cut, "m")]
        rows, vectors = integers(cut, "microkernel", 2)
        panel = vectors * model.lanes
        for tiles in halves_and_doubles(integer(cut, "block_tiles"), rows, ceil_div(model.tiles, rows) * rows):
            yield changed(cut, block_tiles=tiles)
        most = ceil_div(self.w.co, panel) * panel
        for channels in halves_and_doubles(integer(cut, "block_channels"), panel, most):
            yield changed(cut, block_channels=channels)

    def fits(self, cut: Cut) -> bool:
        """Whether a block's inputs and sums stay in the second cache together."""
        model, tiles = self.models[integer(cut, "m")], integer(cut, "block_tiles")
        return 4 * model.points * tiles * (self.w.ci + integer(cut, "block_channels")) <= model.gemm.l2

    def _candidate(self, cut: Cut) -> WinogradTiling:
        """The cut clipped to the shape."""
        m = integer(cut, "m")
        if m not in self.models:
            raise UnsupportedOperator(
                f"cut: m = {m} outputs of an image tile are no tile of this kernel, or not accurate enough for "
                f"{self.w.ci} channels; accepted: {', '.join(map(str, self.models))}"
            )
        model = self.models[m]
        rows, vectors = integers(cut, "microkernel", 2)
        refuse_registers((rows + 1) * vectors + 1, self.cpu.vector_registers, f"{rows} x {vectors}")
        vectors = min(vectors, ceil_div(self.w.co, model.lanes))
        panel, rows = vectors * model.lanes, min(rows, model.tiles)
        most = (ceil_div(model.tiles, rows), ceil_div(self.w.co, panel))
        tiles, channels = fewer(integers(cut, "threads", 2), most, self.cpu.cores)
        share = ceil_div(model.tiles, tiles)
        found = WinogradTiling(
            m=m,
            points=model.a,
            rows=rows,
            vectors=vectors,
            lanes=model.lanes,
            block_tiles=min(max(1, integer(cut, "block_tiles") // rows), ceil_div(share, rows)) * rows,
            block_channels=min(max(1, integer(cut, "block_channels") // panel), ceil_div(most[1], channels)) * panel,
            threads_tiles=tiles,
            threads_channels=channels,
            pack_w=self.all.packing,
            predicted_error=predicted_error(self.w, m),
        )
        return replace(found, predicted_cycles=model.cycles(found))
