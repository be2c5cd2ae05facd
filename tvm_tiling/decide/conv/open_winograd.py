"""Winograd convolutions with dynamic image height and width: one tile size, one register tile, and a division among
cores for each range of image tiles.

Image tiles are rows of matrix multiplications (winograd.py), so their number may be dynamic: there is a microkernel for
every height up to that of the register tile, and the tiles of a block are divided evenly among register tiles. Times
differ by orders of magnitude between small and large images. Candidates are therefore compared by the geometric mean of
their predicted times at a few sizes, the model's usual sizes and larger ones, so that no size dominates: first the tile
sizes and register tiles, then the best of them against the best other algorithm. Weights are transformed once, for one
tile size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from ...errors import HardwareError, UnsupportedOperator
from ...hardware.description import Cpu, Hardware
from ...workload import ConvWorkload
from ..explain import Sections
from ..gemm.microkernel import tallest
from ..gemm.traffic import ceil_div
from ..tiling import Reason
from .conv_tiling import Candidate, ConvTiling
from .cpu_conv import Source, decide_conv_on_cpu
from .winograd import TOLERANCE, WinogradModel, WinogradTiling, accepted_error, admissible, refusal

SIDES = tuple(1 << power for power in range(7))  # image tiles along one axis for which ranges are decided
MOST_VECTORS = 6
MOST_ROWS = 10  # rows of a register tile: each additional one adds a kernel
# Relative to the fastest register tile: taller ones within this are taken, since they wait less often for weights.
NEAR = 1.03


@dataclass(frozen=True, kw_only=True)
class TileRange:
    """How cores divide at most `tiles` tiles (None: any number): shares in tiles and output channels. Tiles are image
    tiles of Winograd's algorithm, or register tiles."""

    predictions: ClassVar[tuple[str, ...]] = ("predicted_seconds",)

    tiles: int | None
    threads_tiles: int
    threads_channels: int
    predicted_seconds: float  # for the most tiles of the range, or the largest number that was predicted

    @property
    def threads(self) -> tuple[int, int]:
        """Shares in tiles and output channels."""
        return self.threads_tiles, self.threads_channels

    def __str__(self) -> str:
        most = "more" if self.tiles is None else f"up to {self.tiles}"
        return f"{most}: {' x '.join(map(str, self.threads))}"


@dataclass(frozen=True, kw_only=True)
class OpenConvTiling(ConvTiling):
    """Tiling of a convolution with dynamic image sizes: algorithm "winograd" or "grouped", and in `ranges` the division
    among cores."""

    op: ClassVar[str] = "conv of open images"
    title: ClassVar[str] = "conv with dynamic image sizes"

    ranges: tuple[TileRange, ...] = ()

    sections: ClassVar[Sections] = (*ConvTiling.sections, ("cores by tiles", ("ranges",)))

    @property
    def rule(self) -> str | None:
        return None


def decide_open_winograd(
    workloads: Sequence[ConvWorkload],
    hardware: Hardware,
    *,
    packing: str = "run",
    source: Source | None = None,
    winograd: bool = True,
    tolerance: float = TOLERANCE,
    deterministic: bool = False,
) -> OpenConvTiling:
    """Decide one convolution for several sizes of its images, the first of which is the sample.

    deterministic: whether this algorithm is used, and its tile size, are as decided for one image on one core.

    Raises UnsupportedOperator if Winograd convolution does not apply or is slower than other algorithms, and
    HardwareError if the machine has no CPU.
    """
    cpu, sample = hardware.cpu, workloads[0]
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
    if not winograd:
        raise UnsupportedOperator("algorithm = 'winograd' is disabled by winograd=False")
    if why := refusal(sample):
        raise UnsupportedOperator(f"conv: {why}")
    as_one = deterministic and (cpu.cores > 1 or sample.n > 1)
    if as_one:
        one = decide_open_winograd(
            [replace(workload, n=1) for workload in workloads],
            hardware.with_cores(1),
            packing=packing,
            source=source,
            tolerance=tolerance,
        )
        assert one.winograd is not None
        tile_sizes: tuple[int, ...] = (one.winograd.m,)
    else:
        tile_sizes = admissible(sample, tolerance)
    cycle = 1 / (cpu.mhz * 1e6)
    choices = [
        _Choice(workloads, cpu, m, packing == "ahead", rows, vectors)
        for m in tile_sizes
        for vectors in range(1, min(MOST_VECTORS, ceil_div(sample.co, cpu.lanes(4))) + 1)
        if (rows := min(MOST_ROWS, tallest(cpu.kernel_registers, vectors))) > 0
    ]
    if not choices:
        raise UnsupportedOperator("conv: the predicted error of Winograd convolution exceeds the tolerance")
    least = min(choice.mean for choice in choices)
    best = max((c for c in choices if c.mean <= NEAR * least), key=lambda choice: (choice.rows, -choice.mean))
    others = [
        decide_conv_on_cpu(workload, hardware, packing=packing, source=source, winograd=False) for workload in workloads
    ]
    other = _mean(tiling.predicted_seconds or 0.0 for tiling in others)
    if other <= best.mean * cycle and not as_one:
        raise UnsupportedOperator(
            f"algorithm = 'winograd' is predicted to take {best.mean * cycle / other:.2f}x the time of the fastest "
            "other"
        )
    config, ranges = best.config, _ranges(best, sample, cpu, packing == "ahead")
    sizes = ", ".join(f"{workload.h} x {workload.w}" for workload in workloads)
    mean = f"geometric mean for images of {sizes}"
    why = (
        f"F({config.m}x{config.m}, {sample.kh}x{sample.kw}): {config.points**2} multiplications instead "
        f"of {config.m**2 * sample.kh * sample.kw}; predicted error {config.predicted_error:.1e} of the largest "
        f"output, at most {accepted_error(sample, tolerance):.1e}"
    )
    seconds = best.cycles[0] * cycle
    return OpenConvTiling(
        form="winograd",
        utilisation=min(1.0, sample.macs / (cpu.lanes(4) * cpu.fma_units * cpu.cores) / best.cycles[0]),
        predicted_seconds=seconds,
        winograd=config,
        pack_w=packing,
        ranges=ranges,
        candidates=(
            Candidate("winograd", best.mean * cycle, mean),
            Candidate(others[0].form, other, f"{mean}, the fastest other algorithm"),
        ),
        reasons=(
            Reason("form", "winograd", why),
            Reason(
                "ranges",
                len(ranges),
                f"predicted for {SIDES[0]} to {SIDES[-1] ** 2} image tiles; equal ranges are merged",
            ),
        ),
    )


class _Choice:
    """A tile size and a register tile, with the cycles at every size and their geometric mean."""

    def __init__(
        self, workloads: Sequence[ConvWorkload], cpu: Cpu, m: int, prepacked: bool, rows: int, vectors: int
    ) -> None:
        self.rows, self.vectors, self.m = rows, vectors, m
        models = [WinogradModel(workload, cpu, m, prepacked) for workload in workloads]
        self.cycles = [_fastest(model, rows, vectors).predicted_cycles for model in models]
        self.mean = _mean(self.cycles)
        panels = ceil_div(workloads[0].co, vectors * models[0].lanes)
        most = models[0].most_tiles
        config = models[0].config(rows, vectors, ceil_div(most, rows), panels)
        self.config = replace(config, block_tiles=most, predicted_cycles=self.cycles[0])


def _fastest(model: WinogradModel, rows: int, vectors: int) -> WinogradTiling:
    """Return the fastest division among cores for a register tile, with rows such that image tiles are divided evenly
    among blocks, and each block among register tiles."""
    found = []
    panels = ceil_div(model.w.co, vectors * model.lanes)
    for tiles, channels in model.shares():
        if tiles > model.tiles or channels > panels:
            continue
        block = _even(ceil_div(model.tiles, tiles), model.most_tiles)
        height = _even(block, rows)
        shares = (tiles, channels)
        config = model.config(height, vectors, ceil_div(block, height), ceil_div(panels, channels), shares)
        found.append(replace(config, predicted_cycles=model.cycles(config)))
    return min(found, key=lambda config: config.predicted_cycles)


def _even(count: int, most: int) -> int:
    """Return the size of the parts when `count` is divided into the fewest equal parts of at most `most`."""
    return ceil_div(count, ceil_div(count, most))


def _ranges(choice: _Choice, sample: ConvWorkload, cpu: Cpu, prepacked: bool) -> tuple[TileRange, ...]:
    """Return ranges of image tiles with one division among cores each; the last range is unbounded."""
    ranges: list[TileRange] = []
    border = sample.kh - 1
    for rows, columns in ((side, wide) for side in SIDES for wide in (side, 2 * side) if wide <= SIDES[-1]):
        height, width = rows * choice.m, columns * choice.m
        image = replace(sample, n=1, h=height, w=width, padding=(border, border, 0, 0), dilation=(1, 1))
        config = _fastest(WinogradModel(image, cpu, choice.m, prepacked), choice.rows, choice.vectors)
        found = TileRange(
            tiles=rows * columns,
            threads_tiles=config.threads_tiles,
            threads_channels=config.threads_channels,
            predicted_seconds=config.predicted_cycles / (cpu.mhz * 1e6),
        )
        if ranges and ranges[-1].threads == found.threads:
            ranges.pop()
        ranges.append(found)
    return (*ranges[:-1], TileRange(**{**asdict(ranges[-1]), "tiles": None}))


def _mean(values: Iterable[float]) -> float:
    logarithms = [math.log(max(value, 1e-12)) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))
