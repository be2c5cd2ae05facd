"""Configurations of a matrix multiplication on a CPU.

    form         normal (rows of A are read in place), inline (some are copied), pack (all are), stream (few rows)
    microkernel  rows and vectors of the register tile
    threads      division of batch, rows, columns and K among cores; the last is split-K across cores
    depth        elements of K in a block: split-K within a core
    columns      columns of a block of B
    inner_order  "mn": tiles of rows outside panels of columns
    pack_b       "none", "pack" at run time, "ahead" (prepacked)

The streaming kernel for few rows has instead the division of batch and columns, the columns whose sums stay in a cache,
and the number of rows (or columns) of B that are read side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...errors import DatabaseError, HardwareError
from ...hardware.description import Cpu
from ...workload import GemmWorkload
from ..gemm.choice import ProductChoice, StreamConfig, power_of_two
from ..gemm.gemm_cost import CpuConfig
from ..gemm.traffic import ceil_div
from ..surroundings import Surroundings
from ..tiling import Decision, GemmTiling
from .record import Blocks, Config, Value
from .rule import (
    Undivided,
    changed,
    fewer,
    halves_and_doubles,
    integer,
    integers,
    one_of,
    order,
    refuse_registers,
)

PACKING = ("none", "pack", "ahead")
# Sums of the streaming kernel that the registers hold beside its operands, and rows of A beside them if B is stored as
# [k, n].
STREAM_SUMS = 24
STREAM_LEFT = 32


class BlockedConfigs:
    """The blocked kernel variants of one matrix multiplication."""

    forms, name = ("normal", "inline", "pack"), ""

    def __init__(self, workload: GemmWorkload, cpu: Cpu, around: Surroundings) -> None:
        self.w, self.cpu, self.around = workload, cpu, around
        self.choice = ProductChoice(
            workload, cpu, packing=around.packing, plain_a=around.plain_a, plain_b=around.plain_b
        )
        self.model, self.lanes = self.choice.model, self.choice.lanes

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision with register tiles."""
        assert isinstance(tiling, GemmTiling) and tiling.mr and tiling.nr and tiling.keep is not None
        shares = (tiling.threads_batch, tiling.threads_m, tiling.threads_n, tiling.threads_k)
        threads = tuple(share or 1 for share in shares)
        choices: dict[str, Value] = {
            "microkernel": (tiling.mr, tiling.nr // self.lanes),
            "threads": threads,
            "depth": tiling.partition_k,
            "columns": tiling.partition_n,
            "inner_order": tiling.inner_order,
            "pack_b": str(tiling.pack_b),
        }
        form = "normal" if tiling.keep == tiling.mr else "pack" if tiling.keep == 0 else "inline"
        m, n, k = (ceil_div(size, threads[1 + axis]) for axis, size in enumerate((self.w.m, self.w.n, self.w.k)))
        depth, columns = min(k, tiling.partition_k), tiling.partition_n
        levels = (
            Blocks(level="core", left=(m, k), right=(k, n), result=(m, n)),
            Blocks(level="L2", left=(m, depth), right=(depth, columns), result=(m, columns)),
            Blocks(level="L1", left=(tiling.mr, depth), right=(depth, tiling.nr), result=(tiling.mr, tiling.nr)),
        )
        return Config.of("gemm", form, choices, levels)

    def tiling_of(self, config: Config) -> GemmTiling:
        """Return the decision of a configuration for this shape."""
        candidate = self._candidate(config)
        return self.choice.tiling(candidate, self.model.cycles(candidate), None)

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.choice.seconds(self.model.cycles(self._candidate(config)))

    def parts(self, config: Config) -> Mapping[str, float]:
        """Return the predicted cycles by cause."""
        return self.model.parts(self._candidate(config))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision."""
        for candidate in self.choice.configs(None, None, whole_k=not self.around.accumulates):
            yield self._config(candidate)

    def near(self, config: Config) -> Iterator[Config]:
        """Yield blocks of half and twice the size, lower tiles, the other loop order, and B packed or not."""
        group = self.choice.engine.group
        rows, vectors = integers(config, "microkernel", 2)
        for lower in range(max(1, rows - 2), rows):
            yield changed(config, microkernel=(lower, vectors))
        for depth in halves_and_doubles(integer(config, "depth"), group, self.w.k):
            yield changed(config, depth=depth)
        panel = vectors * self.lanes
        for columns in halves_and_doubles(integer(config, "columns"), panel, ceil_div(self.w.n, panel) * panel):
            yield changed(config, columns=columns)
        yield changed(config, inner_order="nm" if order(config) == "mn" else "mn")
        if not self.around.prepacked:
            yield changed(config, pack_b="none" if config.choice("pack_b") == "pack" else "pack")

    def fits(self, config: Config) -> bool:
        """Return whether a tile of A stays in L1 and a block of B in L2."""
        rows, _ = integers(config, "microkernel", 2)
        depth = ceil_div(integer(config, "depth"), self.choice.engine.group) * self.model.word
        return depth * rows <= self.model.l1 and depth * integer(config, "columns") <= self.model.l2

    def _config(self, candidate: CpuConfig) -> Config:
        return self.config_of(self.choice.tiling(candidate, 1.0, None))

    def _candidate(self, config: Config) -> CpuConfig:
        """Return the configuration clipped to the shape and adapted to the context."""
        w, choice = self.w, self.choice
        if config.form not in self.forms:
            raise DatabaseError(
                f"config: algorithm = {config.form!r} of a gemm; expected {', '.join(self.forms)}, stream"
            )
        rows, vectors = integers(config, "microkernel", 2)
        refuse_registers(choice.registers(rows, vectors), self.cpu.vector_registers, f"{rows} x {vectors}")
        rows, vectors = min(rows, w.m), min(vectors, ceil_div(w.n, self.lanes))
        panel = vectors * self.lanes
        keep = rows if config.form == "normal" else min(rows, choice.keep_rows) if config.form == "inline" else 0
        if not choice.plain_a:
            keep = 0
        group = choice.engine.group
        depth = min(w.k, ceil_div(integer(config, "depth"), group) * group)
        shares = integers(config, "threads", 4)
        most = (w.batch, ceil_div(w.m, rows), ceil_div(w.n, panel), ceil_div(w.k, depth))
        tb, tm, tn, tk = fewer(shares, most, self.cpu.cores)
        if not (self.around.accumulates and choice.output_holds_sums) and tk == 1:
            depth = w.k
        packing = str(one_of(config, "pack_b", PACKING))
        if self.around.prepacked:
            packing = "ahead"
        elif packing == "ahead" or not choice.plain_b or (packing == "none" and w.trans_b):
            packing = "pack"
        columns = max(1, integer(config, "columns") // panel) * panel
        columns = min(columns, ceil_div(ceil_div(w.n, panel), tn) * panel)
        rows_outside = order(config) == "mn" or keep < rows
        return CpuConfig((tb, tm, tn, tk), rows, vectors, depth, columns, rows_outside, keep, packing)


class StreamConfigs(Undivided):
    """The streaming kernel of one matrix multiplication."""

    forms, name = ("stream",), "stream"

    def __init__(self, workload: GemmWorkload, cpu: Cpu, around: Surroundings) -> None:
        self.w, self.cpu = workload, cpu
        self.choice = ProductChoice(
            workload, cpu, packing=around.packing, plain_a=around.plain_a, plain_b=around.plain_b, form="stream"
        )

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision for few rows."""
        assert isinstance(tiling, GemmTiling) and tiling.nr
        w, columns = self.w, tiling.partition_n
        choices: dict[str, Value] = {
            "threads": (tiling.threads_batch or 1, tiling.threads_n or 1),
            "side": tiling.nr if w.trans_b else tiling.partition_k,
            "columns": columns,
        }
        levels = (
            Blocks(level="core", left=(w.m, w.k), right=(w.k, ceil_div(w.n, tiling.threads_n or 1)), result=(w.m, w.n)),
            Blocks(level="L2", left=(w.m, w.k), right=(tiling.partition_k, columns), result=(w.m, columns)),
        )
        return Config.of("gemm", "stream", choices, levels)

    def tiling_of(self, config: Config) -> GemmTiling:
        """Return the decision of a configuration for this shape."""
        candidate = self._candidate(config)
        return self.choice.stream_tiling(candidate, self.choice.stream_cycles(candidate))

    def cost(self, config: Config) -> float:
        """Return the predicted seconds."""
        return self.choice.seconds(self.choice.stream_cycles(self._candidate(config)))

    def decided(self) -> Config | None:
        """Return None: the decision is the candidate with the lowest cost."""
        return None

    def candidates(self) -> Iterator[Config]:
        """Yield every candidate of the decision; none if the kernel cannot be used."""
        if not self.choice.no_stream:
            for candidate in self.choice.stream_configs():
                yield self.config_of(self.choice.stream_tiling(candidate, 1.0))

    def near(self, config: Config) -> Iterator[Config]:
        """Yield half and twice the rows side by side, and half and twice the columns."""
        most = self.w.n if self.w.trans_b else self.w.k
        for side in halves_and_doubles(integer(config, "side"), 1, most):
            yield changed(config, side=side)
        if not self.w.trans_b:
            for columns in halves_and_doubles(
                integer(config, "columns"), self.choice.lanes, self.choice.stream_share(1)
            ):
                yield changed(config, columns=columns)

    def fits(self, config: Config) -> bool:
        """Return whether the pending sums stay in L2."""
        return self.w.m * integer(config, "columns") * self.choice.model.word <= self.choice.model.l2

    def _candidate(self, config: Config) -> StreamConfig:
        w, choice = self.w, self.choice
        if choice.no_stream:
            raise HardwareError(
                f"config: algorithm = 'stream' supports at most {choice.most_stream_rows} rows with B read in place, "
                "but "
                f"{choice.no_stream}; expected {', '.join(BlockedConfigs.forms)}"
            )
        side = integer(config, "side")
        if w.trans_b:
            side = power_of_two(min(side, choice.lanes, max(1, STREAM_SUMS // w.m), w.n))
        else:
            side = min(side, w.k, STREAM_LEFT // w.m)
        most = (w.batch, ceil_div(w.n, choice.lanes))
        tb, tn = fewer(integers(config, "threads", 2), most, self.cpu.cores)
        columns = max(1, integer(config, "columns") // choice.lanes) * choice.lanes
        return StreamConfig(tb, tn, side, min(columns, choice.stream_share(tn)))
