"""Cycles of a matrix multiplication's configuration through several storage levels, instruction by instruction.

The loads, multiplications and stores that schedules/accel_levels.py generates are simulated in loop order with the
queues of the machine model (gemm/queue_order.py). Unlike the estimate of levels/level_time.py, this accounts for too
few slots for the steps of K, partial blocks, and the order of loads that share a queue. Epilogues are not counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from ..gemm.queue_order import QueueOrder, Steps
from ..gemm.traffic import ceil_div
from .level_model import Blocks, LevelProduct
from .level_time import Times


class _Loop(NamedTuple):
    """A loop over blocks: the axis "m", "n" or "k", the level, the trip count and the step."""

    axis: str
    level: int
    extent: int
    step: int


def can_be_walked(p: LevelProduct) -> bool:
    """Return whether the program is a plain matrix multiplication; blocks of convolutions have halos and cannot be
    simulated here."""
    return p.image is None and p.repeats == 1


def walked_instructions(p: LevelProduct, b: Blocks) -> int:
    """Return an approximate upper bound of the number of instructions of a configuration's program."""
    tiles = p.blocks_m(b.rows[-1]) * p.blocks_n(b.columns[-1])
    return tiles * (ceil_div(p.k, b.depth) * (1 + 2 * len(p.levels)) + len(p.levels))


def walked_cycles(p: LevelProduct, b: Blocks, found: Times) -> float:
    """Return the cycles of a fitting configuration with estimate `found`; only if can_be_walked()."""
    walk = _Walk(p, b, found)
    steps = walk.write().by_use(*reversed(walk.loads))
    return float(QueueOrder(steps, p.issue, p.token, p.ports).cycles("matrix"))


class _Walk:
    """Generates the instructions of a configuration; `loads` lists those into each level."""

    def __init__(self, p: LevelProduct, b: Blocks, found: Times) -> None:
        self.p, self.b, self.found, self.steps = p, b, found, Steps()
        self.count = b.split if b.depth < p.k else len(p.levels)
        self.depth = min(b.depth, p.k)
        self.loads: list[list[int]] = [[] for _ in p.levels]
        self.loops = list(self._loops())
        # For each level and operand: the loops around its loads, their iteration count, the load that brought each
        # piece of the current block, and the last reader of each piece of every slot.
        self.around = {
            (level, axis): self._around(level, axis) for level in range(len(p.levels)) for axis in ("m", "n")
        }
        self.at: dict[tuple[int, str], tuple[int, ...]] = {}
        self.turn = dict.fromkeys(self.around, -1)
        self.there: dict[tuple[int, str], dict[tuple[int, int], int]] = {}
        self.readers: dict[tuple[int, str, int, int, int], int] = {}
        self.slot_of: dict[int, tuple[int, str, int, int, int]] = {}
        self.sums_left: list[int] = []
        self.tiles_left: list[list[int]] = [[] for _ in p.levels]

    def _loops(self) -> Iterator[_Loop]:
        p, b = self.p, self.b
        for level in range(self.count + 1):
            place = min(level, b.split)
            for axis in b.orders[place]:
                whole, own = (p.m, b.rows) if axis == "m" else (p.n, b.columns)
                outer = own[min(level - 1, b.split)] if level else whole
                yield _Loop(axis, level, ceil_div(outer, own[place]), own[place])
        if self.depth < p.k:
            yield _Loop("k", self.count, ceil_div(p.k, self.depth), self.depth)

    def _around(self, level: int, axis: str) -> int:
        """Return how many loops enclose the loads of an operand into a level."""
        places = [
            place + 1
            for place, loop in enumerate(self.loops)
            if loop.level <= level and loop.axis in (axis, "k") and loop.extent > 1
        ]
        return max(places, default=0)

    def write(self) -> Steps:
        p = self.p
        for at in itertools.product(*(range(loop.extent) for loop in self.loops)):
            m, n, k = self._starts(at, len(at))
            if m >= p.m or n >= p.n or k >= p.k:
                continue
            rows, columns = min(self.b.rows[-1], p.m - m), min(self.b.columns[-1], p.n - n)
            depth = min(self.depth, p.k - k)
            for level in range(len(p.levels)):
                for axis in "mn" if self.found.traffic[level].a_first else "nm":
                    self._bring(level, axis, at)
            last = len(p.levels) - 1
            waits = [self._piece(last, axis, start, k) for axis, start in (("m", m), ("n", n))]
            first, done = k == 0, k + depth >= p.k
            sums = self.b.sums if len(self.sums_left) >= self.b.sums else 0
            if first and sums:
                waits.append(self.sums_left[-sums])
            busy = p.product_cycles(rows, columns, depth)
            number = self.steps.add("matrix", busy, p.drain, False, waits)
            for piece in waits[:2]:
                self.readers[self.slot_of[piece]] = number
            if done:
                self._store(rows, columns, number)
        return self.steps

    def _starts(self, at: tuple[int, ...], count: int) -> tuple[int, int, int]:
        """Return the start of the block of the first `count` loops."""
        found = {"m": 0, "n": 0, "k": 0}
        for place, loop in zip(at[:count], self.loops, strict=False):
            found[loop.axis] += place * loop.step
        return found["m"], found["n"], found["k"]

    def _bring(self, level: int, axis: str, at: tuple[int, ...]) -> None:
        """Load a block of an operand into a level piece by piece, unless it is resident."""
        p, b, key = self.p, self.b, (level, axis)
        around = at[: self.around[key]]
        if self.at.get(key) == around and key in self.there:
            return
        self.at[key] = around
        self.turn[key] += 1
        self.there[key] = {}
        held = self.found.held[level]
        slot = self.turn[key] % (held.slots_a if axis == "m" else held.slots_b)
        m, n, k = self._starts(around, len(around))
        start, whole, own = (m, p.m, b.rows) if axis == "m" else (n, p.n, b.columns)
        inside = level < self.count
        size = own[min(level, b.split)]
        piece = own[min(level + 1, b.split)] if inside else size
        ends = min(start + size, whole)
        for first in range(start, ends, piece):
            for step in range(0, p.k, self.depth) if inside else (k,):
                self._load(level, axis, slot, (first, min(piece, ends - first), first - start), step)

    def _load(self, level: int, axis: str, slot: int, part: tuple[int, int, int], step: int) -> None:
        p, b = self.p, self.b
        first, size, offset = part
        depth = min(self.depth, p.k - step)
        each, copies, external = (
            (p.d_a, b.across_n[level], p.rates[0]) if axis == "m" else (p.d_b, b.across_m[level], p.rates[1])
        )
        storage = p.levels[level]
        amount = size * depth * each
        busy = _whole(amount * copies / (storage.rate * storage.instances))
        latency = storage.latency
        waits = []
        if level == 0:
            busy, latency = max(busy, _whole(amount / external)), latency + p.latency
        else:
            waits.append(self._piece(level - 1, axis, first, step))
        place = (level, axis, slot, offset, step if level < self.count else 0)
        if place in self.readers:
            waits.append(self.readers[place])
        number = self.steps.add(f"load {level}", busy, latency, level == 0, waits)
        self.slot_of[number] = place
        if level:
            self.readers[self.slot_of[waits[0]]] = number
        self.there[level, axis][first, step if level < self.count else 0] = number
        self.loads[level].append(number)

    def _piece(self, level: int, axis: str, start: int, step: int) -> int:
        """Return the load that brought the piece that starts there."""
        b, found = self.b, self.there[level, axis]
        if level >= self.count:
            return next(iter(found.values()))
        own = b.rows if axis == "m" else b.columns
        return found[start // own[min(level + 1, b.split)] * own[min(level + 1, b.split)], step]

    def _store(self, rows: int, columns: int, product: int) -> None:
        """Store the results of a tile, level by level outwards."""
        p, number = self.p, product
        amount = p.bytes_out(rows, columns)
        for level in range(len(p.levels) - 1, -1, -1):
            storage = p.levels[level]
            busy, latency = _whole(amount / (storage.rate * storage.instances)), storage.latency
            waits = [number]
            if level == 0:
                busy, latency = max(busy, _whole(amount / p.rates[2])), latency + p.latency
            else:
                slots, left = self.found.held[level - 1].slots_out, self.tiles_left[level - 1]
                if len(left) >= slots:
                    waits.append(left[-slots])
            number = self.steps.add(p.store_queues[level], busy, latency, level == 0, waits)
            if level == len(p.levels) - 1:
                self.sums_left.append(number)
            else:
                self.tiles_left[level].append(number)


def _whole(cycles: float) -> int:
    """Round cycles up, ignoring floating-point error just above a whole number."""
    return math.ceil(cycles * (1 - 1e-14))
