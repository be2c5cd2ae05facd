"""Configurations of a direct convolution on a CPU, with or without stride-fold, and of a pointwise convolution as a
matrix multiplication.

    microkernel              rows, columns and vectors of output channels of the register tile
    threads                  division of the rows of tiles and of the output channels among cores
    band                     output rows that are processed or copied at once
    block_taps, block_run    blocks of the reduction axes: taps, and elements of a run within a tap
    columns                  output channels of a column block
    inner_order              "mn": tiles of pixels outside panels of channels
    merge_taps, copy_input   whether the taps of a kernel row form one run; whether the input is copied first

The distance between positions of the input follows from the shape. The configuration of a matrix multiplication is
described in configs/gemm_configs.py, with the kernel variant as one of its choices ("kernel").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import UnsupportedOperator
from ...hardware.description import Cpu, Hardware
from ...workload import ConvWorkload
from ..conv.conv_cost import ConvConfig
from ..conv.conv_tiling import ConvTiling
from ..conv.cpu_conv import ConvAlgorithms, Source, as_product
from ..gemm.microkernel import registers_of
from ..gemm.traffic import ceil_div
from ..surroundings import Surroundings
from ..tiling import Decision, GemmTiling
from .gemm_configs import BlockedConfigs, StreamConfigs
from .record import Blocks, Config, Value
from .rule import changed, fewer, halves_and_doubles, integer, integers, one_of, order, refuse_registers


def conv_forms(workload: ConvWorkload, hardware: Hardware, cpu: Cpu, around: Surroundings) -> ConvAlgorithms:
    """Return the configuration rule of each algorithm of a convolution in its context."""
    source = around.source or Source.of(workload)
    return ConvAlgorithms(workload, hardware, cpu, around.packing, source, around.winograd, around.tolerance)


class DirectConfigs:
    """Configurations of the algorithm "direct" or "stride_fold". Raises UnsupportedOperator if the workload does not
    allow it."""

    def __init__(self, convolution: ConvAlgorithms, form: str) -> None:
        self.forms, self.name = (form,), form
        self.all, self.cpu = convolution, convolution.cpu
        self.shares, self.choice = convolution.direct_choice(form)
        self.shape, self.model, self.lanes = self.choice.shape, self.choice.model, self.choice.lanes
        s = self.shape
        self.panels = ceil_div(s.co, self.lanes)  # upper bound
        self.mergeable = s.w.taps > 1 and s.w.dilation == 1

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        t = tiling
        assert isinstance(t, ConvTiling) and t.tile_rows and t.tile_columns and t.vectors and t.keep_rows
        assert t.block_taps and t.block_run and t.columns
        choices: dict[str, Value] = {
            "microkernel": (t.tile_rows, t.tile_columns, t.vectors),
            "threads": (t.threads_rows or 1, t.threads_columns or 1),
            "band": t.keep_rows,
            "block_taps": t.block_taps,
            "block_run": t.block_run,
            "columns": t.columns,
            "inner_order": str(t.inner_order),
            "merge_taps": bool(t.merge_taps),
            "copy_input": bool(t.copy_input),
        }
        return Config.of("conv", self.name, choices, self._levels(t))

    def _levels(self, t: ConvTiling) -> tuple[Blocks, ...]:
        s = self.shape
        assert t.tile_rows and t.tile_columns and t.vectors and t.keep_rows and t.block_taps and t.block_run
        assert t.columns
        taps, panel = max(1, s.d.taps * s.h.taps * s.w.taps), min(s.co, t.vectors * self.lanes)
        channels = ceil_div(s.co, t.threads_columns or 1)
        columns = min(t.columns, s.co)
        band, tile = (t.keep_rows, s.w.points), (t.tile_rows, t.tile_columns)

        def level(name: str, points: tuple[int, int], right: tuple[int, int, int], outputs: int) -> Blocks:
            left = (s.h.reach(points[0]), s.w.reach(points[1]), s.ci)
            return Blocks(level=name, left=left, right=right, result=(*points, outputs))

        rows = ceil_div(s.planes * s.h.points, t.threads_rows or 1)
        return (
            level("core", (rows, s.w.points), (taps, s.ci, channels), channels),
            level("L2", band, (min(t.block_taps, taps), t.block_run, columns), columns),
            level("L1", tile, (min(t.block_taps, taps), t.block_run, panel), panel),
        )

    def tiling_of(self, config: Config) -> ConvTiling:
        """Return the decision of a configuration for this shape."""
        candidate = self._candidate(config)
        return self.all.direct_tiling(self.name, self.choice, candidate, self.shares * self.model.cycles(candidate))

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.all.seconds(self.shares * self.model.cycles(self._candidate(config)))

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return the predicted cycles by cause."""
        return self.model.parts(self._candidate(config))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision."""
        for candidate in self.choice.configs():
            yield self.config_of(self.all.direct_tiling(self.name, self.choice, candidate, 1.0))

    def near(self, config: Config) -> Iterator[Config]:
        """Yield blocks of half and twice the size, narrower tiles, the other loop order, and the alternatives of
        copying the input and merging the taps of a row."""
        s = self.shape
        rows, wide, vectors = integers(config, "microkernel", 3)
        for narrower in range(max(1, wide - 2), wide):
            yield changed(config, microkernel=(rows, narrower, vectors))
        panel, merged = vectors * self.lanes, bool(config.choice("merge_taps"))
        taps, run = self._summed(merged)
        for band in halves_and_doubles(integer(config, "band"), rows, ceil_div(s.h.points, rows) * rows):
            yield changed(config, band=band)
        for columns in halves_and_doubles(integer(config, "columns"), panel, ceil_div(s.co, panel) * panel):
            yield changed(config, columns=columns)
        yield changed(config, inner_order="nm" if order(config) == "mn" else "mn")
        yield changed(config, copy_input=not config.choice("copy_input"))
        if self.mergeable:
            other, longer = self._summed(not merged)
            yield changed(config, merge_taps=not merged, block_taps=other, block_run=longer)
        if not self.choice.whole_sums:
            for some in halves_and_doubles(integer(config, "block_taps"), 1, taps):
                yield changed(config, block_taps=some, block_run=run)
            if integer(config, "block_taps") == 1:
                for part in halves_and_doubles(integer(config, "block_run"), self.choice.engine.group, run):
                    yield changed(config, block_run=part)

    def fits(self, config: Config) -> bool:
        """Return whether a band and a block of the weights each fit L2."""
        c = self._candidate(config)
        depth = c.block_taps * ceil_div(c.block_run, self.choice.engine.group) * self.model.word
        return self.model.band_bytes(c) <= self.model.core.l2 and depth * c.block_channels <= self.model.core.l2

    def _summed(self, merged: bool) -> tuple[int, int]:
        """Return (taps, elements of a run) of the undivided reduction."""
        s = self.shape
        taps = max(1, s.d.taps * s.h.taps * (1 if merged else s.w.taps))
        return taps, s.ci * (s.w.taps if merged else 1)

    def _candidate(self, config: Config) -> ConvConfig:
        """Return the configuration clipped to the shape and adapted to the layout of the input."""
        s, choice = self.shape, self.choice
        rows, columns, vectors = integers(config, "microkernel", 3)
        needed = registers_of(rows * columns, vectors, rows=choice.engine.rows)
        refuse_registers(needed, choice.cpu.vector_registers, f"{rows} x {columns} x {vectors}")
        rows, columns, vectors = min(rows, s.h.points), min(columns, s.w.points), min(vectors, self.panels)
        panel = vectors * self.lanes
        merged = bool(one_of(config, "merge_taps", (True, False))) and self.mergeable
        wanted = bool(one_of(config, "copy_input", (True, False)))
        sources = dict(choice.sources(rows, columns, merged))
        copies = wanted or False not in sources
        taps, run = self._summed(merged)
        block_taps, block_run = min(taps, integer(config, "block_taps")), min(run, integer(config, "block_run"))
        group = choice.engine.group
        block_run = min(run, ceil_div(block_run, group) * group)
        if choice.whole_sums:
            block_taps, block_run = taps, run
        elif block_run < run:
            block_taps = 1
        units = s.planes * ceil_div(s.h.points, rows)
        tr, tn = fewer(integers(config, "threads", 2), (units, ceil_div(s.co, panel)), self.cpu.cores)
        band = min(ceil_div(integer(config, "band"), rows), ceil_div(s.h.points, rows)) * rows
        block = min(max(1, integer(config, "columns") // panel), ceil_div(s.co, panel)) * panel
        return ConvConfig(
            (tr, tn),
            rows,
            columns,
            vectors,
            band,
            block_taps,
            block_run,
            block,
            order(config) == "mn",
            merged,
            copies,
            sources[copies],
        )


class ProductConfigs:
    """Configurations of a pointwise convolution as a matrix multiplication: blocked kernels, or the streaming kernel
    for few rows."""

    def __init__(self, convolution: ConvAlgorithms, around: Surroundings, *, few_rows: bool) -> None:
        w = convolution.w
        product = as_product(w)
        if product is None or not convolution.source.matrix:
            raise UnsupportedOperator(
                "algorithm = 'gemm' requires a 1x1 kernel, stride 1, no padding, one group and operands readable as "
                "matrices"
            )
        # With channels last, the kernels are the right operand and may be prepacked; otherwise they are the left one.
        inner = Surroundings(
            prepacked=around.prepacked and w.layout == "NHWC", accumulates=convolution.source.accumulates
        )
        kind = StreamConfigs if few_rows else BlockedConfigs
        self.name = "gemm_stream" if few_rows else "gemm"
        self.forms, self.all, self.product = (self.name,), convolution, product
        self.rule: BlockedConfigs | StreamConfigs = kind(product, convolution.cpu, inner)

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        assert isinstance(tiling, ConvTiling) and tiling.product is not None
        return self._outer(self.rule.config_of(tiling.product))

    def tiling_of(self, config: Config) -> ConvTiling:
        """Return the decision of a configuration for this shape."""
        tiling = self.rule.tiling_of(product_config(config))
        assert isinstance(tiling, GemmTiling)
        return self.all.product_tiling(self.product, tiling)

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.rule.cost(product_config(config))

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return the predicted cycles of the matrix multiplication by cause."""
        return self.rule.parts(product_config(config))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision."""
        return map(self._outer, self.rule.candidates())

    def near(self, config: Config) -> Iterator[Config]:
        """Yield the neighbours of the matrix multiplication's configuration."""
        return map(self._outer, self.rule.near(product_config(config)))

    def fits(self, config: Config) -> bool:
        """Return whether the blocks of the matrix multiplication stay in their caches."""
        return self.rule.fits(product_config(config))

    def _outer(self, config: Config) -> Config:
        return Config.of("conv", self.name, {**dict(config.choices), "kernel": config.form}, config.levels)


def product_config(config: Config) -> Config:
    """Return the matrix multiplication's configuration within that of a convolution with the algorithm "gemm"."""
    choices = dict(config.choices)
    kernel = one_of(config, "kernel", ("stream",) if config.form == "gemm_stream" else BlockedConfigs.forms)
    del choices["kernel"]
    return Config.of("gemm", str(kernel), choices, config.levels)
