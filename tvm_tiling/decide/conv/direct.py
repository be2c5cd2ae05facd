"""Candidates for a direct convolution on a CPU, of which the fastest is taken.

register tile  columns of a row, or a few whole rows, by vectors of channels, within the registers
band           as many rows as leave half of L2 to the weights
blocks         all taps if a panel of weights stays in L2, else as many as do; output channels whose weights stay in L2,
               or fewer, so that the next block can be prefetched while one is used
cores          every factorisation into rows of tiles and output channels
copy           if there is padding left or right, if channels are not adjacent, if the instruction takes another type,
               and if pixels would collide in L1
"""

from __future__ import annotations

from collections.abc import Iterator

from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ..gemm.dot_engine import SHORT_RUN
from ..gemm.gemm_cost import cheapest
from ..gemm.microkernel import tallest
from ..gemm.traffic import ceil_div
from .conv_cost import ConvConfig, ConvModel
from .shape import ConvShape


class DirectChoice:
    """The candidate configurations of one plain convolution."""

    def __init__(
        self,
        shape: ConvShape,
        cpu: Cpu,
        engine: DotInstruction,
        model: ConvModel,
        *,
        pitch: int | None,
        dense: bool,
        whole_sums: bool,
    ) -> None:
        """`pitch`: elements between positions of the input, None if it cannot be read in place; `dense`: its positions
        are contiguous; `whole_sums`: partial sums may not be kept in the output."""
        self.shape, self.cpu, self.engine, self.model = shape, cpu, engine, model
        self.pitch, self.dense, self.whole_sums = pitch, dense, whole_sums
        self.lanes = model.lanes

    def best(self) -> tuple[float, ConvConfig]:
        """Return (cycles, config) of the fastest candidate, the first on a tie."""
        found = cheapest(self.configs(), self.model.least, self.model.cycles)
        assert found is not None  # every convolution has a candidate
        return found

    def configs(self) -> Iterator[ConvConfig]:
        """Yield every candidate."""
        s = self.shape
        merged = s.w.taps > 1 and s.w.dilation == 1 and s.ci < SHORT_RUN
        for rows, columns, vectors in self.register_tiles():
            for copies, pitch in self.sources(rows, columns, merged):
                for threads in self.shares(rows, vectors):
                    for band in self.bands(rows, pitch, threads[0]):
                        for taps, run in self.blocks(vectors, merged):
                            depth = taps * ceil_div(run, self.engine.group) * self.model.word
                            room = max(1, int(self.model.core.l2 * 0.5 / (depth * vectors * self.lanes)))
                            panels = min(room, ceil_div(s.co, vectors * self.lanes))
                            for outside in (True, False):
                                together = self.prefetched(panels, depth * vectors * self.lanes) if outside else panels
                                block = together * vectors * self.lanes
                                yield ConvConfig(
                                    threads,
                                    rows,
                                    columns,
                                    vectors,
                                    band,
                                    taps,
                                    run,
                                    block,
                                    outside,
                                    merged,
                                    copies,
                                    pitch,
                                )

    def prefetched(self, panels: int, panel_bytes: float) -> int:
        """Return the number of panels per block, at most `panels`, for which the next block can be prefetched; blocks
        are equal.
        """
        most = self.model.costs.prefetched_block if self.model.prepacked else 0.0
        if not most:
            return panels
        return ceil_div(panels, ceil_div(panels, max(1, int(most / panel_bytes))))

    def register_tiles(self) -> Iterator[tuple[int, int, int]]:
        """Yield (rows, columns, vectors): the widest row that the registers allow, even parts of it, and several
        rows."""
        s, registers = self.shape, self.cpu.kernel_registers
        wide, high = s.w.points, s.h.points
        widest = ceil_div(s.co, self.lanes)
        narrowest = 1 if widest == 1 or wide * high == 1 else 2
        for vectors in range(narrowest, min(widest, (registers - 1) // 2, 6) + 1):
            most = tallest(registers, vectors, rows=self.engine.rows)
            if most < 1:
                return
            top = min(most, wide)
            parts = ceil_div(wide, top)
            for columns in sorted({top, ceil_div(wide, parts), ceil_div(wide, parts + 1)}):
                yield 1, columns, vectors
            if wide <= most // 2 and high > 1:
                several = min(most // wide, high)
                for rows in sorted({several, ceil_div(high, ceil_div(high, several))} - {1}):
                    yield rows, wide, vectors

    def sources(self, rows: int, columns: int, merged: bool) -> Iterator[tuple[bool, int]]:
        """Yield (copied, pitch) for the ways to read the input."""
        s = self.shape
        if self.pitch is not None and self.engine.in_place:
            inside = not s.w.padded and not s.d.padded and (not s.h.padded or self.model.skips(rows))
            if inside and s.fold == 1 and (not merged or self.dense):
                yield False, self.pitch
        if merged or s.fold > 1:
            yield True, s.ci
            return
        line = max(1, int(self.model.core.line / self.model.element))
        group = self.engine.group
        pitch = ceil_div(s.ci, group) * group
        plain = ConvConfig((1, 1), rows, columns, 1, 1, 1, 1, 1, True, merged, True, pitch)
        yield True, pitch + line if self.model.collides(plain) else pitch

    def shares(self, rows: int, vectors: int) -> Iterator[tuple[int, int]]:
        """Yield (divisions of the rows of tiles, of the channels) for one core and for all cores."""
        s, cores = self.shape, self.cpu.cores
        units, panels = s.planes * ceil_div(s.h.points, rows), ceil_div(s.co, vectors * self.lanes)
        yield 1, 1
        for tr in range(1, cores + 1):
            if cores > 1 and cores % tr == 0 and tr <= units and cores // tr <= panels:
                yield tr, cores // tr

    def bands(self, rows: int, pitch: int, threads: int) -> Iterator[int]:
        """Yield the output rows of a band: as many as fit together with the weights, in bands of equal height."""
        s = self.shape
        row = s.d.taps * s.h.stride * s.w.reach(s.w.points) * pitch * self.model.element
        share = min(s.h.points, ceil_div(s.planes * s.h.points, threads))
        fit = max(rows, int(self.model.core.l2 * 0.4 / row) // rows * rows)
        count = ceil_div(share, fit)
        yield ceil_div(ceil_div(share, count), rows) * rows
        if count > 1 and s.h.dilation > 1:
            # Bands of dilated taps share most of their rows: one band that streams through the last-level cache copies
            # less.
            yield ceil_div(share, rows) * rows

    def blocks(self, vectors: int, merged: bool) -> Iterator[tuple[int, int]]:
        """Yield (taps, elements of a run) of a block of the reduction axes."""
        s = self.shape
        taps = max(1, s.d.taps * s.h.taps * (1 if merged else s.w.taps))
        run = s.ci * (s.w.taps if merged else 1)
        line = vectors * self.lanes * self.model.word / self.engine.group
        room = int(self.model.core.l2 * 0.6 / line)
        if self.whole_sums or taps * run <= room:
            yield taps, run
            return
        if run <= room:
            fit = max(1, room // run)
            yield ceil_div(taps, ceil_div(taps, fit)), run
        elif run > 1:
            group = self.engine.group
            yield 1, ceil_div(ceil_div(run, ceil_div(run, room)), group) * group
