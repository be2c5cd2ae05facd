"""Run our simulator on a layer under the modelling assumptions of other simulators.

Each assumption is adopted through the machine description or the shape. Where this needs a figure that only the other
simulator knows, the one that it reports is used.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import tvm
from tvm import te, tirx

from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.near_tile import NearTile
from tvm_tiling.schedule import tiling_schedule
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .peers.accel_machine import ArrayMachine, Figures, Layer

AT_ONCE = 1e9  # bytes per cycle: a transfer at this rate takes negligible time


@dataclass(frozen=True)
class Setting:
    """The assumptions of our simulator for one run.

    `padded_blocks`: a block that does not fill the array takes as many cycles as a full one. `padded_loads`: A and B
    are loaded with the padding rows and columns that fill the array, unless A is an image. `alone`: extra cycles for
    which each block occupies the array exclusively, beyond its depth. `matrix`: an image is loaded as the im2col matrix
    of its convolution. `before`, `behind`: cycles of loading before the first matrix instruction and of storing after
    the last one.
    """

    machine: ArrayMachine
    padded_blocks: bool = False
    padded_loads: bool = False
    alone: int = 0
    matrix: bool = False
    before: int = 0
    behind: int = 0


class Assumption(NamedTuple):
    """A modelling assumption: its name, an explanation, and a function that makes our simulator adopt it for a layer,
    given the other simulator's figures for the layer. `both`: the machine changes for the other simulator, too."""

    name: str
    says: str
    turn: Callable[[Setting, Layer, Figures], Setting]
    both: bool = False


def roomy(machine: ArrayMachine, layer: Layer) -> ArrayMachine:
    """Return the machine with buffers whose halves hold all of A and of B, including padding."""
    w = layer.matrix
    sizes = (_up(w.m, machine.rows) * w.k, _up(w.n, machine.columns) * w.k)
    rooms = [max(own, _up(size, 1024)) for own, size in zip((machine.buf_a, machine.buf_b), sizes, strict=True)]
    return replace(machine, buf_a=rooms[0], buf_b=rooms[1])


AGAIN = Assumption(
    "operand larger than its buffer",
    "an operand that exceeds its buffer is reloaded, as the loop order requires; no reloads if buffers hold it all",
    lambda setting, layer, theirs: replace(setting, machine=roomy(setting.machine, layer)),
    both=True,
)
MATRIX = Assumption(
    "no halo reuse",
    "every input pixel is loaded once for each kernel tap that reads it",
    lambda setting, layer, theirs: replace(setting, matrix=True),
)
PADDED_LOADS = Assumption(
    "padding is loaded",
    "padding rows and columns that fill the array are loaded and counted",
    lambda setting, layer, theirs: replace(setting, padded_loads=True, padded_blocks=True),
)
PADDED_BLOCKS = Assumption(
    "blocks are padded",
    "a block that does not fill the array takes as many cycles as a full one",
    lambda setting, layer, theirs: replace(setting, padded_blocks=True),
)
ALONE = Assumption(
    "fill and drain of each block",
    "blocks do not overlap in the array: each takes its depth plus rows + columns - 2 cycles of fill and drain",
    lambda setting, layer, theirs: replace(
        setting, padded_blocks=True, alone=setting.machine.rows + setting.machine.columns - 2
    ),
)
BEFORE = Assumption(
    "no overlap of initial loads",
    "the buffers are filled before compute starts; our simulator starts with the first tiles",
    lambda setting, layer, theirs: replace(setting, before=theirs.before),
)
BEHIND = Assumption(
    "no overlap of final stores",
    "accumulated results are stored after compute ends; our simulator stores tile by tile",
    lambda setting, layer, theirs: replace(setting, behind=theirs.behind),
)


@functools.cache
def ours(layer: Layer, setting: Setting) -> Figures:
    """Return our figures for a layer. `seconds` covers scheduling, recording and timing it."""
    start = time.process_time()
    w = layer.workload if not setting.matrix else layer.matrix
    machine, sizes = setting.machine, layer.operand_bytes
    stored = sizes["out"]
    if setting.padded_loads and isinstance(w, GemmWorkload):
        w = GemmWorkload(m=_up(w.m, machine.rows), n=_up(w.n, machine.columns), k=w.k, dtype=w.dtype)
        sizes = Layer(layer.name, w).operand_bytes
    tile = replace(machine.near_tile(), partial_blocks="padded" if setting.padded_blocks else "skipped")
    if setting.alone:
        tile = _alone(tile, layer.matrix.k, setting.alone)
    in_series = replace(
        tile,
        bw_a=_rate(machine.bandwidth, sizes["a"], setting.before * machine.bandwidth),
        bw_b=_rate(machine.bandwidth, sizes["b"], setting.before * machine.bandwidth),
        bw_out=_rate(machine.bandwidth * sizes["out"] / stored, sizes["out"], setting.behind * machine.bandwidth),
    )
    made_for, timed_on = (replace(machine.hardware(), near_tile=unit) for unit in (tile, in_series))
    report = simulate(record(_scheduled(w, made_for), made_for), timed_on)
    moved = {**report.bytes, "out": report.bytes["out"] * stored // sizes["out"]}
    if isinstance(w, ConvWorkload):  # the analytical split-K partition has the kernels on the left
        moved |= {"a": moved["b"], "b": moved["a"]}
    cycles = setting.before + report.cycles + setting.behind
    return Figures(cycles, setting.before, setting.behind, moved, time.process_time() - start)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _rate(bandwidth: float, moved: int, outside: float) -> float:
    """Bytes per cycle at which a transfer takes as long as it would without `outside` of its bytes, which are moved
    while nothing is computed."""
    return bandwidth * moved / (moved - outside) if outside < moved else AT_ONCE


def _scheduled(w: GemmWorkload | ConvWorkload, hardware: Hardware) -> tvm.IRModule:
    if isinstance(w, ConvWorkload):
        return tiling_schedule(_convolution(w), target=hardware).mod
    return tiling_schedule(plain_operator(w), target=hardware).mod


def _alone(tile: NearTile, depth: int, cycles: int) -> NearTile:
    """The engine in which each block runs through the whole depth and takes `cycles` more than its depth."""
    macs = tile.block_m * tile.block_n * depth
    rate = macs / (depth + cycles - 1e-3)  # the engine rounds the cycles of a block up
    return replace(tile, block_k=depth, macs_per_cycle=macs, macs_of_bytes={"1": rate})


def _convolution(w: ConvWorkload) -> te.Tensor:
    """The convolution of one image without padding as a TE expression."""
    x = te.placeholder((w.n, w.h, w.w, w.ci), w.dtype, name="x")
    kernels = te.placeholder((w.kh, w.kw, w.ci, w.co), w.dtype, name="kernels")
    c, r, s = (te.reduce_axis((0, size), name) for name, size in (("c", w.ci), ("r", w.kh), ("s", w.kw)))
    down, right = w.stride

    def point(i: tirx.Var, y: tirx.Var, z: tirx.Var, o: tirx.Var) -> tirx.Expr:
        of_image = x[i, y * down + r, z * right + s, c].astype(w.acc_dtype)
        return te.sum(of_image * kernels[r, s, c, o].astype(w.acc_dtype), axis=[r, s, c])

    points = ((w.h - w.kh) // down + 1, (w.w - w.kw) // right + 1)
    return te.compute((w.n, *points, w.co), point, name="y")
