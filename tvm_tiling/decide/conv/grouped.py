"""A convolution in groups of few channels on a CPU, channels adjacent: algorithm "grouped".

lanes          the output channels of several whole groups
register tile  columns of one output row by one vector, within the registers
weights        one vector per tap and channel of a group
threads        every factorisation into output rows and vectors of channels

The direct algorithm takes one group after the other, which leaves most lanes of a vector empty. Here the input of
several groups is one vector too. A permutation broadcasts an input element of each group to the lanes of the group's
outputs; its result serves all taps of a row that read it. Nothing is copied, and taps outside the image are skipped.
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
from .depthwise import TILES_APART, adjacent_channels, apart, rows_inside
from .shape import float_images

# Multiply-adds of a tile for one tap row. They determine the code size, since each tile at the border has its own code.
UNROLLED = 768
WRITTEN_OUT = 2304
# Registers reserved for loaded and permuted inputs.
SPARE = 3


@dataclass(frozen=True)
class GroupedConfig:
    """A candidate: division of rows and of vectors of channels among cores, and columns of the register tile."""

    threads: tuple[int, int]
    columns: int


def decide_grouped(workload: ConvWorkload, cpu: Cpu, *, input_run: int, output_run: int, prepacked: bool) -> ConvTiling:
    """Return the configuration with the lowest predicted cost. `input_run`, `output_run`: channels that are adjacent in
    memory; `prepacked`: the weights are prepacked. Raises UnsupportedOperator if the algorithm does not apply."""
    choice = GroupedChoice(workload, cpu, input_run=input_run, output_run=output_run, prepacked=prepacked)
    cycles, config = choice.best()
    return choice.tiling(config, cycles)


class GroupedChoice:
    """The candidates of one convolution and their cost."""

    def __init__(self, workload: ConvWorkload, cpu: Cpu, *, input_run: int, output_run: int, prepacked: bool) -> None:
        w = workload
        self.shape = s = float_images(w, "grouped")
        self.w, self.cpu, self.prepacked = workload, cpu, prepacked
        self.engine = dot_engine(workload, cpu, form="grouped")
        self.lanes = cpu.lanes(self.engine.acc_bytes)
        if s.groups == 1 or not 1 < s.ci <= s.co <= self.lanes or self.lanes % s.co:
            raise UnsupportedOperator(
                f"algorithm = 'grouped' requires groups of 2 to {self.lanes} input channels, and output channels that "
                f"divide {self.lanes}, the lanes of a vector, not {quantity(s.groups, 'group')} of {s.ci} input and "
                f"{s.co} output channels"
            )
        read = adjacent_channels(workload, input_run)
        if read < w.ci or min(output_run, w.co) < min(self.lanes, w.co):
            raise UnsupportedOperator("algorithm = 'grouped' requires channels that are adjacent in memory")
        self.taps = s.h.taps * s.w.taps
        self.vectors = ceil_div(w.co, self.lanes)
        self.core = CpuModel(GemmWorkload(m=s.points, k=s.ci * self.taps, n=s.co), cpu, self.engine)
        self.home = cpu.bytes_per_cycle(float(workload.bytes))

    # ---- candidates -------------------------------------------------------------------------------------------------

    def best(self) -> tuple[float, GroupedConfig]:
        """Return (cycles, configuration) of the fastest candidate, the first on a tie."""
        found = min(((self.cycles(config), i, config) for i, config in enumerate(self.configs())), default=None)
        if found is None:
            raise UnsupportedOperator(
                f"algorithm = 'grouped' unrolls the taps of a row, at most {UNROLLED} multiply-adds of a tile, and the "
                f"tiles at the border; here {self.w.kh} x {self.w.kw} taps, padding {self.w.padding}, dilation "
                f"{self.w.dilation}"
            )
        return found[0], found[2]

    def configs(self) -> Iterator[GroupedConfig]:
        """Yield every candidate: columns are equal parts of a row."""
        s, cores = self.shape, self.cpu.cores
        most = max(1, self.cpu.vector_registers - SPARE - s.w.taps)
        parts = ceil_div(s.w.points, most)
        for columns in sorted({ceil_div(s.w.points, count) for count in range(parts, 2 * parts + 2)}):
            if self.serves(columns):
                yield GroupedConfig((1, 1), columns)
                for tr in range(1, cores + 1):
                    if cores > 1 and cores % tr == 0 and tr <= s.n * s.h.points and cores // tr <= self.vectors:
                        yield GroupedConfig((tr, cores // tr), columns)

    def serves(self, columns: int) -> bool:
        """Return whether a register tile fits the registers and its code stays within the limits."""
        s = self.shape
        written = columns * s.w.taps * s.ci
        return (
            columns + SPARE <= self.cpu.vector_registers
            and apart(s.w, columns) <= TILES_APART
            and written <= UNROLLED
            and written * (apart(s.w, columns) + 1) <= WRITTEN_OUT
        )

    # ---- cost -------------------------------------------------------------------------------------------------------

    def cycles(self, config: GroupedConfig) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        s, w = self.shape, self.w
        tr, tn = config.threads
        rows, vectors = ceil_div(s.n * s.h.points, tr), ceil_div(self.vectors, tn)
        whole, tail = divmod(s.w.points, config.columns)
        kernel = whole * self.tile(config.columns) + (self.tile(tail) if tail else 0.0)
        kernel *= rows * vectors
        share = rows * vectors / (s.n * s.h.points * self.vectors)
        moved = share * (s.n * s.h.size * s.w.size * w.ci * w.a_bytes + s.points * w.co * w.out_bytes)
        weights = 4.0 * self.lanes * self.taps * s.ci * self.vectors
        arrival = moved / self.home + weights / tn / self.cpu.bytes_per_cycle(weights)
        found = sum(overlapped(kernel, arrival, self.core.costs.exposed_lesser).values())
        if tn > 1:
            # Cores that divide the channels use only a part of each pixel's cache lines, so that these collide in L2:
            # on two cores of Sapphire Rapids this takes as long as a transfer from the last-level cache.
            found += moved / self.cpu.l3_bytes_per_cycle
        if not self.prepacked:
            found += w.co * s.ci * self.taps
        return found + (self.cpu.parallel_start if config.threads != (1, 1) else 0.0)

    def tile(self, columns: int) -> float:
        """Return the cycles of one register tile of that many columns."""
        s, core = self.shape, self.core
        lines = s.h.taps * rows_inside(s.h)
        # Permutations use one of the ports of multiply-adds; an element of a single group is broadcast by its load.
        spread = min(s.w.reach(columns), columns * s.w.taps) * s.ci
        adds = columns * s.w.taps * s.ci
        permuted = spread if s.co < self.lanes else 0
        compute = adds / self.cpu.fma_units + permuted * core.costs.shuffle / 2
        loads = (spread + s.w.taps * s.ci) * core.vector_load
        chain = s.w.taps * s.ci * self.cpu.fma_latency if columns < self.cpu.fma_latency * self.cpu.fma_units else 0.0
        # All channels of the pixels under a tile are read before the next tile.
        under = lines * s.w.reach(columns) * self.w.ci * self.w.a_bytes
        far = s.w.reach(columns) * core.line / self.cpu.l2_bytes_per_cycle
        step = max(compute, loads, chain) + (far if under > core.costs.l1_depthwise * core.l1 else 0.0)
        return lines * (step + core.costs.tap_start) + core.costs.tile_start + columns * 2.0 * core.vector_load

    def tiling(self, config: GroupedConfig, cycles: float) -> ConvTiling:
        """Return the decision of a candidate, with its reasons."""
        s, cpu = self.shape, self.cpu
        groups = self.lanes // s.co
        return ConvTiling(
            form="grouped",
            utilisation=min(1.0, self.w.macs / (self.lanes * cpu.fma_units * cpu.cores) / cycles),
            predicted_seconds=cycles / (cpu.mhz * 1e6),
            tile_rows=1,
            tile_columns=config.columns,
            vectors=1,
            lanes=self.lanes,
            lanes_along="channels",
            copy_input=False,
            threads_rows=config.threads[0],
            threads_columns=config.threads[1],
            pack_w="ahead" if self.prepacked else "run",
            reasons=(
                Reason("form", "grouped", f"a vector holds {groups} groups of {s.ci} input and {s.co} output channels"),
                Reason(
                    "tile_columns",
                    config.columns,
                    f"as many sums and {s.w.taps} weights fit {cpu.vector_registers} registers",
                ),
                Reason("threads_rows", config.threads[0], f"for {quantity(s.n * s.h.points, 'row')}"),
                Reason("threads_columns", config.threads[1], f"for {self.vectors} vectors of channels"),
            ),
        )
