"""Configurations of matrix multiplications and convolutions on a machine with one level of buffers, with the single
algorithm "matrix".

For a matrix multiplication, the choices are those of the analytical partition: partition_m, partition_n and
partition_k, which the buffers hold at once (partition_k = 0: all of K, no split-K), outer_order and inner_order. For a
convolution, the choices are the blocks of its program: step_m output channels and rows x columns points at once, with
the numbers of channels and groups; tile_m and tile_rows of one instruction; and the order of the outer loops.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..conv.block_time import BlockTimes, Columns, ConvFacts
from ..conv.blocks import blocks_at, candidates, conv_blocks
from ..conv.conv_blocks import ConvBlocks, ConvPartition
from ..gemm.chunks import product_chunks
from ..gemm.partition import decide_partition, partition_tiling
from ..gemm.traffic import Config as Partition
from ..gemm.traffic import Product, ceil_div, product_on
from ..near_tile import best_partition
from ..options import Options
from ..tiling import Decision, GemmTiling, Reason
from .record import Blocks, Config, Value
from .rule import Undivided, changed, halves_and_doubles, integer, order

MOST_CANDIDATES = 64  # candidates of a convolution, those with the fewest estimated cycles
WHY = ("partition_m", "partition_n", "partition_k", "outer_order", "split_k", "load_a", "load_b")


class PartitionConfigs(Undivided):
    """Configurations of one matrix multiplication."""

    forms, name = ("matrix",), ""

    def __init__(self, workload: GemmWorkload, hardware: Hardware) -> None:
        self.w, self.hardware = workload, hardware
        self.p: Product = product_on(workload, hardware)

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        assert isinstance(tiling, GemmTiling)
        p, t = self.p, tiling
        choices: dict[str, Value] = {
            "partition_m": t.partition_m,
            "partition_n": t.partition_n,
            "partition_k": t.partition_k if t.split_k else 0,
            "outer_order": t.outer_order,
            "inner_order": t.inner_order,
        }
        levels = (
            Blocks(
                level="buffers",
                left=(t.partition_m, t.partition_k),
                right=(t.partition_k, t.partition_n),
                result=(t.partition_m, t.partition_n),
            ),
            Blocks(
                level="engine",
                left=(min(t.tile_m, p.m), t.partition_k),
                right=(t.partition_k, min(t.tile_n, p.n)),
                result=(min(t.tile_m, p.m), min(t.tile_n, p.n)),
            ),
        )
        return Config.of("gemm", "matrix", choices, levels)

    def decided(self) -> Config:
        """Return the configuration of the decision."""
        return self.config_of(best_partition(self.w, self.hardware, Options()))

    def tiling_of(self, config: Config) -> GemmTiling:
        """Return the decision of a configuration for this shape."""
        found = self._partition(config)
        return partition_tiling(self.p, found, self.hardware, "best", order(config), False)

    def cost(self, config: Config) -> float:
        """Return the predicted cycles of the program."""
        return self.w.batch * product_chunks(self.p, self.tiling_of(config), self.hardware).cycles

    def candidates(self) -> Iterator[Config]:
        """Yield the decision's configuration, and the largest partitions with the loops in either order."""
        start = self.decided()
        yield start
        rows, columns = self.p.largest_rows(self.p.k), self.p.largest_columns(self.p.k)
        if rows and columns:
            for outer in ("mn", "nm"):
                yield changed(start, partition_m=rows, partition_n=columns, partition_k=0, outer_order=outer)

    def near(self, config: Config) -> Iterator[Config]:
        """Yield partitions of half and twice the size, with and without split-K, and the other loop orders."""
        p = self.p
        depth = integer(config, "partition_k", 0)
        for rows in halves_and_doubles(integer(config, "partition_m"), p.block_m, p.m):
            yield changed(config, partition_m=rows)
        for columns in halves_and_doubles(integer(config, "partition_n"), p.block_n, p.n):
            yield changed(config, partition_n=columns)
        for other in halves_and_doubles(depth or p.k, 1, p.k):
            yield changed(config, partition_k=other if other < p.k else 0)
        if depth:
            yield changed(config, partition_k=0)
        for name in ("outer_order", "inner_order"):
            yield changed(config, **{name: "nm" if order(config, name) == "mn" else "mn"})

    def fits(self, config: Config) -> bool:
        """Return True: configurations that exceed the buffers are refused."""
        return True

    def _partition(self, config: Config) -> Partition:
        """Return the configuration clipped to the shape. Raises HardwareError if its blocks do not fit the buffers."""
        p = self.p
        rows = _whole(integer(config, "partition_m"), p.m, p.block_m)
        columns = _whole(integer(config, "partition_n"), p.n, p.block_n)
        depth = min(integer(config, "partition_k", 0) or p.k, p.k)
        outer = order(config, "outer_order")
        if not p.feasible(rows, columns, depth):
            raise HardwareError(
                f"config: blocks of {rows} x {depth} and {depth} x {columns} elements do not fit the buffers of "
                f"{self.hardware.name}; expected at most buf_a = {p.buf_a} bytes, buf_b = {p.buf_b} bytes and, with "
                f"split-K, acc_max = {p.acc_max} bytes of sums"
            )
        load_a, load_b = p.load_counts(rows, columns, depth, outer)
        split = depth < p.k
        why = dict.fromkeys(WHY, "as given by the configuration")
        acc_bytes = rows * columns * p.d_acc if split else 0
        return Partition(rows, columns, depth, outer, split, acc_bytes, load_a, load_b, why)


def _whole(partition: int, size: int, block: int) -> int:
    """Return a partition clipped to the dimension: all of it, or whole blocks."""
    return size if partition >= size else max(1, partition // block) * block


class ConvPartitionConfigs(Undivided):
    """Configurations of one convolution."""

    forms, name = ("matrix",), ""

    def __init__(self, workload: ConvWorkload, hardware: Hardware) -> None:
        self.w, self.hardware = workload, hardware
        self.facts = ConvFacts(workload, hardware)
        self._known: dict[Config, ConvBlocks] = {}

    @functools.cached_property
    def product(self) -> GemmTiling:
        """The decision for the equivalent matrix multiplication; provides the fields that a configuration does not
        change."""
        return decide_partition(self.w, self.hardware)

    def config_of(self, tiling: Decision) -> Config:
        """Return the configuration of a decision."""
        if isinstance(tiling, ConvPartition):
            return self._config(tiling.blocks)
        return self.decided()

    def decided(self) -> Config:
        """Return the configuration of the decision."""
        return self._config(conv_blocks(self.w, self.hardware))

    def _config(self, b: ConvBlocks) -> Config:
        w, high, wide = self.w, self.facts.high, self.facts.wide
        choices: dict[str, Value] = {
            "order": b.order,
            "groups": b.groups,
            "step_m": b.step_m,
            "tile_m": b.tile_m,
            "rows": b.rows,
            "columns": b.columns,
            "tile_rows": b.tile_rows,
            "channels": b.channels,
        }
        taps = self.facts.taps

        def level(name: str, outputs: int, rows: int) -> Blocks:
            """Return the blocks of one level; the left operand holds the kernels, as in the equivalent matrix
            multiplication."""
            lines = int(high.reach(np.array(min(rows, w.ho)))), int(wide.reach(np.array(min(b.columns, w.wo))))
            return Blocks(
                level=name,
                left=(b.groups * outputs, b.channels * taps),
                right=(b.groups * b.channels, *lines),
                result=(b.groups * outputs, rows, b.columns),
            )

        levels = (level("buffers", b.step_m, b.rows), level("engine", b.tile_m, b.tile_rows))
        return Config.of("conv", "matrix", choices, levels)

    def tiling_of(self, config: Config) -> ConvPartition:
        """Return the decision of a configuration for this shape."""
        b = self._blocks(config)
        own = {name: value for name, value in vars(self.product).items() if name != "reasons"}
        depth = b.channels * self.facts.taps
        own |= {
            "partition_m": b.step_m,
            "partition_n": b.rows * b.columns,
            "partition_k": depth,
            "tile_m": b.tile_m,
            "tile_n": b.tile_rows * b.columns,
            "outer_order": b.order,
            "split_k": b.channels < self.facts.ci,
            "load_a": ceil_div(b.bytes_a, self.facts.product.bytes_a * self.w.groups),
            "load_b": ceil_div(b.bytes_b, self.facts.product.bytes_b * self.w.groups),
            "utilisation": min(1.0, self.w.macs / self.facts.unit.macs(self.facts.product.d_a) / b.cycles),
        }
        return ConvPartition(blocks=b, **own, reasons=(Reason("blocks", b.size, "as given by the configuration"),))

    def cost(self, config: Config) -> float:
        """Return the estimated cycles."""
        return self._blocks(config).cycles

    def candidates(self) -> Iterator[Config]:
        """Yield the decision's configuration, and those with the fewest estimated cycles."""
        yield self.decided()
        times = BlockTimes(self.facts, candidates(self.facts))
        fits = np.flatnonzero(times.fits)
        for place in fits[np.argsort(times.cycles[fits], kind="stable")][:MOST_CANDIDATES].tolist():
            blocks = blocks_at(times, place)
            config = self._config(blocks)
            self._known.setdefault(config, blocks)
            yield config

    def near(self, config: Config) -> Iterator[Config]:
        """Yield blocks and tiles of half and twice the size, and the other loop order."""
        w, facts = self.w, self.facts
        most = {
            "step_m": facts.co,
            "tile_m": facts.co,
            "rows": w.ho,
            "columns": w.wo,
            "tile_rows": w.ho,
            "channels": facts.ci,
        }
        for name, limit in most.items():
            unit = facts.unit.block_m if name in ("step_m", "tile_m") else 1
            for size in halves_and_doubles(integer(config, name), unit, limit):
                yield changed(config, **{name: size})
        yield changed(config, order="nm" if order(config, "order") == "mn" else "mn")

    def fits(self, config: Config) -> bool:
        """Return True: configurations that exceed the buffers are refused."""
        return True

    def _blocks(self, config: Config) -> ConvBlocks:
        if config not in self._known:
            self._known[config] = self._clipped(config)
        return self._known[config]

    def _clipped(self, config: Config) -> ConvBlocks:
        """Return the blocks of a configuration, clipped to the shape. Raises HardwareError if they do not fit the
        buffers."""
        w, facts = self.w, self.facts
        groups = next(g for g in range(min(w.groups, integer(config, "groups")), 0, -1) if w.groups % g == 0)
        grouped = w.groups > 1
        step = facts.co if grouped else _whole(integer(config, "step_m"), facts.co, facts.unit.block_m)
        rows = min(integer(config, "rows"), w.ho)
        outside = int(grouped or order(config, "order") == "mn")
        columns = (
            outside,
            groups,
            step,
            _tile(integer(config, "tile_m"), step, facts.co),
            rows,
            _tile(integer(config, "tile_rows"), rows, w.ho),
            min(integer(config, "columns"), w.wo),
            facts.ci if grouped else min(integer(config, "channels"), facts.ci),
        )
        times = BlockTimes(facts, Columns(*(np.array([value]) for value in columns)))
        if not times.fits[0]:
            raise HardwareError(
                f"config: blocks of {step} output channels, {rows} x {columns[6]} points and {columns[7]} channels do "
                f"not fit the buffers of {self.hardware.name}; expected at most near_tile.buf_a = {facts.unit.buf_a} "
                "and "
                f"near_tile.buf_b = {facts.unit.buf_b} bytes, and space for the sums"
            )
        return blocks_at(times, 0)


def _tile(tile: int, block: int, whole: int) -> int:
    """Return a tile of a block: any size if the block covers the whole dimension, else a divisor of the block."""
    tile = min(tile, block)
    return tile if block >= whole else next(size for size in range(tile, 0, -1) if block % size == 0)


def partition_rule(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware
) -> PartitionConfigs | ConvPartitionConfigs:
    """Return the configuration rule for a workload on a machine with one level of buffers."""
    if isinstance(workload, ConvWorkload):
        return ConvPartitionConfigs(workload, hardware)
    return PartitionConfigs(workload, hardware)
