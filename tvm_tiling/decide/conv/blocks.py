"""Blocks of a convolution on a matrix engine: rectangles of output points, and input and output channels.

The analytical partition treats a convolution as a matrix multiplication whose columns are a run of output points. On
the chip, such a run is a rectangle of rows and columns with its halo, and data is loaded in blocks that alternate, so
that loads and multiplications overlap. The number of alternatives is small: each dimension is divided into a few equal
parts; either operand stays resident while the other streams past, or channels are divided too and the sums stay
resident.

conv/block_time.py estimates the time of all candidates at once, and conv/instruction_times.py simulates a single one
exactly, at some microseconds per instruction. The candidates with the smallest estimates are simulated within a fixed
budget of instructions: many for small convolutions, where start and end matter, and few for large ones, where estimates
are accurate. The fastest is taken, and among equally fast ones the one that reads the fewest bytes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...errors import HardwareError
from ...hardware.description import Hardware
from ...workload import ConvWorkload
from ..gemm.best import AS_FAST, Prefer
from ..gemm.traffic import ceil_div
from .block_energy import block_energy
from .block_time import BlockTimes, Columns, ConvFacts
from .conv_blocks import ConvBlocks
from .instruction_times import queued_cycles

PARTS = (1, 2, 3, 4, 6, 8, 16, 32, 64)  # numbers of parts of a dimension
FEW_PARTS = (1, 2, 4, 8)  # the same for channels, columns and groups
TILES = (1, 2, 4)  # numbers of tiles per block
LEVEL = 0.002  # cycles whose relative difference is smaller count as equal
DOUBT = 0.2  # relative margin behind the best estimate within which a candidate is still simulated
MOST_STEPS = 10_000  # instructions simulated in total
MOST_LOOKED_AT = 16  # candidates examined for objectives other than time
SLOWEST = 1.0  # largest relative slowdown, by the estimate, of a candidate for another objective


def conv_blocks(
    conv: ConvWorkload, hardware: Hardware, *, order: str | None = None, prefer: Prefer = "utilisation"
) -> ConvBlocks:
    """Return the blocks of a convolution for `hardware.near_tile`.

    order: fixes the order of the outer loops; prefer: the objective (gemm/program_choice.py). Raises HardwareError if
    the machine has no such unit or not even the smallest blocks fit.
    """
    facts = ConvFacts(conv, hardware)
    times = BlockTimes(facts, candidates(facts))
    fits = times.fits
    if order is not None and conv.groups == 1:  # grouped convolutions always have the kernels outside
        fits &= times.at.channels_outside == (order == "mn")
    if not fits.any():
        raise HardwareError(
            f"conv of {conv.kh} x {conv.kw} taps in {conv.dtype} on hardware {hardware.name!r}: no block fits its "
            f"buffers; expected near_tile.buf_a and near_tile.buf_b that hold a kernel of one channel, "
            f"{facts.taps * facts.product.d_a} bytes, and the inputs of one output"
        )
    fastest = _fastest(facts, times, np.flatnonzero(fits))
    if prefer == "utilisation":
        return fastest
    places = np.flatnonzero(fits & (times.cycles <= times.cycles[fits].min() * (1 + SLOWEST)))
    if prefer == "traffic":
        return _leanest(facts, times, places, fastest)
    return _thriftiest(facts, times, places, fastest, by_delay=prefer == "edp")


def _leanest(facts: ConvFacts, times: BlockTimes, places: np.ndarray, fastest: ConvBlocks) -> ConvBlocks:
    """Return the blocks that read the fewest bytes among those not much slower than the fastest."""
    limit = fastest.cycles * (1 + AS_FAST)
    read = times.bytes_a + times.bytes_b
    for place in places[np.lexsort((times.cycles[places], read[places]))][:MOST_LOOKED_AT].tolist():
        if read[place] >= fastest.bytes_a + fastest.bytes_b:
            break
        blocks = _looked_at(facts, times, place)
        if blocks.cycles <= limit:
            return blocks
    return fastest


def _thriftiest(
    facts: ConvFacts, times: BlockTimes, places: np.ndarray, fastest: ConvBlocks, *, by_delay: bool
) -> ConvBlocks:
    """Return the blocks with the least energy or energy-delay product."""
    pj = block_energy(facts, times)
    delay = times.cycles[places] if by_delay else np.ones(len(places))
    order = places[np.lexsort((times.cycles[places], pj[places] * delay))]
    own = _place_of(times, fastest)
    found = [(float(pj[own]) * (fastest.cycles if by_delay else 1.0), fastest.cycles, 0, fastest)]
    for number, place in enumerate(order[: MOST_LOOKED_AT if by_delay else 1].tolist(), 1):
        blocks = _looked_at(facts, times, place)
        found.append((float(pj[place]) * (blocks.cycles if by_delay else 1.0), blocks.cycles, number, blocks))
    return min(found)[-1]


def _looked_at(facts: ConvFacts, times: BlockTimes, place: int) -> ConvBlocks:
    """Return one of the candidates, with simulated cycles if its program is short enough."""
    blocks = blocks_at(times, place)
    if times.instructions[place] > MOST_STEPS // MOST_LOOKED_AT:
        return blocks
    return replace(blocks, cycles=float(queued_cycles(facts, blocks)))


def _place_of(times: BlockTimes, blocks: ConvBlocks) -> int:
    """Return the index of a candidate."""
    at = times.at
    same = at.channels_outside == (blocks.order == "mn")
    for name in ("groups", "step_m", "tile_m", "rows", "tile_rows", "columns", "channels"):
        same &= getattr(at, name) == getattr(blocks, name)
    return int(np.flatnonzero(same)[0])


def _fastest(facts: ConvFacts, times: BlockTimes, places: np.ndarray) -> ConvBlocks:
    """Return the best of the candidates at `places`: by simulation if programs are short enough, otherwise by the
    estimate."""
    order = places[np.argsort(times.cycles[places], kind="stable")]
    least = float(times.cycles[order[0]])
    walked: list[ConvBlocks] = []
    steps, best = 0.0, math.inf
    for place in order.tolist():
        steps += float(times.instructions[place])
        if steps > MOST_STEPS or times.cycles[place] > least * (1 + DOUBT):
            break
        blocks = blocks_at(times, place)
        cycles = queued_cycles(facts, blocks, limit=best * (1 + LEVEL))
        if cycles < math.inf:
            walked.append(replace(blocks, cycles=float(cycles)))
            best = min(best, cycles)
    if not walked:
        good = order[times.cycles[order] <= least * (1 + LEVEL)]
        walked = [blocks_at(times, place) for place in good.tolist()]
        best = least
    good = [blocks for blocks in walked if blocks.cycles <= best * (1 + LEVEL)]
    return min(good, key=lambda blocks: blocks.bytes_a + blocks.bytes_b)


def candidates(facts: ConvFacts) -> Columns:
    """Return all candidate tilings as columns; many do not fit."""
    conv = facts.conv
    groups = [g for g in even_sizes(conv.groups, 1, PARTS) if conv.groups % g == 0]
    grouped = conv.groups > 1
    whole = [(facts.co, tile) for tile in _tiles(facts.co, facts.co)]
    blocks_m = [
        (step, tile) for step in even_sizes(facts.co, facts.unit.block_m, PARTS) for tile in _tiles(step, facts.co)
    ]
    rows = [(r, tile) for r in even_sizes(conv.ho, 1, PARTS) for tile in _tiles(r, conv.ho)]
    channels = [facts.ci] if grouped else even_sizes(facts.ci, 1, (*FEW_PARTS, 16, 32))
    columns = even_sizes(conv.wo, 1, FEW_PARTS)
    m, r = np.array(whole if grouped else blocks_m), np.array(rows)
    choices = ((1,) if grouped else (1, 0), groups, np.arange(len(m)), np.arange(len(r)), columns, channels)
    order, g, of_m, of_r, w, c = (grid.ravel() for grid in np.meshgrid(*choices, indexing="ij"))
    return Columns(order, g, m[of_m, 0], m[of_m, 1], r[of_r, 0], r[of_r, 1], w, c)


def blocks_at(times: BlockTimes, place: int) -> ConvBlocks:
    """Return the candidate at index `place`."""
    at = times.at

    def number(column: np.ndarray) -> int:
        return int(column[place])

    return ConvBlocks(
        order="mn" if at.channels_outside[place] else "nm",
        groups=number(at.groups),
        step_m=number(at.step_m),
        tile_m=number(at.tile_m),
        rows=number(at.rows),
        columns=number(at.columns),
        tile_rows=number(at.tile_rows),
        sync_m=number(at.tile_m),
        sync_rows=number(at.tile_rows),
        channels=number(at.channels),
        whole_a=bool(times.whole_a[place]),
        whole_b=bool(times.whole_b[place]),
        versions_a=number(times.versions_a),
        versions_b=number(times.versions_b),
        versions_sums=number(times.versions_sums),
        sums="acc" if times.in_acc[place] else "out",
        bytes_a=number(times.bytes_a),
        bytes_b=number(times.bytes_b),
        cycles=float(times.cycles[place]),
    )


def even_sizes(size: int, block: int, pieces: tuple[int, ...]) -> list[int]:
    """Return sizes that divide a dimension into equal parts of whole blocks, largest first and single blocks last."""
    found = [min(size, ceil_div(ceil_div(size, count), block) * block) for count in (*pieces, size)]
    return list(dict.fromkeys(found))


def _tiles(block: int, size: int) -> list[int]:
    """Return the tiles of a block. Tiles divide the block, except at the end of the dimension, where the last may be
    shorter."""
    found = [ceil_div(block, count) for count in TILES if block >= size or block % count == 0]
    return list(dict.fromkeys(found))
