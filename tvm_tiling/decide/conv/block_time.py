"""Buffer usage, traffic and cycles of the blocks of a convolution on a matrix engine, for many candidates at once.

The time of a candidate is estimated from

    start    until the first blocks of both operands have arrived
    work     the multipliers, tile by tile, each rounded to whole cycles
    loads    of both operands with their halos; one after the other where they share a queue or a port
    end      the last tile and the store of its results

as start + work + end, or the loads and the last tile if that is longer. Where a buffer holds few blocks, work waits for
free buffers: a block is loaded, used, and frees its space, and the next one arrives a latency later. Sums are computed
and stored likewise.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from ...workload import ConvWorkload
from ..gemm.strips import streamed_cycles
from ..gemm.traffic import product_on

Sizes = TypeVar("Sizes", int, np.ndarray)

MOST_VERSIONS = 8
MOST_SUMS = 8
# Penalty in cycles per instruction, so that of equally fast candidates the one with fewer instructions wins.
EACH = 0.05


@dataclass(frozen=True)
class Columns:
    """Candidates, one array per choice (see ConvBlocks); `channels_outside` is 1 or 0."""

    channels_outside: np.ndarray
    groups: np.ndarray
    step_m: np.ndarray
    tile_m: np.ndarray
    rows: np.ndarray
    tile_rows: np.ndarray
    columns: np.ndarray
    channels: np.ndarray


@dataclass(frozen=True)
class Axis:
    """An axis of the image: output points, input size, padding in front, stride, and the span of a kernel."""

    points: int
    size: int
    front: int
    stride: int
    span: int

    def reach(self, points: np.ndarray) -> np.ndarray:
        """Return the input points under blocks of `points` output points, including padding."""
        return (points - 1) * self.stride + self.span

    def read(self, steps: np.ndarray) -> np.ndarray:
        """Return the input points read by all blocks of `steps` points; points shared by two blocks count twice."""
        distinct, which = np.unique(steps, return_inverse=True)
        sums = [sum(self.under(start, int(step)) for start in range(0, self.points, step)) for step in distinct]
        return np.array(sums, dtype=np.int64)[which.reshape(-1)]

    def read_whole(self, steps: np.ndarray) -> np.ndarray:
        """Return the input points read in one load for all blocks of `steps` points: all but those that a stride skips
        at the end."""
        covered = -(-self.points // steps) * steps
        last: np.ndarray = np.minimum((covered - 1) * self.stride + self.span - self.front, self.size)
        return last

    def under(self, start: int, step: int) -> int:
        """Return the input points read by the block of `step` output points from `start` on, without padding. The last
        block, even if it is partial, reads to the end of the input where a stride leaves a remainder."""
        first = start * self.stride - self.front
        return max(0, min(first + (step - 1) * self.stride + self.span, self.size) - max(first, 0))


@dataclass(frozen=True)
class _Blocks:
    """Blocks of one operand: `cycles` of all loads and of `each` block, how many versions fit, and whether the operand
    stays resident as a whole."""

    cycles: np.ndarray
    each: np.ndarray
    versions: np.ndarray
    whole: np.ndarray

    @property
    def times(self) -> np.ndarray:
        """Number of block loads."""
        times: np.ndarray = np.maximum(1, np.round(self.cycles / self.each))
        return times


class ConvFacts:
    """Quantities of one convolution on one machine."""

    def __init__(self, conv: ConvWorkload, hardware: Hardware) -> None:
        self.conv, self.product = conv, product_on(conv, hardware)
        unit, machine = hardware.near_tile, Machine(hardware)
        assert unit is not None  # product_on has refused machines without it
        self.unit, self.machine = unit, machine
        self.taps = conv.kd * conv.kh * conv.kw
        self.ci, self.co = conv.ci // conv.groups, conv.co // conv.groups
        self.d_acc = unit.acc_bytes_per_element or 4
        self.deep = Axis(conv.do, conv.d, conv.padding_d[0], conv.stride_d, (conv.kd - 1) * conv.dilation_d + 1)
        self.high, self.wide = (
            Axis(out, size, front, stride, (taps - 1) * apart + 1)
            for out, size, front, stride, taps, apart in (
                (conv.ho, conv.h, conv.padding[0], conv.stride[0], conv.kh, conv.dilation[0]),
                (conv.wo, conv.w, conv.padding[1], conv.stride[1], conv.kw, conv.dilation[1]),
            )
        )
        external = machine.memory("external")
        self.latency, self.ports, self.one_port = external.latency, external.ports, external.ports == 1
        self.one_queue = self.one_port or machine.queue_of("load_a") == machine.queue_of("load_b")
        self.out_rate = machine.rate("external", "out")

    def room(self, name: str, own: int) -> int:
        """Return the capacity of a buffer in bytes."""
        room = self.machine.capacity(name)
        return own if room is None else room

    @staticmethod
    def buffer(axis: Axis) -> int:
        """Return the points of a whole axis including its padding."""
        return max((axis.points - 1) * axis.stride + axis.span, axis.front + axis.size)

    def product_cycles(self, m: Sizes, n: Sizes, k: Sizes) -> Sizes:
        """Return the cycles of one instruction that multiplies m x k by k x n."""
        unit = self.unit
        if unit.partial_blocks == "padded":
            blocks = -(-m // unit.block_m) * -(-n // unit.block_n) * -(-k // unit.block_k)
            return unit.fill + blocks * unit.block_cycles(self.product.d_a)
        if unit.partial_blocks == "streamed":
            streamed: Any = streamed_cycles(unit, self.product.d_a, *map(np.asarray, (m, 1, n, -(-k // unit.block_k))))
            whole: Sizes = unit.fill + streamed
            return whole
        cycles: Sizes = unit.fill + np.ceil(m * n * k / unit.macs(self.product.d_a) * (1 - 1e-14))
        return cycles


class BlockTimes:
    """The candidates: whether each `fits`, the bytes it reads, the number of block versions, and its estimated
    `cycles`."""

    def __init__(self, facts: ConvFacts, at: Columns) -> None:
        self.facts, self.at = facts, at
        conv, p = facts.conv, facts.product
        self.split = at.channels < facts.ci
        self.points = conv.n * conv.do * _parts(conv.ho, at.rows) * _parts(conv.wo, at.columns)  # rectangles
        self.parts_m = _parts(facts.co, at.step_m)
        outside = at.channels_outside == 1
        passes_a = np.where(self.split | ~outside, self.points, 1)
        passes_b = np.where(self.split | outside, self.parts_m, 1)
        self.size_a = at.groups * at.step_m * at.channels * facts.taps * p.d_a
        self.size_b = at.groups * at.channels * self._window(at.rows, at.columns) * p.d_b
        all_a = at.groups * facts.co * facts.ci * facts.taps * p.d_a
        image = conv.n * facts.buffer(facts.deep) * facts.buffer(facts.high) * facts.buffer(facts.wide)
        all_b = at.groups * facts.ci * image * p.d_b
        room_a, room_b = facts.room("a", facts.unit.buf_a), facts.room("b", facts.unit.buf_b)
        self.whole_a, self.whole_b = (passes_a > 1) & (all_a <= room_a), (passes_b > 1) & (all_b <= room_b)
        self.size_a = np.where(self.whole_a, all_a, self.size_a)
        self.size_b = np.where(self.whole_b, all_b, self.size_b)
        again = conv.groups // at.groups > 1
        self.versions_a, self.versions_b = (
            np.clip(room // size, 0, np.where(whole & ~again, 1, MOST_VERSIONS))
            for room, size, whole in ((room_a, self.size_a, self.whole_a), (room_b, self.size_b, self.whole_b))
        )
        self.bytes_a = conv.groups * facts.co * facts.ci * facts.taps * p.d_a * np.where(self.whole_a, 1, passes_a)
        read = (
            conv.n * facts.deep.read(np.ones(1, np.int64))[0] * facts.high.read(at.rows) * facts.wide.read(at.columns)
        )
        whole = (
            conv.n
            * facts.deep.read_whole(np.array(1))
            * facts.high.read_whole(at.rows)
            * facts.wide.read_whole(at.columns)
        )
        read = np.where(self.whole_b, whole, passes_b * read)
        self.bytes_b = conv.groups * facts.ci * p.d_b * read
        self._place_sums()

    def _window(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        facts = self.facts
        return facts.deep.span * facts.high.reach(rows) * facts.wide.reach(columns)

    def _place_sums(self) -> None:
        at, facts = self.at, self.facts
        block = np.where(self.split, at.step_m * at.rows, at.tile_m * at.tile_rows)
        size = at.groups * block * at.columns * facts.d_acc
        acc, out = facts.unit.acc_max, facts.unit.out_bytes
        self.in_acc = size <= acc
        half = np.full(len(size), 1 << 62) if out is None else np.full(len(size), out // 2)
        room = np.where(self.in_acc, acc, np.where(self.split, 0, half))
        self.versions_sums = np.clip(room // size, 0, MOST_SUMS)

    @property
    def fits(self) -> np.ndarray:
        """Whether at least one block of each operand and of the sums fits."""
        return (self.versions_a > 0) & (self.versions_b > 0) & (self.versions_sums > 0)

    @functools.cached_property
    def cycles(self) -> np.ndarray:
        """Estimated cycles."""
        at, facts, p, unit = self.at, self.facts, self.facts.product, self.facts.unit
        conv = facts.conv
        work, instructions = self._work
        meetings = self.parts_m * self.points * (conv.groups // at.groups)  # pairs of a block of A and a block of B
        last = work / (meetings * _parts(facts.ci, at.channels))
        a = _Blocks(self.bytes_a / p.bw_a, self.size_a / p.bw_a, self.versions_a, self.whole_a)
        b = _Blocks(self.bytes_b / p.bw_b, self.size_b / p.bw_b, self.versions_b, self.whole_b)
        out = conv.n * conv.do * conv.ho * conv.wo * conv.co * facts.d_acc
        stores = np.full(len(work), 0.0 if facts.out_rate is None else out / facts.out_rate)
        last_store = stores / self._tiles
        pieces_a = np.maximum(1, np.where(self.whole_a, facts.co, at.step_m) // at.tile_m)
        pieces_b = np.where(self.whole_b, np.maximum(1, conv.ho // at.rows), 1)
        if facts.one_queue:
            loads, start = a.cycles + b.cycles, a.each + b.each
        else:
            loads, start = np.maximum(a.cycles, b.cycles), np.maximum(a.each / pieces_a, b.each)
        start = start + facts.latency
        late = np.maximum(
            _arrives(a, pieces_a, work, np.where(self.whole_a, self.points, meetings)),
            _arrives(b, pieces_b, work, np.where(self.whole_b, self.parts_m, meetings)),
        )
        longest = np.maximum(work + late, np.maximum(self._goes_round(a, work), self._goes_round(b, work)))
        waits = np.zeros(len(work))
        if facts.one_port:
            # A store waits for the load that occupies the port: while loads continue, there are as many stores as
            # loads.
            number = a.times * pieces_a + b.times * pieces_b
            waits = loads / number
            rest = np.maximum(0, self._tiles - number) * work / self._tiles
            longest = np.maximum(longest, loads + np.minimum(1, number / self._tiles) * stores + rest - start)
            loads = loads + stores
        turn = (work + stores) / self._tiles + waits + unit.drain + facts.latency + self._tokens
        longest = np.maximum(longest, self._tiles * turn / np.maximum(1, self.versions_sums))
        most = np.maximum(start + longest, facts.latency + loads + last)
        issued = instructions * facts.machine.issue.issue_cycles
        estimate: np.ndarray = np.maximum(most, issued) + unit.drain + last_store + EACH * instructions
        return estimate

    @property
    def _tokens(self) -> int:
        """Cycles of the tokens in both directions."""
        return 2 * self.facts.machine.issue.token_cycles

    @functools.cached_property
    def _tiles(self) -> np.ndarray:
        """Number of times that sums are stored."""
        at, conv = self.at, self.facts.conv
        tile = np.where(self.split, at.step_m * at.rows, at.tile_m * at.tile_rows) * at.groups * at.columns
        tiles: np.ndarray = np.maximum(1, conv.n * conv.do * conv.ho * conv.wo * conv.co / tile)
        return tiles

    def _goes_round(self, blocks: _Blocks, work: np.ndarray) -> np.ndarray:
        """Return the cycles in which the blocks of an operand are loaded, used and freed one after the other, divided
        by the number of versions; 0 if all blocks fit."""
        turn = blocks.each + self.facts.latency + work / blocks.times + self._tokens
        found: np.ndarray = blocks.times * turn / np.maximum(1, blocks.versions) - blocks.each
        return np.where(blocks.whole | (blocks.times <= blocks.versions), 0, found)

    @property
    def instructions(self) -> np.ndarray:
        """Approximate number of instructions: multiplications, and a store and two loads for each tile."""
        found: np.ndarray = self._work[1] + 3 * self._tiles
        return found

    @functools.cached_property
    def _work(self) -> tuple[np.ndarray, np.ndarray]:
        """Cycles and number of the matrix-engine instructions."""
        conv = self.facts.conv
        work, instructions = np.zeros(len(self.at.rows)), np.zeros(len(self.at.rows))
        for count, m, n, c in self.tiles():
            work += count * self.facts.product_cycles(m, n, c * conv.kh * conv.kw)
            instructions += count
        return work, instructions

    def tiles(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield (count, output channels, points, input channels) for each kind of matrix-engine instruction: full tiles
        and those at the edges."""
        at, facts = self.at, self.facts
        conv = facts.conv
        sides = (
            (facts.co, at.tile_m),
            (conv.ho, at.tile_rows),
            (conv.wo, at.columns),
            (facts.ci, at.channels),
        )
        pieces = [((size // tile, tile), ((size % tile > 0) * 1, size % tile)) for size, tile in sides]
        for m_count, m in pieces[0]:
            for r_count, r in pieces[1]:
                for w_count, w in pieces[2]:
                    for c_count, c in pieces[3]:
                        count = m_count * r_count * w_count * c_count * (conv.n * conv.do * conv.kd * conv.groups)
                        yield count, m, r * w, c


def _arrives(blocks: _Blocks, pieces: np.ndarray, work: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Return the cycles by which a resident operand, loaded piece by piece, arrives later than the first pass over it
    takes."""
    arrival = np.where(blocks.whole, blocks.cycles, blocks.each) * (1 - 1 / pieces)
    late: np.ndarray = np.maximum(0, arrival - work / passes)
    return late


def _parts(size: int, step: np.ndarray) -> np.ndarray:
    parts: np.ndarray = -(-size // step)
    return parts
