"""A convolution with channels first on a CPU that keeps the layout of its operands: algorithm "planes".

lanes          adjacent output columns, which are contiguous in input and output
register tile  rows x vectors of columns x output channels, limited by the vector registers (design page 03)
weights        one number per output channel and tap, broadcast to all lanes
threads        division of the tiles of rows of all planes among cores

A vector of the input is used for all rows, taps and output channels of a tile that need it. Nothing is copied: taps
outside the image are skipped, and a stride of 2 takes every second lane of two vectors. This is fastest if there are
too few channels to fill vectors, as in groups, and where a transposition would take longer than the convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import UnsupportedOperator
from ...figures import quantity
from ...hardware.description import Cpu
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.dot_engine import dot_engine
from ..gemm.gemm_cost import CpuModel, overlapped
from ..gemm.traffic import ceil_div
from ..tiling import Reason
from .conv_tiling import ConvTiling
from .depthwise import TILES_APART, WIDEST_KERNEL, apart, rows_inside
from .shape import float_images

# Multiply-adds of a tile for one input channel, and of all tiles with separate code. They limit the code size.
UNROLLED = 256
WRITTEN_OUT = 3200
MOST_OUTPUTS = 8
MOST_VECTORS = 3
# Registers reserved for a weight and for inputs that are loaded ahead.
SPARE = 2


@dataclass(frozen=True)
class PlanesConfig:
    """A candidate: shares of the tiles of rows, and the register tile."""

    threads: int
    rows: int
    vectors: int  # of columns
    outputs: int  # output channels of a group


def decide_planes(workload: ConvWorkload, cpu: Cpu, *, input_run: int, prepacked: bool) -> ConvTiling:
    """Return the configuration with the lowest predicted cost. `input_run`: channels of the input that are adjacent in
    memory; `prepacked`: the weights are prepacked. Raises UnsupportedOperator if the algorithm does not apply."""
    choice = PlanesChoice(workload, cpu, input_run=input_run, prepacked=prepacked)
    cycles, config = choice.best()
    return choice.tiling(config, cycles)


class PlanesChoice:
    """The candidates of one convolution and their cost."""

    def __init__(self, workload: ConvWorkload, cpu: Cpu, *, input_run: int, prepacked: bool) -> None:
        w = workload
        if w.layout != "NCHW" or (input_run > 1 and w.ci > 1):
            raise UnsupportedOperator("algorithm = 'planes' requires channels first, not channels last")
        self.shape = s = float_images(w, "planes")
        if w.groups == w.ci > 1:
            raise UnsupportedOperator("algorithm = 'planes' requires fewer groups than input channels; use 'depthwise'")
        self.w, self.cpu, self.prepacked = workload, cpu, prepacked
        self.engine = dot_engine(workload, cpu, form="planes")
        self.taps = s.h.taps * s.w.taps
        self.core = CpuModel(GemmWorkload(m=s.points, k=s.ci * self.taps, n=s.co), cpu, self.engine)
        self.lanes = cpu.lanes(self.engine.acc_bytes)
        self.home = cpu.bytes_per_cycle(float(workload.bytes))

    # ---- candidates -------------------------------------------------------------------------------------------------

    def best(self) -> tuple[float, PlanesConfig]:
        """Return (cycles, configuration) of the fastest candidate, the first on a tie."""
        found = min(((self.cycles(config), i, config) for i, config in enumerate(self.configs())), default=None)
        if found is None:
            raise UnsupportedOperator(
                f"algorithm = 'planes' unrolls the taps of a tile, at most {UNROLLED}, and the tiles at the border; "
                f"here {self.w.kh} x {quantity(self.w.kw, 'tap')}, padding {self.w.padding}, dilation {self.w.dilation}"
            )
        return found[0], found[2]

    def configs(self) -> Iterator[PlanesConfig]:
        """Yield every candidate."""
        s = self.shape
        for outputs in (q for q in range(1, MOST_OUTPUTS + 1) if s.co % q == 0):
            for vectors in range(1, min(MOST_VECTORS, ceil_div(s.w.points, self.lanes)) + 1):
                for rows in sorted({min(rows, s.h.points) for rows in (1, 2, 3, 4, 6, 8)}):
                    if self.serves(rows, vectors, outputs):
                        for threads in sorted({1, min(self.cpu.cores, self.units(rows, outputs))}):
                            yield PlanesConfig(threads, rows, vectors, outputs)

    def serves(self, rows: int, vectors: int, outputs: int) -> bool:
        """Return whether a register tile fits the registers and its code stays within the limits."""
        s = self.shape
        high, wide = apart(s.h, rows), apart(s.w, vectors * self.lanes)
        written = rows * vectors * outputs * max(1, self.taps)
        return (
            (rows * outputs + self.lines(rows)) * vectors + SPARE <= self.cpu.vector_registers
            and s.w.taps <= WIDEST_KERNEL
            and max(high, wide) <= TILES_APART
            and written <= UNROLLED
            and written * (high + 1) * (wide + 1) <= WRITTEN_OUT
        )

    def lines(self, rows: int) -> int:
        """Return the number of input rows that a tile of this many rows reads."""
        return min(self.shape.h.reach(rows), rows * self.shape.h.taps)

    def units(self, rows: int, outputs: int) -> int:
        """Return the number of tiles of rows in all planes."""
        s = self.shape
        return s.n * s.groups * (s.co // outputs) * ceil_div(s.h.points, rows)

    # ---- cost -------------------------------------------------------------------------------------------------------

    def cycles(self, config: PlanesConfig) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        s, w, core = self.shape, self.w, self.core
        units = self.units(config.rows, config.outputs)
        share = ceil_div(units, config.threads) / units
        whole, tail = divmod(s.w.points, config.vectors * self.lanes)
        kernel = whole * self.tile(config, config.vectors)
        if tail:
            kernel += self.tile(config, ceil_div(tail, self.lanes))
        kernel *= units * share
        read = s.n * s.groups * s.ci * s.h.size * s.w.size * w.a_bytes
        moved = share * (read + s.points * s.groups * s.co * w.out_bytes)
        # Each block of output channels reads its group again.
        again = share * read * (s.co // config.outputs - 1) / self.cpu.bytes_per_cycle(read / (s.n * s.groups))
        found = sum(overlapped(kernel, moved / self.home + again, core.costs.exposed_lesser).values())
        if not self.prepacked:
            found += w.co * s.ci * self.taps
        return found + (self.cpu.parallel_start if config.threads > 1 else 0.0)

    def tile(self, config: PlanesConfig, vectors: int) -> float:
        """Return the cycles of one register tile with that many vectors of columns."""
        s, core = self.shape, self.core
        inside = rows_inside(s.h)
        many = config.rows * vectors * config.outputs
        adds = many * self.taps * inside / self.cpu.fma_units
        lines = self.lines(config.rows) * inside
        # Vectors that straddle two cache lines take two loads; with a stride there are two vectors and a permutation.
        each = core.vector_load * (2.0 if s.w.taps > 1 else 1.0)
        if s.w.stride > 1:
            each = 2.0 * core.vector_load + core.costs.shuffle
        weights = config.outputs * self.taps * inside * core.vector_load
        loads = lines * vectors * s.w.taps * each + weights
        chain = self.taps * inside * self.cpu.fma_latency if many < self.cpu.fma_latency * self.cpu.fma_units else 0.0
        step = max(adds, loads, chain) + core.costs.depthwise_overlap * min(adds, loads)
        return s.ci * (step + core.costs.tap_start) + core.costs.tile_start + many * 2.0 * core.vector_load

    def tiling(self, config: PlanesConfig, cycles: float) -> ConvTiling:
        """Return the decision of a candidate, with its reasons."""
        s, cpu = self.shape, self.cpu
        sums = config.rows * config.vectors * config.outputs
        held = f"{sums} sums fit {cpu.vector_registers} registers; rows and output channels share inputs"
        per_cycle = self.lanes * cpu.fma_units * cpu.cores
        return ConvTiling(
            form="planes",
            utilisation=min(1.0, self.w.macs / per_cycle / cycles),
            predicted_seconds=cycles / (cpu.mhz * 1e6),
            tile_rows=config.rows,
            tile_columns=min(config.vectors * self.lanes, s.w.points),
            vectors=config.vectors,
            lanes=self.lanes,
            lanes_along="columns",
            columns=config.outputs,
            copy_input=False,
            threads_rows=config.threads,
            threads_columns=1,
            pack_w="ahead" if self.prepacked else "run",
            reasons=(
                Reason("form", "planes", "vectors hold adjacent columns; channels are summed one by one"),
                Reason("tile_rows", config.rows, held),
                Reason("vectors", config.vectors, f"{quantity(s.w.points, 'column')} in vectors of {self.lanes}"),
                Reason("columns", config.outputs, f"of {s.co} output channels in each group"),
                Reason("threads_rows", config.threads, f"for {self.units(config.rows, config.outputs)} tiles of rows"),
            ),
        )
