"""Winograd convolution on a CPU: which tile size is fast and accurate enough, and the tiling of its matrix
multiplications.

F(m x m, r x r) turns a convolution into a x a matrix multiplications, a = m + r - 1, with all image tiles as rows,
input channels as reduction axis and output channels as columns. This needs (m * r / a)^2 times fewer multiply-adds:
2.25, 4 and 5.06 times for 3 x 3 and m = 2, 4, 6. The costs are the transforms, weights that are (a / r)^2 times larger
and are read for every block of image tiles, and image tiles that extend past the edge. The cost model below includes
all of these; its constants were measured on one core with 512-bit vectors and weights transformed at compile time.

With dilation d, outputs d apart form an image of their own, whose convolution is not dilated: an image tile is m x m
such outputs, and reads inputs d apart.

Accuracy. The transforms add numbers that cancel, while rounding errors do not: those of the sums over the input
channels are multiplied by `amplification`. To limit them, at most LONGEST_SUM channels are added in sequence, and the
sums of such blocks are then added. Root mean square errors against float64 relative to the output, in units of 1e-7,
for normal random numbers with 64 and 128 channels; for comparison a direct sum as computed by PyTorch (oneDNN),
channels first and last:

    3 x 3                64      128       r x r, 64 channels      Winograd   direct sum
    direct sum           2.2     2.2       F(5 x 5, 2 x 2)           9.1       1.5
    with channels last   4.3     6.2       F(3 x 3, 4 x 4)           8.3       3.0
    F(2 x 2)             2.5     3.4       F(2 x 2, 5 x 5)           9.3       3.6
    F(4 x 4)             7.7     8.1       F(4 x 4, 5 x 5)            29       3.7
      in a single sum    7.7    10.4       F(3 x 3, 6 x 6)            33       4.4
    F(6 x 6), single      33      44       F(2 x 2, 7 x 7)            37       5.0

The error of a direct sum grows with the side of the kernel, and so does the accepted error. With the default tolerance,
no admitted tile has more than 4 times the error of the better direct sum; tiles with 8 points in each direction do.
`predicted_error` is the largest error relative to the largest output, for inputs and weights uniform in [-1, 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from ...errors import WorkloadError
from ...figures import quantity
from ...hardware.description import Cpu
from ...hardware.dot_instructions import FMA_FLOAT32
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.gemm_cost import CpuModel, pieces
from ..gemm.microkernel import tallest
from ..gemm.traffic import ceil_div
from .cook_toom import PAIRS, CookToom, cook_toom

# Largest accepted error relative to the largest output, for 3 x 3 kernels; see the module docstring.
TOLERANCE = 3.5e-6
# Input channels that are summed in sequence. Tiles that hardly amplify errors allow longer sums.
LONGEST_SUM = 64
LONGEST_GENTLE_SUM, GENTLE = 512, 10.0  # amplification
# Half the distance from 1 to the next float32.
ROUNDING = 2.0**-24
# Largest error of a sum of LONGEST_SUM channels relative to ROUNDING * amplification; it grows with the square root of
# their number.
LARGEST_ERROR = 1.75


@dataclass(frozen=True, kw_only=True)
class WinogradTiling:
    """Tiling of a Winograd convolution F(m x m, r x r): register tiles of rows x (vectors * lanes), blocks, and
    division among cores.

    Rows are image tiles, columns are output channels. `block_tiles` image tiles are transformed at once, and
    `block_channels` output channels are summed before their outputs are transformed back; both are multiples of the
    register tile.
    """

    predictions: ClassVar[tuple[str, ...]] = ("predicted_cycles", "predicted_error")

    m: int  # outputs of an image tile in each direction
    points: int  # a = m + r - 1 in each direction
    rows: int
    vectors: int
    lanes: int
    block_tiles: int
    block_channels: int
    threads_tiles: int = 1
    threads_channels: int = 1
    pack_w: str = "run"  # "ahead": the weights are already transformed
    predicted_cycles: float = 0.0
    predicted_error: float = 0.0


def predicted_error(workload: ConvWorkload, m: int) -> float:
    """Return the largest error relative to the largest output; see the module docstring."""
    blocks = summed_blocks(workload, m)
    growth = max(1.0, (ceil_div(workload.ci, blocks) + blocks - 1) / LONGEST_SUM) ** 0.5
    return LARGEST_ERROR * ROUNDING * cook_toom(m, workload.kh).amplification * growth


def summed_blocks(workload: ConvWorkload, m: int) -> int:
    """Return the number of blocks of input channels that are summed separately."""
    gentle = cook_toom(m, workload.kh).amplification <= GENTLE
    return ceil_div(workload.ci, LONGEST_GENTLE_SUM if gentle else LONGEST_SUM)


def image_tiles(workload: ConvWorkload, m: int) -> tuple[int, int]:
    """Return the image tiles along height and width. With dilation d, tile t starts at output t % d of group t // d of
    m * d outputs."""
    sides = zip((workload.ho, workload.wo), workload.dilation, strict=True)
    high, wide = (d * ceil_div(ceil_div(outputs, d), m) for outputs, d in sides)
    return high, wide


def accepted_error(workload: ConvWorkload, tolerance: float) -> float:
    """Return the largest accepted predicted error for a tolerance, which refers to 3 x 3 kernels."""
    return tolerance * workload.kh / 3


def admissible(workload: ConvWorkload, tolerance: float = TOLERANCE) -> tuple[int, ...]:
    """Return the tile sizes m that support the workload with a predicted error within `tolerance`; empty if there are
    none."""
    if refusal(workload):
        return ()
    accepted = accepted_error(workload, tolerance)
    return tuple(m for m in _sizes(workload.kh) if predicted_error(workload, m) <= accepted)


def refusal(workload: ConvWorkload) -> str:
    """Return why no tile size supports the workload at any tolerance; "" if one does."""
    w = workload
    accepted = "Winograd convolution supports"
    if not FMA_FLOAT32.supports(w.types.a, w.types.b, w.types.acc):
        return f"{accepted} sums in float32, not {w.types.operands} accumulated in {w.acc_dtype}"
    if w.transposed or (w.d, w.kd) != (1, 1) or w.padding_d != (0, 0):
        return f"{accepted} plain two-dimensional convolutions"
    if w.kh != w.kw or not _sizes(w.kh):
        return f"{accepted} kernels of 2x2 to 7x7, not {w.kh}x{w.kw}"
    if w.stride != (1, 1) or w.groups != 1:
        return (
            f"{accepted} stride 1 and one group, not stride {w.stride[0]} x {w.stride[1]} and "
            f"{quantity(w.groups, 'group')}"
        )
    return ""


def decide_winograd(
    workload: ConvWorkload,
    cpu: Cpu,
    *,
    m: int | None = None,
    prepacked: bool = False,
    tolerance: float = TOLERANCE,
    adjacent_inputs: bool = True,
    adjacent_outputs: bool = True,
) -> WinogradTiling:
    """Return the fastest predicted configuration of all admissible tile sizes, or of `m`, which need not meet the
    tolerance.

    prepacked: whether the weights are already transformed. adjacent_inputs, adjacent_outputs: whether channels are
    adjacent in memory. Raises WorkloadError if no tile size is admissible.
    """
    why = refusal(workload)
    if why:
        raise WorkloadError(f"conv: {why}")
    sizes = _sizes(workload.kh)
    if m is not None and m not in sizes:
        raise WorkloadError(
            f"conv: m = {m} is not a Winograd tile size for {workload.kh}x{workload.kw}; expected {sizes}"
        )
    allowed = admissible(workload, tolerance) if m is None else (m,)
    if not allowed:
        least = min(predicted_error(workload, size) for size in sizes)
        accepted = accepted_error(workload, tolerance)
        raise WorkloadError(f"conv: the predicted error of Winograd convolution, {least:.1e}, exceeds {accepted:.1e}")
    adjacent = (adjacent_inputs, adjacent_outputs)
    models = {size: WinogradModel(workload, cpu, size, prepacked, adjacent) for size in allowed}
    return min(candidates(models), key=lambda config: config.predicted_cycles)


def candidates(models: Mapping[int, WinogradModel]) -> list[WinogradTiling]:
    """Return the configurations of all tile sizes, and other blocks for the fastest of them."""
    configs = [config for model in models.values() for config in model.configs()]
    fastest = min(configs, key=lambda config: config.predicted_cycles)
    return [*configs, *models[fastest.m].other_blocks(fastest)]


def _sizes(r: int) -> tuple[int, ...]:
    return tuple(m for m in (2 * pairs + 3 - r for pairs in PAIRS) if m >= 2 and r >= 2)


class WinogradModel:
    """Cost of the configurations of one convolution with tile size `m` on one CPU."""

    def __init__(
        self, workload: ConvWorkload, cpu: Cpu, m: int, prepacked: bool, adjacent: tuple[bool, bool] = (True, True)
    ) -> None:
        self.w, self.cpu, self.prepacked, self.m = workload, cpu, prepacked, m
        self.adjacent_inputs, self.adjacent_outputs = adjacent
        self.transforms: CookToom = cook_toom(m, workload.kh)
        self.a = self.transforms.a
        self.points = self.a**2
        self.image_tiles = image_tiles(workload, m)
        self.tiles = workload.n * self.image_tiles[0] * self.image_tiles[1]
        product = GemmWorkload(batch=self.points, m=self.tiles, n=workload.co, k=workload.ci)
        self.gemm = CpuModel(product, cpu, FMA_FLOAT32)
        self.lanes = self.gemm.lanes

    # ---- candidates -----------------------------------------------------------------------------------------------

    def configs(self) -> Iterator[WinogradTiling]:
        """Yield every register tile and every division among cores, with blocks that fit L2, and with one block for all
        image tiles of a core where that fits."""
        w = self.w
        for threads_tiles, threads_channels in self.shares():
            share = ceil_div(self.tiles, threads_tiles)
            for rows, vectors in self._register_tiles(share):
                nr = vectors * self.lanes
                if threads_tiles > ceil_div(self.tiles, rows) or threads_channels > ceil_div(w.co, nr):
                    continue
                panels = ceil_div(ceil_div(w.co, nr), threads_channels)
                groups = ceil_div(share, rows)
                config = self.config(rows, vectors, groups, panels, (threads_tiles, threads_channels))
                yield replace(config, predicted_cycles=self.cycles(config))
                if config.block_tiles < groups * rows and self.fits_whole(groups * rows, nr):
                    config = replace(config, block_tiles=groups * rows, block_channels=nr)
                    yield replace(config, predicted_cycles=self.cycles(config))

    def config(
        self, rows: int, vectors: int, groups: int, panels: int, threads: tuple[int, int] = (1, 1)
    ) -> WinogradTiling:
        """Return a register tile with blocks that fit L2, with at most `groups` register tiles of image tiles and
        `panels` panels of output channels; predicted_cycles is not set."""
        nr = vectors * self.lanes
        block_tiles = min(max(1, self.most_tiles // rows), groups) * rows
        room = int(self.gemm.l2 * self.gemm.costs.l2_transformed_sums) // (self.points * block_tiles * 4)
        return WinogradTiling(
            m=self.m,
            points=self.a,
            rows=rows,
            vectors=vectors,
            lanes=self.lanes,
            block_tiles=block_tiles,
            block_channels=min(max(1, room // nr), panels) * nr,
            threads_tiles=threads[0],
            threads_channels=threads[1],
            pack_w="ahead" if self.prepacked else "run",
            predicted_error=predicted_error(self.w, self.m),
        )

    def fits_whole(self, tiles: int, nr: int) -> bool:
        """Return whether the transforms of all `tiles` image tiles of a core stay in L2 beside the sums of one panel of
        channels and two panels of weights, so that all weights are read once: on Zen 5, 256 channels on 14 x 14 pixels
        take 222 us with F(4 x 4), where its weights arrive at 42 GB/s, 237 and 257 us with sums of 2 and 4 panels, and
        361 us in two blocks."""
        needed = self.points * tiles * (self.w.ci + nr) + 2 * self.w.ci * nr
        costs = self.gemm.costs
        return 4 * needed <= self.gemm.l2 * (costs.l2_transformed + costs.l2_transformed_sums)

    def other_blocks(self, config: WinogradTiling) -> Iterator[WinogradTiling]:
        """Yield blocks of half and twice as many image tiles, where larger blocks have a cost."""
        if not self.gemm.costs.transformed_line:
            return
        most = ceil_div(ceil_div(self.tiles, config.threads_tiles), config.rows)
        groups = config.block_tiles // config.rows
        for some in {max(1, groups // 2), 2 * groups if 2 * groups < most else groups} - {groups}:
            found = replace(config, block_tiles=some * config.rows)
            yield replace(found, predicted_cycles=self.cycles(found))

    @property
    def most_tiles(self) -> int:
        """Image tiles whose transforms fit L2, at least one."""
        return max(1, int(self.gemm.l2 * self.gemm.costs.l2_transformed) // (self.points * self.w.ci * 4))

    def shares(self) -> list[tuple[int, int]]:
        """Return the ways to divide image tiles and output channels among cores."""
        cores = self.cpu.cores
        return sorted({(1, 1), *((t, cores // t) for t in range(1, cores + 1) if cores % t == 0)})

    def _register_tiles(self, share: int) -> Iterator[tuple[int, int]]:
        """Yield (rows, vectors) within the registers: the tallest for each width, and those that divide a share
        evenly."""
        widest = ceil_div(self.w.co, self.lanes)
        # A single vector needs more loads than multiply-adds, so it is used only for single rows and single vectors of
        # channels.
        narrowest = 1 if widest == 1 or share == 1 else 2
        for vectors in range(narrowest, min(widest, 6) + 1):
            most = tallest(self.cpu.kernel_registers, vectors)
            if most < 1:
                return
            top = min(most, share)
            parts = ceil_div(share, top)
            for rows in sorted({top, ceil_div(share, parts), ceil_div(share, parts + 1)}):
                yield rows, vectors

    # ---- cycles ---------------------------------------------------------------------------------------------------

    def cycles(self, config: WinogradTiling) -> float:
        """Return the predicted cycles of the slowest core, including the start of the threads."""
        return sum(self.parts(config).values())

    def parts(self, config: WinogradTiling) -> dict[str, float]:
        """Return the predicted cycles by cause."""
        w = self.w
        nr = config.vectors * self.lanes
        groups = ceil_div(ceil_div(self.tiles, config.rows), config.threads_tiles)
        panels = ceil_div(ceil_div(w.co, nr), config.threads_channels)
        tiles = min(self.tiles, groups * config.rows)
        channels = min(w.co, panels * nr)
        found = {
            "kernel": self._products(config, groups, panels),
            "memory": self._arrival(config),
            "blocks": self._blocks(config, tiles, channels),
            "inputs": tiles * ceil_div(w.ci, self.lanes) * self.input_square,
            "outputs": tiles * ceil_div(channels, self.lanes) * self.output_square,
        }
        cores = config.threads_tiles * config.threads_channels
        written = 0.0 if self.prepacked else self.weight_bytes / cores
        squares = 0.0 if self.prepacked else w.ci * ceil_div(w.co, self.lanes) / cores
        # Lines are fetched before they are written.
        arrival = 2 * written / self.gemm.cpu.bytes_per_cycle(self.weight_bytes)
        found["packing"] = squares * self.weight_square + arrival
        found["handed_over"] = self.gemm.line_transfer(written) if config.threads_tiles > 1 else 0.0
        found["lines"] = self.gemm.shared_lines(w.n * w.ho * w.wo / config.threads_tiles, w.co, config.threads_channels)
        found["start"] = self.cpu.parallel_start * (1 if self.prepacked else 2) if cores > 1 else 0.0
        return found

    @property
    def weight_bytes(self) -> float:
        """Bytes of the transformed weights."""
        return 4.0 * self.points * self.w.ci * self.w.co

    def _square(self, operations: int, passes: int, stored: int) -> float:
        costs = self.gemm.costs
        return costs.square_start + costs.transform_operation * operations * passes + costs.transform_store * stored

    @cached_property
    def input_square(self) -> float:
        """Cycles for one vector of channels of one image tile, averaged over tiles inside and at the border."""
        w, a, m = self.w, self.a, self.m
        square = self._square(self.transforms.input.operations, 2 * a, self.points)
        top, left, _, _ = w.padding
        rows, columns = self.image_tiles
        (down, across), (high, wide) = w.dilation, (w.h, w.w)
        within = _within(rows, m, top, a, high, down) * _within(columns, m, left, a, wide, across)
        square += self.gemm.costs.border_vector * self.points * (1 - within / (rows * columns))
        return square if self.adjacent_inputs else square + self.gemm.costs.gathered_lane * self.lanes * self.points

    @cached_property
    def output_square(self) -> float:
        m = self.m
        square = self._square(self.transforms.output.operations, self.a + m, m * m)
        return square if self.adjacent_outputs else square + self.gemm.costs.gathered_lane * self.lanes * m * m

    @cached_property
    def weight_square(self) -> float:
        r = self.w.kh
        return self._square(self.transforms.weights.operations, r + self.a, self.points)

    def _arrival(self, config: WinogradTiling) -> float:
        """Return the cycles for which a core waits for images that no cache holds: the inputs, which all cores that
        share the channels read, and twice the outputs, whose lines are fetched before they are written back."""
        w, rate = self.w, self.gemm.cpu.bytes_per_cycle(float(self.w.bytes))
        if rate > self.cpu.memory_bytes_per_cycle:
            return 0.0
        inputs = 4.0 * w.n * w.h * w.w * w.ci / config.threads_tiles
        outputs = 4.0 * w.n * w.ho * w.wo * w.co / (config.threads_tiles * config.threads_channels)
        return (inputs + 2 * outputs) / rate

    def _blocks(self, config: WinogradTiling, tiles: int, channels: int) -> float:
        """Return the cycles lost because L2 does not keep all of a block's transformed inputs and sums."""
        costs = self.gemm.costs
        each = 4.0 * self.points
        share = each * config.block_tiles * (self.w.ci + config.block_channels) / self.gemm.l2
        lines = each * tiles * (self.w.ci + channels) / self.gemm.line
        return costs.transformed_line * share * lines

    def _fetching(self, compute: float, left: float, right: float, near: float, rate: float, tiles: int) -> float:
        """Return the cycles of a step, as the mean of the `tiles` register tiles that share a panel of weights: each
        step reads `right` bytes of it, which arrive once at this rate. The tiles of the panel before prefetch equal
        parts of it; weights that were just transformed are read by the first tile, by the others at the rate `near`."""
        arrival = right / rate
        exposed = self.gemm.costs.exposed_transformed_weights * arrival / tiles
        others = max(compute, left + right / near if near else left)
        if self.prepacked:
            return max(others, arrival / tiles) + exposed
        return (max(compute, left + arrival) + (tiles - 1) * others) / tiles + exposed

    def _weight_rates(self, config: WinogradTiling) -> tuple[float, float]:
        """Return the bandwidths at which the first block of image tiles and the later ones read the weights: the first
        from memory, if the weights of a model's other layers displace them from the last-level cache."""
        inputs, sums = self.w.ci * config.block_tiles, config.block_channels * config.block_tiles
        later = self.gemm.cpu.bytes_per_cycle(self.weight_bytes + 4.0 * self.points * (inputs + sums))
        last = self.cpu.cache(3)
        displaced = last is not None and self.weight_bytes > self.gemm.costs.last_level_weights * last.size
        return self.cpu.memory_bytes_per_cycle if self.prepacked and displaced else later, later

    def _products(self, config: WinogradTiling, groups: int, panels: int) -> float:
        """Return the cycles of the slowest core's register tiles at every point: `groups` of rows by `panels` of
        columns."""
        w, gemm, nr = self.w, self.gemm, config.vectors * self.lanes
        block_groups = config.block_tiles // config.rows
        blocks = ceil_div(groups, block_groups)
        inputs = 4.0 * self.points * w.ci * config.block_tiles
        panel = 4.0 * w.ci * nr
        cold, warm = self._weight_rates(config)
        near = 0.0 if panel <= gemm.l1 / 2 else gemm.cpu.bytes_per_cycle(panel)
        tiles = min(groups, block_groups)
        total = 0.0
        for rows, tall in pieces(self.tiles, config.rows, groups, alone=config.threads_tiles == 1):
            for columns, wide in pieces(w.co, nr, panels, alone=config.threads_channels == 1):
                vectors = ceil_div(columns, self.lanes)
                compute = gemm.step(rows, vectors)
                left = 4.0 * rows / gemm.cpu.bytes_per_cycle(inputs)
                right = 4.0 * vectors * self.lanes
                later, first = (self._fetching(compute, left, right, near, rate, tiles) for rate in (warm, cold))
                step = later + (first - later) / blocks
                around = gemm.costs.tile_start + rows * vectors * 2.0 * gemm.vector_load
                total += tall * wide * (w.ci * step + summed_blocks(w, self.m) * around)
        return self.points * total


def _within(count: int, m: int, before: int, a: int, size: int, dilation: int) -> int:
    """Return how many of `count` image tiles along one axis read no padding."""
    starts = (tile % dilation + tile // dilation * m * dilation - before for tile in range(count))
    return sum(start >= 0 and start + (a - 1) * dilation < size for start in starts)
