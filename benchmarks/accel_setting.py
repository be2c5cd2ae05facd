"""Our simulator on a layer under stated assumptions, and those assumptions of other simulators that ours can take over.

Each is turned by the machine description or by the shape; where a figure is
needed that only the other simulator can know, it is one that it reports.
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

AT_ONCE = 1e9  # bytes per cycle: a transfer that takes no time worth counting


@dataclass(frozen=True)
class Setting:
    """What our simulator is to assume.

    `padded_blocks`: a block that does not fill the array takes the cycles of one that does. `padded_loads`: A and B
    come with the rows and columns that fill it, unless A is an image. `alone`: cycles beyond its depth that each block
    has the array for itself. `matrix`: an image comes as the rows of its product. `before`, `behind`: cycles of loading
    before the first product and of storing after the last.
    """

    machine: ArrayMachine
    padded_blocks: bool = False
    padded_loads: bool = False
    alone: int = 0
    matrix: bool = False
    before: int = 0
    behind: int = 0


class Assumption(NamedTuple):
    """A difference of assumption: its name, what it says, and our simulator turned to it for a layer, given what the
    other simulator says of the layer. `both`: the other simulator is turned too, by the machine."""

    name: str
    says: str
    turn: Callable[[Setting, Layer, Figures], Setting]
    both: bool = False


def roomy(machine: ArrayMachine, layer: Layer) -> ArrayMachine:
    """The machine with buffers whose halves hold all of A and of B, with the rows that fill the array."""
    w = layer.matrix
    sizes = (_up(w.m, machine.rows) * w.k, _up(w.n, machine.columns) * w.k)
    rooms = [max(own, _up(size, 1024)) for own, size in zip((machine.buf_a, machine.buf_b), sizes, strict=True)]
    return replace(machine, buf_a=rooms[0], buf_b=rooms[1])


AGAIN = Assumption(
    "operand beyond its buffer",
    "what a buffer cannot hold comes again, in their order of loops or in ours; gone where buffers hold it all",
    lambda setting, layer, theirs: replace(setting, machine=roomy(setting.machine, layer)),
    both=True,
)
MATRIX = Assumption(
    "no halo reuse",
    "every point of the image is loaded once for each tap that reads it",
    lambda setting, layer, theirs: replace(setting, matrix=True),
)
PADDED_LOADS = Assumption(
    "padding is loaded",
    "rows and columns that fill the array are loaded and counted",
    lambda setting, layer, theirs: replace(setting, padded_loads=True, padded_blocks=True),
)
PADDED_BLOCKS = Assumption(
    "blocks are padded",
    "a block that does not fill the array takes the cycles of a full one",
    lambda setting, layer, theirs: replace(setting, padded_blocks=True),
)
ALONE = Assumption(
    "fill and drain of each block",
    "blocks do not overlap in the array: each costs its depth, rows + columns - 2 cycles of fill and drain besides",
    lambda setting, layer, theirs: replace(
        setting, padded_blocks=True, alone=setting.machine.rows + setting.machine.columns - 2
    ),
)
BEFORE = Assumption(
    "loads before products",
    "what the buffers hold is loaded before the first product; ours begins with the first pieces",
    lambda setting, layer, theirs: replace(setting, before=theirs.before),
)
BEHIND = Assumption(
    "stores behind products",
    "the last results, which the buffer of sums collects, leave after the last product; ours leave tile by tile",
    lambda setting, layer, theirs: replace(setting, behind=theirs.behind),
)


@functools.cache
def ours(layer: Layer, setting: Setting) -> Figures:
    """Our figures of a layer; `seconds` are those of scheduling, recording and timing it."""
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
    if isinstance(w, ConvWorkload):  # page 01 has the kernels on the left
        moved |= {"a": moved["b"], "b": moved["a"]}
    cycles = setting.before + report.cycles + setting.behind
    return Figures(cycles, setting.before, setting.behind, moved, time.process_time() - start)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _rate(bandwidth: float, moved: int, outside: float) -> float:
    """Bytes per cycle at which a transfer takes as long as without the `outside` bytes of it, which move while nothing
    is computed."""
    return bandwidth * moved / (moved - outside) if outside < moved else AT_ONCE


def _scheduled(w: GemmWorkload | ConvWorkload, hardware: Hardware) -> tvm.IRModule:
    if isinstance(w, ConvWorkload):
        return tiling_schedule(_convolution(w), target=hardware).mod
    return tiling_schedule(plain_operator(w), target=hardware).mod


def _alone(tile: NearTile, depth: int, cycles: int) -> NearTile:
    """The engine where a block of the array goes through the whole depth and takes so many `cycles` more than it."""
    macs = tile.block_m * tile.block_n * depth
    rate = macs / (depth + cycles - 1e-3)  # the engine rounds the cycles of a block up
    return replace(tile, block_k=depth, macs_per_cycle=macs, macs_of_bytes={"1": rate})


def _convolution(w: ConvWorkload) -> te.Tensor:
    """The convolution of one image without border as TE writes it."""
    x = te.placeholder((w.n, w.h, w.w, w.ci), w.dtype, name="x")
    kernels = te.placeholder((w.kh, w.kw, w.ci, w.co), w.dtype, name="kernels")
    c, r, s = (te.reduce_axis((0, size), name) for name, size in (("c", w.ci), ("r", w.kh), ("s", w.kw)))
    down, right = w.stride

    def point(i: tirx.Var, y: tirx.Var, z: tirx.Var, o: tirx.Var) -> tirx.Expr:
        of_image = x[i, y * down + r, z * right + s, c].astype(w.acc_dtype)
        return te.sum(of_image * kernels[r, s, c, o].astype(w.acc_dtype), axis=[r, s, c])

    points = ((w.h - w.kh) // down + 1, (w.w - w.kw) // right + 1)
    return te.compute((w.n, *points, w.co), point, name="y")
