"""Cost model of a direct convolution on a CPU, which ranks the candidates of conv/direct.py.

The microkernel is that of a matrix multiplication, so its step, the bandwidth of each cache level and the overhead of a
tile are those of gemm/gemm_cost.py. Copying the input is added, rows of the kernel outside the image are free where
they are skipped, and weights are read once per band.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from ...hardware.description import Cpu
from ...hardware.dot_instructions import DotInstruction
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.cache_conflict import is_bad_leading_dimension
from ..gemm.gemm_cost import ROUNDED, CpuModel, overlapped, pieces
from ..gemm.traffic import ceil_div
from .shape import ConvShape


class ConvConfig(NamedTuple):
    """A candidate: register tile, blocks, loop order, division among cores, and whether the input is copied."""

    threads: tuple[int, int]  # divisions of the rows of tiles and of the output channels
    rows: int  # register tile: output rows, columns, vectors of channels
    columns: int
    vectors: int
    band: int  # output rows that are copied or processed at once
    block_taps: int
    block_run: int
    block_channels: int
    tiles_outside: bool
    merged: bool
    copies: bool
    pitch: int

    @property
    def cores(self) -> int:
        return self.threads[0] * self.threads[1]


def turns_output(columns: int, lanes: int) -> bool:
    """Return whether a register tile with this many columns is transposed before it is written to an output in which
    columns are adjacent and channels are not. Tiles are transposed in squares of lanes by lanes, of which at least half
    must be used.
    """
    return 2 * columns >= lanes


class ConvModel:
    """Cost of any configuration of one convolution on one CPU.

    input_run, output_run: number of adjacent channels in memory. output_columns: whether columns are adjacent in the
    output. prepacked: whether the weights are prepacked.
    """

    def __init__(
        self,
        shape: ConvShape,
        cpu: Cpu,
        engine: DotInstruction,
        *,
        workload: ConvWorkload,
        input_run: int,
        output_run: int,
        prepacked: bool,
        output_columns: bool = False,
    ) -> None:
        self.output_columns = output_columns
        self._columns_inside: dict[int, float] = {}
        self._collisions: dict[tuple[int, int], bool] = {}
        self.shape, self.cpu, self.engine, self.costs = shape, cpu, engine, cpu.kernel_costs
        self.input_run, self.output_run, self.prepacked = input_run, output_run, prepacked
        s = shape
        k = max(1, s.ci * s.d.taps * s.h.taps * s.w.taps)
        self.core = CpuModel(GemmWorkload(m=s.points, k=k, n=s.co, **workload.type_fields()), cpu, engine, apart=True)
        self.lanes, self.word = self.core.lanes, self.core.word
        self.element = self.word / engine.group  # bytes of a packed element
        self.input_bytes = s.n * s.d.size * s.h.size * s.w.size * s.ci * s.groups * workload.a_bytes
        self.weight_bytes = s.groups * k * s.co * self.core.b_word / engine.group
        self.output_bytes = s.points * s.co * s.groups * workload.out_bytes

    @cached_property
    def home(self) -> float:
        """Bytes per cycle from the place where input and output are before the convolution."""
        return self.core.cpu.bytes_per_cycle(float(self.input_bytes + self.weight_bytes + self.output_bytes))

    def skips(self, rows: int) -> bool:
        """Return whether rows of the kernel outside the image are skipped; see schedules/conv_direct.py."""
        s = self.shape
        return rows == 1 and s.h.padded and not self.engine.offset and s.d.taps == 1 and not s.d.padded

    @cached_property
    def rows_inside(self) -> float:
        """Mean share of the kernel's rows that are inside the image, over the rows of the output."""
        h = self.shape.h
        inside = sum(
            0 <= y * h.stride + h.start + t * h.dilation < h.size for y in range(h.points) for t in range(h.taps)
        )
        return inside / (h.points * h.taps) if h.taps else 1.0

    def columns_inside(self, config: ConvConfig) -> float:
        """Return the mean share of the taps of a row for which some pixel of a tile is inside the image, over the tiles
        of a row."""
        w = self.shape.w
        if config.merged or self.engine.offset or self.shape.fold > 1 or not w.hides(config.columns):
            return 1.0
        if config.columns not in self._columns_inside:
            inside = tiles = 0
            for x in range(0, w.points, config.columns):
                last = min(x + config.columns, w.points) - 1
                first, end = x * w.stride + w.start, last * w.stride + w.start
                inside += sum(end + t * w.dilation >= 0 and first + t * w.dilation < w.size for t in range(w.taps))
                tiles += w.taps
            self._columns_inside[config.columns] = inside / tiles
        return self._columns_inside[config.columns]

    def collides(self, config: ConvConfig) -> bool:
        """Return whether the pixels of a register tile evict each other from L1."""
        l1 = self.cpu.cache(1)
        if l1 is None:
            return False
        step = config.pitch * (1 if config.copies and self.shape.w.taps == 1 else self.shape.w.stride)
        pixels = config.rows * config.columns
        if (step, pixels) not in self._collisions:
            self._collisions[step, pixels] = is_bad_leading_dimension(step, max(1, int(self.element)), l1, rows=pixels)
        return self._collisions[step, pixels]

    def band_bytes(self, config: ConvConfig) -> float:
        """Return the bytes of input under a band."""
        s = self.shape
        rows = min(s.h.reach(config.band), s.h.size) if self.skips(config.rows) else s.h.reach(config.band)
        return s.d.taps * rows * s.w.reach(s.w.points) * config.pitch * self.element

    def least(self, config: ConvConfig) -> float:
        """Return a lower bound of `cycles`, by which candidates are pruned."""
        s = self.shape
        taps = s.d.taps * s.h.taps * (1 if config.merged else s.w.taps)
        inside = (self.rows_inside if self.skips(config.rows) else 1.0) * self.columns_inside(config)
        groups = ceil_div(s.ci * (s.w.taps if config.merged else 1), self.engine.group)
        tile = self.core.least_of_tile(config.rows * config.columns, config.vectors, taps * inside * groups)
        found = s.planes * s.h.points * s.w.points * s.co / self.lanes / config.cores * tile
        return ROUNDED * found + (self.cpu.parallel_start if config.cores > 1 else 0.0)

    def cycles(self, config: ConvConfig) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        return sum(self.parts(config).values())

    def parts(self, config: ConvConfig) -> dict[str, float]:
        """Return the predicted cycles by cause."""
        s, core, nr = self.shape, self.core, config.vectors * self.lanes
        tr, tn = config.threads
        units = ceil_div(s.h.points, config.rows)
        my_units = ceil_div(s.planes * units, tr)
        panels = ceil_div(s.co, nr)
        my_panels = ceil_div(panels, tn)
        taps = s.d.taps * s.h.taps * (1 if config.merged else s.w.taps)
        run = s.ci * (s.w.taps if config.merged else 1)
        groups = ceil_div(run, self.engine.group)
        parts = ceil_div(run, config.block_run)
        blocks = max(1, ceil_div(taps, 1 if parts > 1 else config.block_taps)) * parts
        inside = (self.rows_inside if self.skips(config.rows) else 1.0) * self.columns_inside(config)

        kernel, costs = 0.0, self.costs
        for tall, many in pieces(s.h.points, config.rows, units, alone=True):
            for wide, columns in pieces(s.w.points, config.columns, ceil_div(s.w.points, config.columns), alone=True):
                for width, count in pieces(s.co, nr, my_panels, alone=my_panels == panels):
                    vectors = ceil_div(width, self.lanes)
                    step = self._step(config, tall * wide, vectors, taps * groups, blocks)
                    around = costs.tile_start + tall * wide * vectors * 2.0 * core.vector_load
                    if self.output_run < self.lanes:
                        around += self._scattered(config, tall, wide, width) / blocks
                    tile = taps * inside * (groups * step + costs.tap_start * parts) + blocks * around
                    kernel += many / units * my_units * columns * count * tile
        share = my_units / (s.planes * units)
        kernel += self._beyond_l2(config, my_units, my_panels, share, blocks)
        bands = max(1.0, my_units * config.rows / config.band)
        weights = self.weight_bytes / s.groups * my_panels / panels
        # Weights are read once per band unless they stay in L2.
        passes = bands if weights > core.l2 / 2 else max(1.0, s.groups * share)
        arrival = passes * weights / core.cpu.bytes_per_cycle(self.weight_bytes)
        touched = self.input_bytes * share + self.output_bytes * share * my_panels / panels
        memory = arrival + touched / self.home
        found = overlapped(kernel, memory, self.costs.exposed_lesser)
        found.update(weights=self.costs.exposed_weights * arrival, copies=self._copy(config, share, bands))
        packed = 0.0 if self.prepacked else self.weight_bytes / config.cores
        found["packing"] = packed / self.word * self.costs.packed_vector + packed / core.cpu.bytes_per_cycle(
            self.weight_bytes
        )
        found["handed_over"] = core.line_transfer(packed) if tr > 1 else 0.0
        found["lines"] = blocks * core.shared_lines(s.points * share, s.co * s.groups, tn)
        found["start"] = self.cpu.parallel_start * (1 if self.prepacked else 2) if config.cores > 1 else 0.0
        return found

    def _beyond_l2(self, config: ConvConfig, units: int, panels: int, share: float, blocks: int) -> float:
        """Return the cycles lost as in a matrix multiplication: rows of a result beyond L2 are written in pieces, and
        the pixels of a tile of a pointwise convolution, read in place, need their next cache lines at the same step."""
        s, core, found = self.shape, self.core, 0.0
        if not core.far:
            return found
        near = core.l2 * self.costs.l2_share
        width = config.block_channels // (config.vectors * self.lanes) if config.tiles_outside else 1
        times = ceil_div(panels, max(1, width))
        if times > 1 and min(config.band, s.h.points) * s.w.points * s.co * core.sum > near:
            found += self.costs.result_piece * s.points * share * (times - 1) * blocks
        if not config.copies and core.w.k == s.ci:
            tiles = units * ceil_div(s.w.points, config.columns)
            rows, groups = config.rows * config.columns, ceil_div(s.ci, self.engine.group)
            again = times if self.band_bytes(config) > near else 1
            found += core.arriving_rows(rows, config.block_run, groups, tiles, again)
        return found

    def _scattered(self, config: ConvConfig, tall: int, wide: int, width: int) -> float:
        """Return the cycles to write the channels of a tile where they are not adjacent in the output."""
        one_by_one = tall * wide * width * self.costs.scattered_element
        if not self.output_columns or not turns_output(config.columns, self.lanes):
            return one_by_one
        squares = tall * ceil_div(wide, self.lanes) * ceil_div(width, self.lanes)
        return squares * self.lanes * self.costs.turned_vector

    def _step(self, config: ConvConfig, pixels: int, vectors: int, steps: float, blocks: int) -> float:
        """Return the cycles of one microkernel step: multiply-adds, or the transfer of weights and pixels."""
        core, s = self.core, self.shape
        compute = core.step(pixels, vectors)
        line = vectors * self.lanes * self.word
        depth = steps / blocks
        panel = depth * config.vectors * self.lanes * self.word
        block = depth * config.block_channels * self.word
        resident = block if config.tiles_outside else panel
        right = 0.0
        if resident > core.l1 / 2:
            right = line / core.cpu.bytes_per_cycle(resident) * self.costs.prefetched_panel
        # The pixels of a tile share most of their input.
        patch = s.h.read(config.rows) * s.w.read(config.columns) * s.ci * s.d.taps * self.element
        left, exposed = 0.0, self.costs.exposed_panel * right
        if not config.tiles_outside or patch > core.l1 * 0.6:
            left = patch / max(1.0, steps) / core.cpu.bytes_per_cycle(self.band_bytes(config))
        if self.collides(config):
            missed = pixels * core.line / self.cpu.l2_bytes_per_cycle
            left += missed
            exposed += self.costs.exposed_miss * missed
        return max(compute, left + right) + exposed

    def _copy(self, config: ConvConfig, share: float, bands: float) -> float:
        """Return the cycles to copy a core's bands, including rows that two bands share, or to wait for the input."""
        if not config.copies:
            return 0.0
        waits = self.costs.exposed_copy * self.input_bytes * share / self.home if self.core.far else 0.0
        return max(waits, self._copied(share, bands))

    def _copied(self, share: float, bands: float) -> float:
        """Return the cycles of the instructions that copy a core's bands."""
        s = self.shape
        thin = 1 if s.h.taps == 1 else s.h.stride
        rows = s.planes * s.h.points * share * thin + bands * max(0, s.h.span - s.h.stride)
        rows = s.d.taps * min(rows, bands * s.h.size)
        columns = s.w.points if s.w.taps == 1 else s.w.reach(s.w.points)
        positions = rows * columns
        if self.input_run >= min(self.lanes, s.ci) and (self.input_run > 1 or s.ci == 1):
            return positions * max(1.0, s.ci / self.lanes) * self.costs.copied_vector
        turned = s.ci // self.lanes * (1 if s.w.taps > 1 or s.w.stride == 1 else 0)
        return positions * (
            turned * self.costs.turned_vector + (s.ci - turned * self.lanes) * self.costs.copied_element
        )
