"""Simulated cycles of one tiling of a convolution: its loads, multiplications and stores in loop order.

conv/block_time.py estimates all candidates at once; here the instructions of a single one are generated and started as
the machine model starts them (gemm/queue_order.py): when their inputs have arrived and their destination is free. The
workload does not include epilogues, so they are not counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..gemm.queue_order import QueueOrder, Steps
from .block_time import ConvFacts
from .conv_blocks import ConvBlocks

Piece = tuple[int, int]  # first element and count
PieceName = int | tuple[int, int, int]  # of a loaded piece


def queued_cycles(facts: ConvFacts, blocks: ConvBlocks, limit: float = math.inf) -> float:
    """Return the cycles of `blocks`, infinity if they exceed `limit`."""
    machine = facts.machine
    order = QueueOrder(
        _Loops(facts, blocks).write(), machine.issue.issue_cycles, machine.issue.token_cycles, facts.ports
    )
    return order.cycles(machine.queue_of("matrix"), limit)


class _Rectangle(NamedTuple):
    """Output points of an image: rows and columns of a plane."""

    n: int
    d: int
    y: Piece
    x: Piece


class _Tile(NamedTuple):
    """What an instruction multiplies: the piece of kernels, and the numbers of output channels, rows and input
    channels."""

    kernels: int
    channels: int
    row: int
    rows: int
    depth: int


class _Place:
    """An operand's buffer: alternating versions in pieces, and the loader and last reader of each piece."""

    def __init__(self, versions: int) -> None:
        self.versions = max(1, versions)
        self.turn = -1
        self.loaded: dict[PieceName, int] = {}
        self._read: list[dict[PieceName, int]] = [{} for _ in range(self.versions)]

    def next_version(self) -> None:
        self.turn += 1
        self.loaded = {}

    @property
    def read(self) -> dict[PieceName, int]:
        """The last readers of the pieces of the current version."""
        return self._read[self.turn % self.versions]


class _Loops:
    """Generates the instructions of a candidate."""

    def __init__(self, facts: ConvFacts, blocks: ConvBlocks) -> None:
        self.facts, self.blocks, self.steps = facts, blocks, Steps()
        machine, product = facts.machine, facts.product
        self.queue_of = {name: machine.queue_of(name) for name in ("load_a", "load_b", "matrix", "store")}
        self.rates = {"load_a": product.bw_a, "load_b": product.bw_b, "store": facts.out_rate}
        self.kernels, self.image = _Place(blocks.versions_a), _Place(blocks.versions_b)
        self.sums_left = [-1] * blocks.versions_sums  # the store of each version of the sums
        self.split = blocks.channels < facts.ci
        self.loads: list[int] = []
        self.turn = -1  # version of the sums
        self._cycles: dict[tuple[int, int, int], int] = {}

    def write(self) -> Steps:
        facts, blocks, conv = self.facts, self.blocks, self.facts.conv
        channels = pieces(facts.co, blocks.step_m)
        points = [
            _Rectangle(n, d, y, x)
            for n in range(conv.n)
            for d in range(conv.do)
            for y in pieces(conv.ho, blocks.rows)
            for x in pieces(conv.wo, blocks.columns)
        ]
        for _ in range(conv.groups // blocks.groups):
            if blocks.whole_a:
                self._load_kernels((0, facts.co), facts.ci)
            if blocks.whole_b:
                self._load_whole_image()
            if self.split:
                pairs = itertools.product(channels, points)
                for o, point in pairs if blocks.order == "mn" else sorted(pairs, key=lambda pair: pair[1]):
                    self._split_block(o, point)
            elif blocks.order == "mn":
                for o in channels:
                    self._bring_kernels(o, facts.ci)
                    for point in points:
                        self._bring_image(point, facts.ci)
                        self._block(o, point)
            else:
                for point in points:
                    self._bring_image(point, facts.ci)
                    for o in channels:
                        self._bring_kernels(o, facts.ci)
                        self._block(o, point)
        if self.queue_of["load_a"] == self.queue_of["load_b"]:
            return self.steps.by_use(self.loads)
        return self.steps

    # ---- transfers -----------------------------------------------------------------------------------------------

    def _move(self, engine: str, amount: int, latency: int, waits: list[int]) -> int:
        rate = self.rates[engine]
        busy = 0 if rate is None else math.ceil(amount / rate * (1 - 1e-14))
        off_chip = amount > 0
        return self.steps.add(self.queue_of[engine], busy, latency if off_chip else 0, off_chip, waits)

    def _load(self, engine: str, place: _Place, piece: PieceName, amount: int) -> None:
        before = place.read.get(piece, -1)
        waits = [before] if before >= 0 else []
        place.loaded[piece] = self._move(engine, amount, self.facts.latency, waits)
        self.loads.append(place.loaded[piece])

    def _bring_kernels(self, o: Piece, depth: int) -> None:
        if not self.blocks.whole_a:
            self._load_kernels(o, depth)

    def _load_kernels(self, o: Piece, depth: int) -> None:
        """Load the kernels of the output channels `o`, in pieces of a tile."""
        facts, blocks = self.facts, self.blocks
        self.kernels.next_version()
        for number, (_, count) in enumerate(pieces(o[1], blocks.tile_m)):
            amount = blocks.groups * count * depth * facts.taps * facts.product.d_a
            self._load("load_a", self.kernels, number, amount)

    def _bring_image(self, point: _Rectangle, depth: int) -> None:
        """Load the input under a rectangle of points, plane by plane, unless the whole image is resident."""
        facts, blocks = self.facts, self.blocks
        if blocks.whole_b:
            return
        under = facts.high.under(point.y[0], blocks.rows) * facts.wide.under(point.x[0], blocks.columns)
        area = under * blocks.groups * depth * facts.product.d_b
        self.image.next_version()
        for plane in range(facts.deep.span):
            inside = 0 <= point.d * facts.deep.stride + plane - facts.deep.front < facts.deep.size
            self._load("load_b", self.image, plane, area if inside else 0)

    def _load_whole_image(self) -> None:
        facts, blocks, conv = self.facts, self.blocks, self.facts.conv
        high, deep = facts.high, facts.deep
        columns = int(facts.wide.read_whole(np.array(blocks.columns)))
        line = columns * blocks.groups * facts.ci * facts.product.d_b
        bottom = high.front + int(high.read_whole(np.array(blocks.rows)))
        self.image.next_version()
        for n in range(conv.n):
            for plane in range((deep.points - 1) * deep.stride + deep.span):
                inside = 0 <= plane - deep.front < deep.size
                for number, (first, count) in enumerate(pieces(facts.buffer(high), self._rows_of_piece)):
                    rows = max(0, min(first + count, bottom) - max(first, high.front))
                    self._load("load_b", self.image, (n, plane, number), rows * line if inside else 0)

    @property
    def _rows_of_piece(self) -> int:
        return max(1, self.blocks.rows * self.facts.high.stride)

    # ---- multiplications ------------------------------------------------------------------------------------------

    def _block(self, o: Piece, point: _Rectangle) -> None:
        """Compute the sums of a block tile by tile, each with its store."""
        for tile in self._tiles(o, point, self.facts.ci):
            version = self._next_sums()
            last = self._multiply(point, tile, version)
            self._store(tile.channels * tile.rows * point.x[1], last, version)

    def _split_block(self, o: Piece, point: _Rectangle) -> None:
        """Compute the sums of a block in steps of the channels, and store them."""
        version, last = self._next_sums(), -1
        for _, depth in pieces(self.facts.ci, self.blocks.channels):
            self._bring_kernels(o, depth)
            self._bring_image(point, depth)
            for tile in self._tiles(o, point, depth):
                last = self._multiply(point, tile, version)
        self._store(o[1] * point.y[1] * point.x[1], last, version)

    def _next_sums(self) -> int:
        """Return the next version of the sums."""
        self.turn += 1
        return self.turn % len(self.sums_left)

    def _tiles(self, o: Piece, point: _Rectangle, depth: int) -> Iterator[_Tile]:
        blocks = self.blocks
        start = o[0] if blocks.whole_a else 0
        for row, rows in pieces(point.y[1], blocks.tile_rows):
            for first, count in pieces(o[1], blocks.tile_m):
                yield _Tile((start + first) // blocks.tile_m, count, point.y[0] + row, rows, depth)

    def _multiply(self, point: _Rectangle, tile: _Tile, version: int) -> int:
        """Multiply a tile for each group and each plane of the kernels; return the index of the last instruction."""
        facts, conv = self.facts, self.facts.conv
        busy = self._product_cycles(tile.channels, tile.rows * point.x[1], tile.depth * conv.kh * conv.kw)
        left = [self.sums_left[version]] if self.sums_left[version] >= 0 else []
        number = -1
        for _ in range(self.blocks.groups):
            for tap in range(conv.kd):
                read = self._under(point, tile, tap * conv.dilation_d)
                waits = [self.kernels.loaded[tile.kernels], *(self.image.loaded[piece] for piece in read), *left]
                number = self.steps.add(self.queue_of["matrix"], busy, facts.unit.drain, False, waits)
                self.kernels.read[tile.kernels] = number
                for piece in read:
                    self.image.read[piece] = number
        return number

    def _under(self, point: _Rectangle, tile: _Tile, plane: int) -> list[PieceName]:
        """Return the pieces of the image that a tile reads for a plane of the kernels."""
        if not self.blocks.whole_b:
            return [plane]
        high = self.facts.high
        top, each = tile.row * high.stride, self._rows_of_piece
        bottom = top + (tile.rows - 1) * high.stride + high.span - 1
        return [
            (point.n, point.d * self.facts.deep.stride + plane, piece)
            for piece in range(top // each, bottom // each + 1)
        ]

    def _product_cycles(self, m: int, n: int, k: int) -> int:
        found = self._cycles.get((m, n, k))
        if found is None:
            found = self._cycles[m, n, k] = int(self.facts.product_cycles(m, n, k))
        return found

    def _store(self, points: int, last: int, version: int) -> None:
        amount = self.blocks.groups * points * self.facts.d_acc
        self.sums_left[version] = self._move("store", amount, self.facts.latency, [last])


def pieces(size: int, step: int) -> list[Piece]:
    """Return (start, size) of the steps of a dimension; the last may be shorter."""
    return [(first, min(step, size - first)) for first in range(0, size, step)]
