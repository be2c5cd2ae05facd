"""Cycles of a loop nest over a matrix multiplication without split-K, simulated piece by piece.

Loads and the matrix engine overlap as far as data and buffers allow: a piece is multiplied when both its operands have
arrived, and loaded when the last use of the previous contents of its buffer is over. All times therefore follow in
program order. Of many partitions, only the first three and the last are simulated; those in between take as long as the
third.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from .strips import streamed_cycles
from .traffic import Product, ceil_div

NOTHING = -1
MOST_TIMED = 6000  # instructions simulated individually
LEAST_GROUPS = 8  # groups simulated in any case
SIMULATED = 4  # partitions: until the time per partition is constant, and the last one


@dataclass(frozen=True)
class PieceNest:
    """A loop nest in which one operand stays resident one partition at a time while the other streams past.

        partitions of the resident operand, `step` elements each
          groups of the streamed operand, `group` elements each; its buffer holds `held` of them at `depth`
            steps of K, `depth` each
              tiles of the partition, `tile` each
                pieces of the group, `piece` each: one instruction

    The last partition may be smaller; `backward` starts with it. The buffer of the resident operand holds `buffers`
    partitions, which arrive in tiles and steps of K. Either K or the partition and its groups are divided, so sums are
    completed in blocks of a tile and a piece; there is space for `sums` such blocks.
    """

    keeps_a: bool
    step: int
    tile: int
    group: int
    piece: int
    depth: int
    held: int
    buffers: int
    sums: int
    backward: bool

    def instructions(self, p: Product) -> int:
        """Return the number of instructions: multiplications of a piece by a tile."""
        kept, passing = (p.m, p.n) if self.keeps_a else (p.n, p.m)
        tiles = ceil_div(kept, self.step) * ceil_div(self.step, self.tile)
        return tiles * ceil_div(passing, self.group) * ceil_div(self.group, self.piece) * ceil_div(p.k, self.depth)


class Walk(NamedTuple):
    """The instructions of the matrix engine and the loads, in program order.

    For each instruction: the cycles of its `work`, the indices of the two loads that it needs (`first`, `second`), the
    cycles to `leave` (store) its sums, and the index of the earlier block of sums whose `space` it reuses; NOTHING if
    there is none. For each load: its `cost`, the last instruction that used its space (`before`), and its `queue`.
    """

    work: list[int]
    first: list[int]
    second: list[int]
    leave: list[int]
    space: list[int]
    cost: list[int]
    before: list[int]
    queue: list[int]


class ProductEngines:
    """Cost of the instructions of one matrix multiplication on a machine."""

    def __init__(self, p: Product, hardware: Hardware) -> None:
        unit, machine = hardware.near_tile, Machine(hardware)
        assert unit is not None  # product_on has refused machines without it
        self.product, self.unit = p, unit
        external, token = machine.memory("external"), machine.issue.token_cycles
        self.latency, self.drain = external.latency + token, unit.drain + token
        # Sums that are wider than the results pass through the vector engine to be rounded; others are stored directly.
        rounded = p.d_out < (unit.acc_bytes_per_element or 4)
        self.leaving = 1 / machine.vector.lanes if rounded else 0.0
        out_rate = machine.rate("external", "out")
        if out_rate is not None:
            self.leaving = max(self.leaving, p.d_out / out_rate)
        self.one_port = external.ports == 1
        self.one_queue = self.one_port or machine.queue_of("load_a") == machine.queue_of("load_b")
        self._known: dict[tuple[PieceNest, int], float] = {}

    def products(self, rows: np.ndarray, columns: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Return the cycles of the matrix engine, 0 for empty pieces."""
        unit, p = self.unit, self.product
        if unit.partial_blocks == "padded":
            blocks = -(-rows // unit.block_m) * -(-columns // unit.block_n) * -(-depth // unit.block_k)
            cycles = blocks * unit.block_cycles(p.d_a)
        elif unit.partial_blocks == "streamed":
            cycles = streamed_cycles(unit, p.d_a, rows, np.array(1), columns, -(-depth // unit.block_k))
        else:
            cycles = whole_cycles(rows * columns * depth / unit.macs(p.d_a))
        return np.where(cycles > 0, cycles + unit.fill, 0)

    def cycles(self, nest: PieceNest, most: int = MOST_TIMED) -> float:
        """Return the cycles from the first load to the last store. With more than about `most` instructions, only some
        groups of the streamed operand are simulated and the others extrapolated. Partitions of similar sizes lead to
        the same nests: each is simulated once."""
        if (nest, most) not in self._known:
            self._known[nest, most] = self._cycles(nest, most)
        return self._known[nest, most]

    def _cycles(self, nest: PieceNest, most: int) -> float:
        p = self.product
        kept, passing = (p.m, p.n) if nest.keeps_a else (p.n, p.m)
        partitions, groups = ceil_div(kept, nest.step), ceil_div(passing, nest.group)
        # Results may lag behind by as many blocks as there is space for sums.
        partitions_out = max(0, partitions - SIMULATED - nest.sums)
        group = nest.instructions(p) // (partitions * groups)
        seen = max(LEAST_GROUPS, most // (group * (partitions - partitions_out)))
        groups_out = max(0, groups - seen)
        times = self._times(nest, kept - partitions_out * nest.step, passing - groups_out * nest.group)
        if not partitions_out and not groups_out:
            return times[-1]
        ends = np.array(times).reshape(partitions - partitions_out, groups - groups_out, -1)[:, :, -1]
        whole = len(ends) - (1 if nest.backward else 2)  # the last full partition
        cycles = float(ends[-1, -1])
        if partitions_out:
            cycles += partitions_out * (ends[whole, -1] - ends[whole - 1, -1])
        if groups_out:
            some = (groups - groups_out) // 2  # the first groups are not typical, and the last one may be smaller
            each = (ends[:, -2] - ends[:, -2 - some]) / some
            cycles += groups_out * (each.sum() + (partitions_out * each[whole] if partitions_out else 0))
        return cycles

    def _times(self, nest: PieceNest, kept: int, passing: int) -> list[int]:
        """Return the completion time of each matrix-engine instruction; for the last one, the time when its sums are
        stored."""
        p = self.product
        tiles, pieces = _parts(kept, nest.step, nest.tile), _parts(passing, nest.group, nest.piece)
        if nest.backward:
            tiles = tiles[::-1]
        depths = _parts(p.k, p.k, nest.depth)[0]
        (o, t), (g, u), s = tiles.shape, pieces.shape, len(depths)
        of_kept = tiles[:, None, :] * depths[:, None]
        of_passing = np.broadcast_to(pieces[:, None, :] * depths[:, None], (o, g, s, u))
        sizes = tiles[:, None, None, :, None], pieces[None, :, None, None, :]
        work = self.products(*(sizes if nest.keeps_a else sizes[::-1]), depths[:, None, None])
        of_a, of_b = (p.d_a, p.bw_a), (p.d_b, p.bw_b)
        (size_kept, bw_kept), (size_passing, bw_passing) = (of_a, of_b) if nest.keeps_a else (of_b, of_a)
        # The position of each load in its queue, and the last instruction that used its space before. Loads that share
        # a queue are in order of first use.
        last = np.arange(o * g * s * t * u).reshape(o, g, s, t, u)
        before_kept = _shifted(last[:, -1, :, :, -1].reshape(o, s * t), nest.buffers)
        before_passing = _shifted(last[:, :, :, -1, :].reshape(o * g * s, u), nest.held)
        first = np.concatenate([last[:, 0, :, :, 0].reshape(-1), last[:, :, :, 0, :].reshape(-1)])
        order = np.argsort(first, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        place_kept, place_passing = place[: o * s * t], place[o * s * t :]
        cost, before = (
            np.concatenate([of_what_stays.reshape(-1), of_what_passes.reshape(-1)])[order].tolist()
            for of_what_stays, of_what_passes in (
                (whole_cycles(of_kept * size_kept / bw_kept), whole_cycles(of_passing * size_passing / bw_passing)),
                (before_kept, before_passing),
            )
        )
        queue = (0 * order if self.one_queue else order >= o * s * t).tolist()
        needs_kept = np.broadcast_to(place_kept.reshape(o, 1, s, t, 1), last.shape).reshape(-1).tolist()
        needs_passing = np.broadcast_to(place_passing.reshape(o, g, s, 1, u), last.shape).reshape(-1).tolist()
        # Sums are complete, and stored, with the last step of K; a block of sums waits until an earlier one has been
        # stored. Where K is divided, each step is one instruction on the whole partition and group.
        number = last // s  # index of the block of sums
        leave = np.where(
            np.arange(s)[:, None, None] == s - 1, whole_cycles(sizes[0] * sizes[1] * self.leaving), NOTHING
        )
        gone = np.where((np.arange(s)[:, None, None] == 0) & (number >= nest.sums), number - nest.sums, NOTHING)
        return self.run(
            Walk(
                work.reshape(-1).tolist(),
                needs_kept,
                needs_passing,
                np.broadcast_to(leave, last.shape).reshape(-1).tolist(),
                gone.reshape(-1).tolist(),
                cost,
                before,
                queue,
            )
        )

    def run(self, walk: Walk) -> list[int]:
        """Return the completion time of each matrix-engine instruction; for the last one, the time when its sums are
        stored."""
        cost, before, queue = walk.cost, walk.before, walk.queue
        done, there, free = [0] * len(walk.work), [0] * len(cost), [0, 0]
        gone: list[int] = []
        latency, drain = self.latency, self.drain
        clock = load = left = port = 0  # `free`: load queues; `left`: the store queue
        for number, (first, second, cycles, leave, space) in enumerate(
            zip(walk.first, walk.second, walk.work, walk.leave, walk.space, strict=True)
        ):
            while load <= first or load <= second:
                time, last = free[queue[load]], before[load]
                if last >= 0 and done[last] + drain > time:
                    time = done[last] + drain
                if port > time:
                    time = port
                free[queue[load]] = time = time + cost[load]
                if self.one_port:
                    port = time
                there[load] = time + latency
                load += 1
            if there[first] > clock:
                clock = there[first]
            if there[second] > clock:
                clock = there[second]
            if space >= 0 and gone[space] > clock:
                clock = gone[space]
            clock += cycles
            done[number] = clock
            if leave >= 0:
                left = max(left, clock + drain)
                if self.one_port:  # a load that is ready earlier takes the port first
                    while load < len(cost) and before[load] <= number:
                        time = max(free[0], done[before[load]] + drain if before[load] >= 0 else 0)
                        if time >= left:
                            break
                        free[0] = port = max(time, port) + cost[load]
                        there[load] = port + latency
                        load += 1
                    left = port = max(left, port) + leave
                else:
                    left += leave
                gone.append(left + latency)
        done[-1] = max(done[-1], left + latency if self.leaving else 0)
        return done


@functools.lru_cache(maxsize=16)
def engines_for(p: Product, hardware: Hardware) -> ProductEngines:
    """Return the engines of one matrix multiplication, which remember what they have simulated."""
    return ProductEngines(p, hardware)


def whole_cycles(cycles: np.ndarray) -> np.ndarray:
    """Round cycles up, ignoring floating-point error just above a whole number."""
    rounded: np.ndarray = np.ceil(cycles * (1 - 1e-14)).astype(np.int64)
    return rounded


def _parts(size: int, step: int, piece: int) -> np.ndarray:
    """Return int64[steps, pieces]: the size of each piece of each step, 0 past the end."""
    starts = np.arange(0, size, step)[:, None] + np.arange(0, step, piece)
    ends = np.minimum(starts + piece, np.minimum(np.arange(0, size, step) + step, size)[:, None])
    parts: np.ndarray = np.maximum(0, ends - starts)
    return parts


def _shifted(last: np.ndarray, by: int) -> np.ndarray:
    """Return the rows shifted by `by`, -1 at the start."""
    before = np.full_like(last, -1)
    before[by:] = last[:-by]
    return before
