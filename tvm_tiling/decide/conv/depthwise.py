"""Tiling and cost of a depthwise convolution on a CPU, one channel per lane.

lanes          along channels if at least four are adjacent, else along output columns
register tile  columns x vectors of channels, or rows x vectors of columns, within the registers together with the
               weights of a kernel row
columns        as many channels as keep the rows under a tile in L1
cores          every factorisation into rows and channels

Predicted cycles are those of the slowest core: multiply-adds or loads of the tile, the tile's overhead, and the
transfer of input and output.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import UnsupportedOperator
from ...figures import quantity
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.dot_engine import dot_engine
from ..gemm.gemm_cost import CpuModel
from ..gemm.traffic import ceil_div
from ..tiling import Reason
from .conv_tiling import ConvTiling
from .shape import Axis, ConvShape, shapes_of

# Number of adjacent channels from which on lanes are channels.
FEWEST_LANES = 4
# The most taps of a kernel row that are unrolled, the most multiply-adds of a tile whose tap rows are unrolled too, and
# the most tiles at the ends of an axis with separate code. These limit the code size, not the supported sizes.
WIDEST_KERNEL = 32
UNROLLED = 60
TILES_APART = 12
# Taps as elements of a dot product: the most taps along an axis, sums per tile, and instructions of an unrolled tile;
# cycles to interleave a group of pixels and to finish a vector of sums (measured on Zen 4).
MOST_TAPS = 8
DOT_SUMS = 24
DOT_UNROLLED = 256
WEAVE = 4.0
WRITE_BACK = 4.0


@dataclass(frozen=True)
class DepthwiseConfig:
    """A candidate."""

    threads: tuple[int, int]  # divisions of the tiles of rows and of the channel panels
    rows: int
    columns: int
    vectors: int
    channels: int  # channels of a block
    walk_rows: bool
    walk_columns: bool = False


def decide_depthwise(
    workload: ConvWorkload, cpu: Cpu, *, input_run: int, output_run: int, prepacked: bool
) -> ConvTiling:
    """Return the fastest predicted configuration of a convolution with one group per input channel.

    input_run, output_run: number of adjacent channels; prepacked: whether the weights are prepacked. Raises
    UnsupportedOperator for other group counts, and for kernels too wide to unroll if lanes are columns.
    """
    choice = DepthwiseChoice(workload, cpu, input_run, output_run, prepacked)
    cycles, config = choice.best()
    return choice.tiling(config, cycles)


class DepthwiseChoice:
    """The candidates for one convolution and their cost."""

    def __init__(self, workload: ConvWorkload, cpu: Cpu, input_run: int, output_run: int, prepacked: bool) -> None:
        if workload.groups != workload.ci:
            raise UnsupportedOperator(
                f"algorithm = 'depthwise' requires one group per input channel, not "
                f"{quantity(workload.groups, 'group')} of {quantity(workload.ci, 'channel')}"
            )
        self.w, self.cpu, self.output_run, self.prepacked = workload, cpu, output_run, prepacked
        self.engine: DotInstruction = dot_engine(workload, cpu, form="depthwise")
        self.shapes = shapes_of(workload)
        # Residues of a transposed convolution share one tiling: that of the residue with the most work.
        self.shape = max(self.shapes, key=lambda s: s.macs)
        taps = max(1, self.shape.d.taps * self.shape.h.taps * self.shape.w.taps)
        # Provides the rates of loads and multiply-adds, and the caches.
        self.core = CpuModel(GemmWorkload(m=self.shape.points, k=taps, n=workload.co), cpu, self.engine)
        self.fma = (cpu.kernel_costs.integer_multiply_add if self.engine.acc == "int32" else 1.0) / cpu.fma_units
        run = adjacent_channels(workload, input_run)
        self.by_channel = run >= min(FEWEST_LANES, workload.ci) and workload.ci > 1
        most = cpu.lanes(self.engine.acc_bytes)
        self.lanes = most if run == workload.ci or not self.by_channel else min(most, run & -run)
        self.dot = self.dot_instruction(input_run)
        self.line = max(1, self.core.line)
        self.home = cpu.bytes_per_cycle(float(workload.bytes))

    def dot_instruction(self, input_run: int) -> DotInstruction | None:
        """Return the instruction that takes adjacent taps of a row as the elements of a dot product; None if there is
        none, or channels, padding or distances do not allow it."""
        s, engine = self.shape, self.engine
        served = self.prepacked and self.by_channel and self.lanes == self.cpu.lanes(engine.acc_bytes)
        narrow = engine.group == 4 and engine.acc_bytes == 4 and self.w.types.b == "int8"
        plain = input_run > 1 and s.co == 1 and len(self.shapes) == 1 and s.d.taps == 1 and s.d.points == 1
        near = s.h.dilation == 1 == s.w.dilation and 2 <= s.w.taps <= MOST_TAPS and 1 <= s.h.taps <= MOST_TAPS
        inside = not (s.h.padded or s.w.padded or s.d.padded)
        return engine if served and narrow and plain and near and inside else None

    # ---- candidates -------------------------------------------------------------------------------------------------

    def best(self) -> tuple[float, DepthwiseConfig]:
        """Return (cycles, config) of the fastest candidate, the first on a tie."""
        cycles, _, config = min((self.cycles(config), i, config) for i, config in enumerate(self.configs()))
        return cycles, config

    def configs(self) -> Iterator[DepthwiseConfig]:
        """Yield every candidate."""
        for rows, columns, vectors, walks in self.tiles():
            for channels in self.blocks(columns, vectors) if self.by_channel else (self.lanes,):
                for threads in self.shares(rows, columns, vectors):
                    yield DepthwiseConfig(threads, rows, columns, vectors, channels, *walks)

    def tiles(self) -> Iterator[tuple[int, int, int, tuple[bool, bool]]]:
        """Yield (rows, columns, vectors, (loop over rows, loop over columns)) within the registers."""
        s, registers = self.shape, self.cpu.vector_registers
        taps = s.w.taps
        if not self.by_channel:
            if taps > WIDEST_KERNEL or apart(s.w, self.lanes) > TILES_APART:
                raise UnsupportedOperator(
                    f"algorithm = 'depthwise' unrolls the taps of a row if channels are not adjacent: {taps} taps, "
                    "padding "
                    f"{self.w.padding}, dilation {self.w.dilation}; expected at most {WIDEST_KERNEL} taps and padding "
                    f"of at most {TILES_APART} vectors"
                )
            yield from self.tall_tiles()
            return
        if self.dot is not None:
            yield from self.dot_tiles()
            return
        widest = ceil_div(s.groups, self.lanes)
        for vectors in range(1, min(3, widest) + 1):
            # One register for the input, and as many as LLVM needs to load ahead.
            spare = registers - 4 - min(taps, WIDEST_KERNEL // 2) * vectors
            parts = ceil_div(s.w.points, max(1, spare // vectors))
            found = {ceil_div(s.w.points, count) for count in range(parts, 2 * parts + 1)}
            for columns in sorted(c for c in found if taps <= WIDEST_KERNEL and apart(s.w, c) <= TILES_APART):
                yield 1, columns, vectors, (True, False)
        yield 1, 1, min(8, widest), (True, True)

    def dot_tiles(self) -> Iterator[tuple[int, int, int, tuple[bool, bool]]]:
        """Yield tiles of several rows, which share interleaved pixels."""
        s = self.shape
        for rows in sorted({min(rows, s.h.points) for rows in (1, 2, 3, 4)}):
            for columns in range(1, min(s.w.points, DOT_SUMS // rows) + 1):
                if rows * columns * s.h.taps <= DOT_UNROLLED:
                    yield rows, columns, 1, (False, False)

    def tall_tiles(self) -> Iterator[tuple[int, int, int, tuple[bool, bool]]]:
        """Yield tiles for lanes along columns: several rows, since each vector of an input row serves several output
        rows."""
        s = self.shape
        taps = max(1, s.h.taps * s.w.taps)
        for vectors in range(1, min(2, ceil_div(s.w.points, self.lanes)) + 1):
            columns = min(vectors * self.lanes, s.w.points)
            for rows in (2, 4, 8):
                tall = min(rows, s.h.points)
                if tall * vectors * taps <= UNROLLED and apart(s.h, tall) <= TILES_APART:
                    yield tall, columns, vectors, (False, False)
            yield 1, columns, vectors, (True, False)

    def blocks(self, columns: int, vectors: int) -> Iterator[int]:
        """Yield the numbers of channels of a block: all, and as many as stay in L1 under a column of tiles."""
        nr = vectors * self.lanes
        panels = ceil_div(self.shape.groups, nr)
        fit = max(1, int(self.core.costs.l1_depthwise * self.core.l1 / self.under(columns, nr)))
        yield panels * nr
        if fit < panels:
            yield ceil_div(panels, ceil_div(panels, fit)) * nr

    def under(self, columns: int, channels: int) -> float:
        """Return the bytes of input under the taps of a tile with one row and this many columns and channels."""
        s = self.shape
        return s.d.taps * max(1, s.h.taps) * s.w.reach(columns) * max(channels * self.w.a_bytes, self.line)

    def shares(self, rows: int, columns: int, vectors: int) -> Iterator[tuple[int, int]]:
        """Yield (divisions of the tiles of rows, of the panels) for one core and for all cores."""
        cores, panels = self.cpu.cores, self.panels(vectors)
        units = self.units(self.shape, rows, columns)
        yield 1, 1
        for tr in range(cores, 0, -1):
            if cores > 1 and cores % tr == 0 and tr <= units and cores // tr <= panels:
                yield tr, cores // tr

    def panels(self, vectors: int) -> int:
        return ceil_div(self.shape.groups, vectors * self.lanes) if self.by_channel else 1

    def units(self, shape: ConvShape, rows: int, columns: int) -> int:
        """Return the number of tiles divided among cores: tiles of rows, or of columns if there is only one row."""
        lone = shape.h.points == 1
        planes = shape.n * shape.d.points * (1 if self.by_channel else shape.groups * shape.co)
        return planes * (ceil_div(shape.w.points, columns) if lone else ceil_div(shape.h.points, rows))

    # ---- cost -------------------------------------------------------------------------------------------------------

    def cycles(self, config: DepthwiseConfig) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        total = sum(self.plain(shape, config) for shape in self.shapes)
        if not self.prepacked:
            total += self.w.co * self.w.kd * self.w.kh * self.w.kw
        if config.threads != (1, 1):
            total += self.cpu.parallel_start * len(self.shapes)
        return total

    def plain(self, shape: ConvShape, config: DepthwiseConfig) -> float:
        """Return the cycles of one plain convolution."""
        units, panels = self.units(shape, config.rows, config.columns), self.panels(config.vectors)
        tr, tn = config.threads
        share = ceil_div(units, tr) / units * ceil_div(panels, tn) / panels
        kernel = share * self.kernel(shape, config)
        points = shape.n * shape.d.points * shape.groups
        moved = points * shape.h.points * shape.w.points * shape.co * self.core.word
        halo = shape.w.reach(config.columns) / (config.columns * shape.w.stride) if self.by_channel else 1.0
        read = shape.n * shape.d.size * shape.h.size * shape.w.size * shape.groups * self.w.a_bytes
        memory = share * (moved + read) / self.home
        near = share * read * (halo - 1.0) / self.cpu.l2_bytes_per_cycle
        overlap = self.core.costs.depthwise_overlap * (min(kernel, memory) + near)
        return max(kernel, memory) + overlap + share * self.beyond_l2(shape, config)

    def beyond_l2(self, shape: ConvShape, config: DepthwiseConfig) -> float:
        """Return the cycles lost because the channels of a pixel are written block by block, and cache lines one by
        one, if the result exceeds L2.
        """
        costs, points = self.core.costs, shape.n * shape.d.points * shape.h.points * shape.w.points
        wide = points * shape.groups * self.core.word > self.core.l2 * costs.l2_share / 2
        if not (wide and self.by_channel):
            return 0.0
        lost = costs.result_piece * points * (ceil_div(shape.groups, config.channels) - 1)
        lines = ceil_div(shape.groups, self.lanes)
        return lost + (costs.lone_line * points * lines if config.vectors == 1 < lines else 0.0)

    def kernel(self, shape: ConvShape, config: DepthwiseConfig) -> float:
        """Return the cycles of all tiles on one core, with operands in L1 or read from L2."""
        s, core = shape, self.core
        if self.dot is not None:
            return self.dot_kernel(config)
        if self.by_channel:
            width, vectors = config.columns, self.vectors_of(config)
            many = s.n * s.d.points * ceil_div(s.w.points, width) * ceil_div(s.groups, self.lanes) / vectors * s.co
        else:
            width, vectors = ceil_div(config.columns, self.lanes), 1.0
            many = s.n * s.d.points * ceil_div(s.w.points, config.columns) * s.groups * s.co
        many *= ceil_div(s.h.points, config.rows)
        tile = config.rows * width * vectors
        # Input rows under the tile that are inside the image, and tap rows.
        inside = rows_inside(s.h)
        lines = inside * min(s.h.reach(config.rows), config.rows * s.h.taps)
        loads = self.loads(s, config, width, vectors)
        step = config.rows * s.h.taps * inside * width * vectors * s.w.taps * self.fma
        chain = s.h.taps * s.w.taps * self.cpu.fma_latency * inside if tile < self.cpu.fma_latency else 0.0
        arrival = 0.0
        if self.by_channel and self.under(config.columns, config.channels) > core.costs.l1_depthwise * 1.2 * core.l1:
            arrival = (
                lines * s.w.reach(config.columns) * vectors * self.lanes * self.w.a_bytes / self.cpu.l2_bytes_per_cycle
            )
        stores = tile * 2.0 * core.vector_load
        ends = core.costs.depthwise_tile_end + lines * core.costs.row_start * (config.rows == 1)
        if (self.output_run < self.lanes) if self.by_channel else self.w.layout != "NCHW":
            ends += tile * self.lanes * core.costs.scattered_element
        taps = max(step, lines * loads, chain)
        taps = max(taps, arrival) + core.costs.depthwise_overlap * min(taps, arrival)
        return many * (max(s.d.taps * taps, stores) + ends)

    def dot_kernel(self, config: DepthwiseConfig) -> float:
        """Return the same if taps are elements of a dot product."""
        s, costs = self.shape, self.core.costs
        many = s.n * ceil_div(s.groups, self.lanes)
        parts = ceil_div(s.w.taps, 4)
        woven = ceil_div(config.columns, 2) if s.w.stride == 1 and parts == 1 else config.columns * parts
        cycles = 0.0
        for rows, tall in ((s.h.points // config.rows, config.rows), (1, s.h.points % config.rows)):
            for columns, wide in ((s.w.points // config.columns, config.columns), (1, s.w.points % config.columns)):
                if not (rows and tall and columns and wide):
                    continue
                share = wide / config.columns
                sums = tall * wide
                steps = s.h.reach(tall) * woven * share * WEAVE + sums * s.h.taps * parts
                cycles += rows * columns * (steps + sums * WRITE_BACK + costs.depthwise_tile_end)
        return many * cycles

    def vectors_of(self, config: DepthwiseConfig) -> float:
        """Return the mean number of vectors in a panel."""
        vectors = ceil_div(self.shape.groups, self.lanes)
        return vectors / ceil_div(vectors, config.vectors)

    def loads(self, s: ConvShape, config: DepthwiseConfig, width: int, vectors: float) -> float:
        """Return the cycles to load one input row under a tile."""
        if self.by_channel:
            fits = (config.columns + s.w.taps) * config.vectors < self.cpu.vector_registers
            weights = s.w.taps if fits else s.w.taps * width
            return (min(s.w.reach(width), width * s.w.taps) + weights) * vectors * self.core.vector_load
        # Vectors that straddle cache lines need two loads; a stride also needs permutations.
        return width * s.w.taps * self.core.vector_load * (2.0 if s.w.taps > 1 else 1.0)

    def tiling(self, config: DepthwiseConfig, cycles: float) -> ConvTiling:
        """Return the decision of a candidate, with its reasons."""
        mhz = self.cpu.mhz
        per_cycle = self.core.lanes * self.cpu.fma_units * self.cpu.cores
        along = "channels" if self.by_channel else "columns"
        return ConvTiling(
            form="depthwise",
            utilisation=min(1.0, self.w.macs / per_cycle / cycles),
            predicted_seconds=cycles / (mhz * 1e6),
            tile_rows=config.rows,
            tile_columns=config.columns,
            vectors=config.vectors,
            lanes=self.lanes,
            lanes_along=along,
            walk_rows=config.walk_rows,
            walk_columns=config.walk_columns,
            taps_at_once=None if self.dot is None else self.dot.group,
            columns=config.channels,
            inner_order="nm" if self.by_channel and self.dot is None else "mn",
            threads_rows=config.threads[0],
            threads_columns=config.threads[1],
            pack_w="ahead" if self.prepacked else "run",
            reasons=self.reasons(config, along),
        )

    def reasons(self, config: DepthwiseConfig, along: str) -> tuple[Reason, ...]:
        s = self.shape
        weights = s.w.taps * config.vectors
        tile = config.columns * config.vectors if self.by_channel else config.rows * config.vectors
        why = "channels are adjacent" if self.by_channel else "channels are not adjacent"
        held = f"{tile} sums and {quantity(weights, 'weight')} of a row fit {self.cpu.vector_registers} registers"
        under = self.under(config.columns, config.channels)
        block = f"a column of tiles reads {under:.0f} of the {self.core.l1} bytes of L1"
        found = [Reason("form", "depthwise", f"{self.w.ci} groups of one channel"), Reason("lanes_along", along, why)]
        if self.dot is not None:
            taps = f"{self.dot.name} sums {self.dot.group} multiplications, here of {s.w.taps} adjacent taps"
            return (*found, Reason("taps_at_once", self.dot.group, taps), Reason("columns", config.channels, block))
        found.append(Reason("tile_columns" if self.by_channel else "tile_rows", tile, held))
        if self.by_channel:
            found.append(Reason("columns", config.channels, block))
        return tuple(found)


def adjacent_channels(workload: ConvWorkload, input_run: int) -> int:
    """Return the number of adjacent channels; from the layout if the input is computed rather than loaded."""
    if input_run > 1 or workload.layout == "NCHW":
        return input_run
    return workload.ci if workload.layout == "NHWC" else int(workload.layout[4:-1])


def apart(axis: Axis, size: int) -> int:
    """Return the number of tiles of `size` points at the ends of an axis for which separate code is generated."""
    first, end = axis.inside
    left = ceil_div(first, size)
    return min(ceil_div(axis.points, size), left + ceil_div(axis.points, size) - max(left, end // size))


@functools.lru_cache(maxsize=256)
def rows_inside(axis: Axis) -> float:
    """Return the mean share of the taps that are inside the image, over the points of an axis."""
    if not axis.padded or not axis.taps:
        return 1.0
    inside = sum(
        0 <= point * axis.stride + axis.start + tap * axis.dilation < axis.size
        for point in range(axis.points)
        for tap in range(axis.taps)
    )
    return inside / (axis.points * axis.taps)
