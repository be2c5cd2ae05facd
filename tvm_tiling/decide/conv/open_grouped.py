"""Grouped convolutions with dynamic image height and width: algorithm "grouped" with columns counted at run time.

As in grouped.py, lanes are the output channels of several whole groups, or of a part of one group if it has more than a
vector, and a permutation or a broadcast gives each lane the input of its group. A register tile is a few columns of one
output row. Tiles at the border and the last one of a row test each input column; all others have no tests. The width of
the tile is limited by the registers and by the size of the code, since both kinds of tiles are unrolled.
"""

from __future__ import annotations

from ...errors import HardwareError, UnsupportedOperator
from ...hardware.description import Cpu, Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..gemm.dot_engine import dot_engine
from ..gemm.gemm_cost import CpuModel
from ..gemm.traffic import ceil_div
from ..tiling import Reason
from .grouped import SPARE
from .open_winograd import OpenConvTiling, TileRange
from .shape import ConvShape, float_images

WIDTHS = (14, 12, 8, 4, 2, 1)  # columns of a register tile
MOST_WEIGHTS = 4  # registers reserved for the weights of a row; further ones are read from memory by multiply-adds
# Multiply-adds of all tiles for one tap row: code generation takes some ten seconds for more.
WRITTEN_OUT = 1024
# Input channels of a vector's groups, in vectors: all are loaded for each channel of a group.
MOST_RUN = 4


def lanes_of(s: ConvShape, lanes: int) -> tuple[int, int, int]:
    """Return (groups of a vector, vectors of a group, lanes in use of a full vector); one of the first two is 1."""
    if s.co <= lanes:
        together = min(s.groups, lanes // s.co, max(1, MOST_RUN * lanes // s.ci))
        return together, 1, together * s.co
    return 1, ceil_div(s.co, lanes), lanes


def window_of(s: ConvShape, lanes: int) -> int:
    """Return how many adjacent input channels are loaded for a vector of several groups: a power of two, whose load is
    one instruction for each register, or all channels if there are fewer."""
    run = lanes_of(s, lanes)[0] * s.ci
    return min(1 << (run - 1).bit_length(), s.groups * s.ci)


def vectors_alike(s: ConvShape, lanes: int) -> int:
    """Return how many vectors load a window that begins at their first input channel; for the others, the last ones, it
    ends at the last input channel of the image."""
    together, parts, _ = lanes_of(s, lanes)
    vectors = ceil_div(s.groups, together) * parts
    if together == 1:
        return vectors
    last = s.groups * s.ci - window_of(s, lanes)  # the last place where a window may begin
    return sum(min(vector * together, s.groups - together) * s.ci <= last for vector in range(vectors))


def tile_widths(columns: int) -> list[int]:
    """Return the widths of the tiles at the end of a row: of the whole register tile, of half and a quarter of it."""
    return sorted({columns, ceil_div(columns, 2), ceil_div(columns, 4)}, reverse=True)


def decide_open_grouped(workload: ConvWorkload, hardware: Hardware, *, packing: str = "run") -> OpenConvTiling:
    """Decide one grouped convolution of dynamic images; `workload` has them at the sample.

    Raises UnsupportedOperator if the algorithm does not apply, and HardwareError if the machine has no CPU.
    """
    cpu = hardware.cpu
    if cpu is None:
        raise HardwareError(f"{hardware.name} has no CPU; expected a hardware description with a [cpu] table")
    s = float_images(workload, "grouped")
    engine = dot_engine(workload, cpu, form="grouped")
    lanes = cpu.lanes(engine.acc_bytes)
    together, parts, _ = lanes_of(s, lanes)
    if s.groups == 1 or s.ci * s.co == 1:
        raise UnsupportedOperator("algorithm = 'grouped' requires several groups of more than one channel")
    columns = next((c for c in WIDTHS if _fits(s, c, together, cpu)), None)
    if columns is None:
        raise UnsupportedOperator(
            f"algorithm = 'grouped' unrolls the {s.w.taps} taps of a row for {s.ci} channels, at most {WRITTEN_OUT} "
            "multiply-adds"
        )
    core = CpuModel(GemmWorkload(m=s.points, k=s.ci * s.h.taps * s.w.taps, n=s.co), cpu, engine)
    vectors = ceil_div(s.groups, together) * parts
    adds = columns * s.w.taps * s.ci
    spread = s.w.read(columns) * s.ci
    permuted = spread * core.costs.shuffle / 2 if together > 1 else 0.0
    step = max(adds / cpu.fma_units + permuted, (spread + s.w.taps * s.ci) * core.vector_load)
    cycles = vectors * (s.h.taps * (step + core.costs.tap_start) + core.costs.tile_start)
    clock = cpu.mhz * 1e6
    tiles = s.n * s.h.points * ceil_div(s.w.points, columns)

    def on(cores: int) -> float:
        return (ceil_div(tiles, cores) * cycles + (cpu.parallel_start if cores > 1 else 0.0)) / clock

    ranges = [TileRange(tiles=None, threads_tiles=cpu.cores, threads_channels=1, predicted_seconds=on(cpu.cores))]
    if cpu.cores > 1:
        few = int(cpu.parallel_start / (cycles * (1 - 1 / cpu.cores)))
        alone = TileRange(tiles=few, threads_tiles=1, threads_channels=1, predicted_seconds=few * cycles / clock)
        ranges = [alone, *ranges] if few else ranges
    cores = ranges[0].threads_tiles if ranges[0].tiles is None or tiles <= ranges[0].tiles else cpu.cores
    seconds = on(cores)
    return OpenConvTiling(
        form="grouped",
        utilisation=min(1.0, workload.macs / (lanes * cpu.fma_units * cpu.cores) / (seconds * clock)),
        predicted_seconds=seconds,
        tile_rows=1,
        tile_columns=columns,
        vectors=1,
        lanes=lanes,
        lanes_along="channels",
        pack_w=packing,
        ranges=tuple(ranges),
        reasons=(
            Reason("form", "grouped", _vectors_text(together, parts, s)),
            Reason(
                "tile_columns",
                columns,
                f"as many sums fit {cpu.vector_registers} registers, and their unrolled taps the limit of the code",
            ),
            Reason("ranges", len(ranges), f"starting threads takes {cpu.parallel_start:.0f} cycles"),
        ),
    )


def _fits(s: ConvShape, columns: int, together: int, cpu: Cpu) -> bool:
    """Return whether a register tile of that many columns fits the registers, and its code the limit."""
    weights = min(s.w.taps, MOST_WEIGHTS) if columns > 1 else 1
    vectors, alike = ceil_div(s.groups, together), vectors_alike(s, cpu.lanes(4))
    kinds, channels = ((alike > 0) + vectors - alike, s.ci) if together > 1 else (1, 1)
    written = (columns + sum(tile_widths(columns))) * s.w.taps * channels * kinds
    return columns + weights + SPARE <= cpu.vector_registers and written <= WRITTEN_OUT


def _vectors_text(together: int, parts: int, s: ConvShape) -> str:
    if parts > 1:
        return f"{parts} vectors hold the {s.co} output channels of a group, which reads {s.ci} channels"
    return f"a vector holds {together} groups of {s.ci} input and {s.co} output channels"
