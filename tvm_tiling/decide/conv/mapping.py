"""A convolution on a matrix engine by a given mapping: tiles that are loaded, multiplied and stored in turn.

Mapping tools for accelerators describe a mapping by loop factors for each storage level. On a machine with one level of
buffers, only the sizes of a tile matter: the product of the factors inside the memory level. :func:`parse_mapping`
reads them, :func:`best_mapping` chooses them by the costs of the machine:

    blocks  = ceil(K/block_m) * S * R * ceil(C/block_k) of A, each with Q lines of P columns of B   (streamed_cycles)
    load    = weights and inputs of a tile in rows of the memory, at its rate, and the memory pages that they touch
    store   = results of a tile in rows, once for all tiles that sum into them
    cycles  = load + (tiles - 1) * max(load, blocks, store) + blocks + store

since loads, multiplications and stores of successive tiles overlap. :mod:`tvm_tiling.accel.mapped_convolution` runs
mappings for comparison.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from dataclasses import dataclass

import numpy as np

from ...errors import HardwareError, WorkloadError
from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...workload import ConvWorkload
from ..gemm.strips import streamed_cycles

AXES = "KCPQRS"
_LEVEL = re.compile(r"L(\d)\[[A-Z]*\]((?: [NKCPQRS]\d+X?)+)")


@dataclass(frozen=True)
class ConvMapping:
    """The sizes of a tile: `k` output and `c` input channels, `p` points of a line of results and `q` lines, `r` taps
    of a kernel line and `s` lines. Each divides its axis."""

    k: int
    c: int
    p: int
    q: int
    r: int
    s: int

    def tiles(self, workload: ConvWorkload) -> dict[str, int]:
        """Return the number of tiles along each axis. Raises WorkloadError if a size does not divide its axis."""
        found = {}
        for axis, whole in axes(workload).items():
            own = getattr(self, axis.lower())
            if own < 1 or whole % own:
                raise WorkloadError(f"mapping: {axis.lower()} = {own}; expected a divisor of {whole}")
            found[axis] = whole // own
        return found

    def lines(self, workload: ConvWorkload) -> tuple[int, int]:
        """Return the lines and columns of the image that a tile reads."""
        return (self.q - 1) * workload.stride[0] + self.s, (self.p - 1) * workload.stride[1] + self.r


def axes(workload: ConvWorkload) -> dict[str, int]:
    """Return the length of each axis. Raises WorkloadError for convolutions that mappings do not describe."""
    c = workload
    plain = ConvWorkload(n=1, h=c.h, w=c.w, ci=c.ci, co=c.co, kh=c.kh, kw=c.kw, stride=c.stride, dtype=c.dtype)
    if c != dataclasses.replace(plain, acc_dtype=c.acc_dtype, out_dtype=c.out_dtype):
        raise WorkloadError(
            f"mapping of {workload}; expected one NHWC image without padding, dilation, groups or transposition"
        )
    return {"K": c.co, "C": c.ci, "P": c.wo, "Q": c.ho, "R": c.kw, "S": c.kh}


def parse_mapping(text: str) -> ConvMapping:
    """Parse a mapping such as ``L3[WIO] K2 P7 - L2[WI] K16X - L1[O] C4 Q14 - L0[W] N1``.

    Levels are listed outermost first, starting with the memory; factors that end in X are spatial. Raises WorkloadError
    for other text.
    """
    sizes = dict.fromkeys(AXES, 1)
    levels = [(_LEVEL.fullmatch(part), part) for part in text.split(" - ")]
    if len(levels) < 2 or not all(found for found, _ in levels):
        wrong = next((part for found, part in levels if not found), text)
        raise WorkloadError(f"mapping: {wrong!r}; expected at least two levels such as 'L1[O] C4 Q14', joined by ' - '")
    for found, _ in levels[1:]:
        assert found is not None
        for factor in found[2].split():
            if factor[0] in sizes:
                sizes[factor[0]] *= int(factor[1:].rstrip("X"))
    return ConvMapping(**{axis.lower(): size for axis, size in sizes.items()})


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]


def best_mapping(workload: ConvWorkload, hardware: Hardware) -> ConvMapping:
    """Return the tile with the fewest predicted cycles, and among these the fewest bytes loaded. The operands share
    near_tile.buf_a bytes.

    Raises HardwareError if the machine has no streaming matrix engine, or no capacity for the smallest tile.
    """
    unit = hardware.near_tile
    if unit is None or unit.partial_blocks != "streamed":
        raise HardwareError(
            f"{hardware.name} has no streaming matrix engine; expected near_tile.partial_blocks = 'streamed'"
        )
    whole = axes(workload)
    of_k = [size for size in _divisors(whole["K"]) if size % unit.block_m == 0 or size == whole["K"]] or [whole["K"]]
    choices = [of_k, *(_divisors(whole[axis]) for axis in AXES[1:])]
    sizes = np.array(list(itertools.product(*choices)), dtype=np.int64).T
    cost = _Cost(workload, hardware, sizes)
    fitting = np.flatnonzero(cost.fits)
    if not len(fitting):
        raise HardwareError(f"{hardware.name}: no tile of {workload} fits its buffers; expected larger buffers")
    cheapest = fitting[np.lexsort((cost.moved[fitting], cost.cycles[fitting]))[0]]
    return ConvMapping(*sizes[:, cheapest].tolist())


def predicted_cycles(workload: ConvWorkload, mapping: ConvMapping, hardware: Hardware) -> float:
    """Return the cycles of `mapping` by the formulas above. Raises WorkloadError if it does not divide the workload."""
    mapping.tiles(workload)
    sizes = np.array([[getattr(mapping, axis.lower())] for axis in AXES], dtype=np.int64)
    return float(_Cost(workload, hardware, sizes).cycles[0])


class _Cost:
    """Predicted `cycles`, bytes `moved` and whether a tile `fits`, for many tiles at once (rows of `sizes` as in
    AXES)."""

    def __init__(self, workload: ConvWorkload, hardware: Hardware, sizes: np.ndarray) -> None:
        unit, machine = hardware.near_tile, Machine(hardware)
        assert unit is not None
        k, c, p, q, r, s = sizes
        whole = axes(workload)
        external = machine.memory("external")
        high, wide = (q - 1) * workload.stride[0] + s, (p - 1) * workload.stride[1] + r
        weights, inputs, results = s * r * c, high * wide, p * q
        self.fits = (weights * k + inputs * c <= unit.buf_a) & (results * k * 4 <= unit.acc_max)

        def transfer(runs: np.ndarray, run: np.ndarray, apart: int, rate: float | None) -> np.ndarray:
            rows = runs * -(-run // external.row_bytes) * external.row_bytes
            cycles = np.zeros(len(rows)) if rate is None else np.ceil(rows / rate)
            if external.page_bytes is not None:
                pages = runs * np.minimum(1.0, apart / external.page_bytes)
                cycles = cycles + np.ceil(pages * external.page_cycles)
            return cycles

        load = transfer(weights, k, whole["K"], machine.rate("external", "a"))
        load = load + transfer(inputs, c, whole["C"], machine.rate("external", "b"))
        blocks = unit.fill + streamed_cycles(unit, 1, k, q, p, s * r * -(-c // unit.block_k))
        sums = (whole["C"] // c) * (whole["R"] // r) * (whole["S"] // s)
        store = transfer(results, k, whole["K"], machine.rate("external", "out")) / sums
        tiles = math.prod(whole.values()) // np.prod(sizes, axis=0)
        self.cycles = load + (tiles - 1) * np.maximum(np.maximum(load, blocks), store) + blocks + store
        self.moved = tiles * (weights * k + inputs * c)
