"""How a depthwise convolution is cut on a CPU, and what it costs there: channels by themselves, one to a lane.

lanes          along channels where at least four of them are adjacent, else along output columns
register tile  columns x vectors of channels, or rows x vectors of columns: within the registers of page 03, beside the
               weights of a row of the kernel
columns        as many channels as leave the rows under a tile in L1
shares         every factorisation of the cores into rows and channels

Predicted cycles are those of the slowest core: multiply-adds or loads of the tile, its ends, and the arrival of input
and output from where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import UnsupportedOperator
from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.dot_engine import dot_engine
from ..gemm.gemm_cost import CpuModel
from ..gemm.traffic import ceil_div
from ..tiling import Reason
from .conv_tiling import ConvTiling
from .shape import Axis, ConvShape, shapes_of

# Neighbouring channels from which on lanes are channels.
FEWEST_LANES = 4
# Taps of a row of the kernel that are unrolled at most, multiply-adds of a tile whose rows of taps are too, and tiles
# that have a place of their own at the ends of an axis. They bound the code, not what is computed.
WIDEST_KERNEL = 32
UNROLLED = 60
TILES_APART = 12
# Taps as elements of a dot product: the most taps along an axis, sums of a tile, instructions of a tile that are
# written out; cycles to weave a group of pixels, and to finish a vector of sums (measured on Zen 4).
MOST_TAPS = 8
DOT_SUMS = 24
DOT_UNROLLED = 256
WEAVE = 4.0
WRITE_BACK = 4.0


@dataclass(frozen=True)
class DepthwiseConfig:
    """A candidate."""

    threads: tuple[int, int]  # shares of tiles of rows, of panels of channels
    rows: int
    columns: int
    vectors: int
    channels: int  # of a block
    walk_rows: bool
    walk_columns: bool = False


def decide_depthwise(
    workload: ConvWorkload, cpu: Cpu, *, input_run: int, output_run: int, prepacked: bool
) -> ConvTiling:
    """The cheapest configuration of a convolution with a group for each input channel. Sources: pages 01 and 03.

    `input_run` and `output_run` are neighbouring channels that are adjacent; `prepacked`: the weights arrive packed.
    UnsupportedOperator for other groups, and for kernels too wide to be unrolled where lanes are columns.
    """
    choice = DepthwiseChoice(workload, cpu, input_run, output_run, prepacked)
    cycles, config = choice.best()
    return choice.tiling(config, cycles)


class DepthwiseChoice:
    """The candidates of one convolution and their cost."""

    def __init__(self, workload: ConvWorkload, cpu: Cpu, input_run: int, output_run: int, prepacked: bool) -> None:
        if workload.groups != workload.ci:
            raise UnsupportedOperator(
                f"algorithm = 'depthwise' takes a group for each input channel, not {workload.groups} groups of "
                f"{workload.ci} channels"
            )
        self.w, self.cpu, self.output_run, self.prepacked = workload, cpu, output_run, prepacked
        self.engine: DotInstruction = dot_engine(workload, cpu, form="depthwise")
        self.shapes = shapes_of(workload)
        # Residues of a transposed convolution are cut alike: as the one with the most to do.
        self.shape = max(self.shapes, key=lambda s: s.macs)
        taps = max(1, self.shape.d.taps * self.shape.h.taps * self.shape.w.taps)
        # Its rates of loads and multiply-adds, and its caches.
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
        """The instruction that takes neighbouring taps of a row as the elements of a dot product; None where there is
        none, or channels, borders or distances do not admit it."""
        s, engine = self.shape, self.engine
        served = self.prepacked and self.by_channel and self.lanes == self.cpu.lanes(engine.acc_bytes)
        narrow = engine.group == 4 and engine.acc_bytes == 4 and self.w.types.b == "int8"
        plain = input_run > 1 and s.co == 1 and len(self.shapes) == 1 and s.d.taps == 1 and s.d.points == 1
        near = s.h.dilation == 1 == s.w.dilation and 2 <= s.w.taps <= MOST_TAPS and 1 <= s.h.taps <= MOST_TAPS
        inside = not (s.h.padded or s.w.padded or s.d.padded)
        return engine if served and narrow and plain and near and inside else None

    # ---- candidates -------------------------------------------------------------------------------------------------

    def best(self) -> tuple[float, DepthwiseConfig]:
        """(cycles, cut) of the cheapest; the first of equals."""
        cycles, _, config = min((self.cycles(config), i, config) for i, config in enumerate(self.configs()))
        return cycles, config

    def configs(self) -> Iterator[DepthwiseConfig]:
        """Every candidate."""
        for rows, columns, vectors, walks in self.tiles():
            for channels in self.blocks(columns, vectors) if self.by_channel else (self.lanes,):
                for threads in self.shares(rows, columns, vectors):
                    yield DepthwiseConfig(threads, rows, columns, vectors, channels, *walks)

    def tiles(self) -> Iterator[tuple[int, int, int, tuple[bool, bool]]]:
        """(rows, columns, vectors, (rows walked, columns walked)) within the registers."""
        s, registers = self.shape, self.cpu.vector_registers
        taps = s.w.taps
        if not self.by_channel:
            if taps > WIDEST_KERNEL or apart(s.w, self.lanes) > TILES_APART:
                raise UnsupportedOperator(
                    f"algorithm = 'depthwise' unrolls the taps of a row where channels are not adjacent: at most "
                    f"{WIDEST_KERNEL}, and borders of some vectors; here {taps} taps, padding {self.w.padding}, "
                    f"dilation {self.w.dilation}"
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
        """Tiles of several rows, which share the pixels that are woven."""
        s = self.shape
        for rows in sorted({min(rows, s.h.points) for rows in (1, 2, 3, 4)}):
            for columns in range(1, min(s.w.points, DOT_SUMS // rows) + 1):
                if rows * columns * s.h.taps <= DOT_UNROLLED:
                    yield rows, columns, 1, (False, False)

    def tall_tiles(self) -> Iterator[tuple[int, int, int, tuple[bool, bool]]]:
        """Where lanes are columns: several rows, as each vector of a row then serves several."""
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
        """Channels of a block: all, and as many as stay in L1 under a column of tiles."""
        nr = vectors * self.lanes
        panels = ceil_div(self.shape.groups, nr)
        fit = max(1, int(self.core.costs.l1_depthwise * self.core.l1 / self.under(columns, nr)))
        yield panels * nr
        if fit < panels:
            yield ceil_div(panels, ceil_div(panels, fit)) * nr

    def under(self, columns: int, channels: int) -> float:
        """Bytes of the input under the taps of a tile of one row and so many columns and channels."""
        s = self.shape
        return s.d.taps * max(1, s.h.taps) * s.w.reach(columns) * max(channels * self.w.a_bytes, self.line)

    def shares(self, rows: int, columns: int, vectors: int) -> Iterator[tuple[int, int]]:
        """(of tiles of rows, of panels) for one core and for all."""
        cores, panels = self.cpu.cores, self.panels(vectors)
        units = self.units(self.shape, rows, columns)
        yield 1, 1
        for tr in range(cores, 0, -1):
            if cores > 1 and cores % tr == 0 and tr <= units and cores // tr <= panels:
                yield tr, cores // tr

    def panels(self, vectors: int) -> int:
        return ceil_div(self.shape.groups, vectors * self.lanes) if self.by_channel else 1

    def units(self, shape: ConvShape, rows: int, columns: int) -> int:
        """Tiles that are shared: of rows; where there is one row, of columns."""
        lone = shape.h.points == 1
        planes = shape.n * shape.d.points * (1 if self.by_channel else shape.groups * shape.co)
        return planes * (ceil_div(shape.w.points, columns) if lone else ceil_div(shape.h.points, rows))

    # ---- cost -------------------------------------------------------------------------------------------------------

    def cycles(self, config: DepthwiseConfig) -> float:
        """Predicted cycles of the slowest core, start of the threads included."""
        total = sum(self.plain(shape, config) for shape in self.shapes)
        if not self.prepacked:
            total += self.w.co * self.w.kd * self.w.kh * self.w.kw
        if config.threads != (1, 1):
            total += self.cpu.parallel_start * len(self.shapes)
        return total

    def plain(self, shape: ConvShape, config: DepthwiseConfig) -> float:
        """One plain convolution."""
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
        return max(kernel, memory) + self.core.costs.depthwise_overlap * (min(kernel, memory) + near)

    def kernel(self, shape: ConvShape, config: DepthwiseConfig) -> float:
        """Cycles of all tiles on one core, their operands in L1 or arriving from L2."""
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
        # Rows of the input under the tile that lie in the image, and rows of taps.
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
        """The same where taps are elements of a dot product."""
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
        """Vectors of a panel in the mean."""
        vectors = ceil_div(self.shape.groups, self.lanes)
        return vectors / ceil_div(vectors, config.vectors)

    def loads(self, s: ConvShape, config: DepthwiseConfig, width: int, vectors: float) -> float:
        """Cycles for the loads of one row of the input under a tile."""
        if self.by_channel:
            fits = (config.columns + s.w.taps) * config.vectors < self.cpu.vector_registers
            weights = s.w.taps if fits else s.w.taps * width
            return (min(s.w.reach(width), width * s.w.taps) + weights) * vectors * self.core.vector_load
        # Vectors that straddle two lines are two loads; with a stride there are permutations besides.
        return width * s.w.taps * self.core.vector_load * (2.0 if s.w.taps > 1 else 1.0)

    def tiling(self, config: DepthwiseConfig, cycles: float) -> ConvTiling:
        """The decision that a candidate stands for, with its reasons."""
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
        why = "channels are adjacent" if self.by_channel else "neighbouring channels are not adjacent"
        held = f"{tile} sums beside the weights of a row, {weights}, in {self.cpu.vector_registers} registers"
        under = self.under(config.columns, config.channels)
        block = f"{under:.0f} bytes under a column of tiles, L1 holds {self.core.l1}"
        found = [Reason("form", "depthwise", f"{self.w.ci} groups of one channel"), Reason("lanes_along", along, why)]
        if self.dot is not None:
            taps = (
                f"{self.dot.name} adds {self.dot.group} products; {s.w.taps} neighbouring taps are multiplied at once"
            )
            return (*found, Reason("taps_at_once", self.dot.group, taps), Reason("columns", config.channels, block))
        found.append(Reason("tile_columns" if self.by_channel else "tile_rows", tile, held))
        if self.by_channel:
            found.append(Reason("columns", config.channels, block))
        return tuple(found)


def adjacent_channels(workload: ConvWorkload, input_run: int) -> int:
    """Neighbouring channels that lie together: as the layout says where the input is computed, not loaded."""
    if input_run > 1 or workload.layout == "NCHW":
        return input_run
    return workload.ci if workload.layout == "NHWC" else int(workload.layout[4:-1])


def apart(axis: Axis, size: int) -> int:
    """Tiles of `size` points at the ends of an axis that have a place of their own."""
    first, end = axis.inside
    left = ceil_div(first, size)
    return min(ceil_div(axis.points, size), left + ceil_div(axis.points, size) - max(left, end // size))


def rows_inside(axis: Axis) -> float:
    """Share of the taps that lie in the image, in the mean over the points of an axis."""
    if not axis.padded or not axis.taps:
        return 1.0
    inside = sum(
        0 <= point * axis.stride + axis.start + tap * axis.dilation < axis.size
        for point in range(axis.points)
        for tap in range(axis.taps)
    )
    return inside / (axis.points * axis.taps)
