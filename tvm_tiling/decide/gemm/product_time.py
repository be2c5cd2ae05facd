"""Cycles of a walk over a product whose K is not split, piece by piece (pages 01 and 06).

Loads and the matrix engine overlap as far as data and buffers allow: a piece is multiplied when both its operands are
there, and comes when what lay in its place has been used for the last time. So all times follow one after the other in
the order of the program. Of many partitions the first three and the last are walked; those between take what the third
takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...hardware.description import Hardware
from ...hardware.machine import Machine
from .strips import streamed_cycles
from .traffic import Product, ceil_div

SIMULATED = 4  # partitions: until what one of them takes stays the same, and the last


@dataclass(frozen=True)
class PieceNest:
    """One operand stays a partition at a time while the other passes by.

        partitions of the operand that stays, `step` of its elements each
          groups of the one that passes by, `group` each, `held` times a group and depth in its buffer
            steps of k, `depth` each
              tiles of the partition, `tile` each
                pieces of the group, `piece` each: one instruction

    The last partition may be smaller; `backward` begins with it. `buffers` partitions are in the buffer of what stays;
    they come in tiles and steps of k. Either k or the partition with its groups is cut, so sums are finished in blocks
    of a tile and a piece, `sums` of which have room.
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
        """Products of a piece with a tile, as many as instructions."""
        kept, passing = (p.m, p.n) if self.keeps_a else (p.n, p.m)
        tiles = ceil_div(kept, self.step) * ceil_div(self.step, self.tile)
        return tiles * ceil_div(passing, self.group) * ceil_div(self.group, self.piece) * ceil_div(p.k, self.depth)


class ProductEngines:
    """What the pieces of one product cost on a machine."""

    def __init__(self, p: Product, hardware: Hardware) -> None:
        unit, machine = hardware.near_tile, Machine(hardware)
        assert unit is not None  # whoever has a Product has it from such a machine
        self.product, self.unit = p, unit
        external, token = machine.memory("external"), machine.issue.token_cycles
        self.latency, self.drain = external.latency + token, unit.drain + token
        # Sums of half precision go through the vector engine to be rounded, all others leave as they are.
        rounded = p.d_a == 2
        self.leaving = 1 / machine.vector.lanes if rounded else 0.0
        out_rate = machine.rate("external", "out")
        if out_rate is not None:
            self.leaving = max(self.leaving, (p.d_a if rounded else p.d_acc) / out_rate)
        self.one_port = external.ports == 1
        self.one_queue = self.one_port or machine.queue_of("load_a") == machine.queue_of("load_b")

    def products(self, rows: np.ndarray, columns: np.ndarray, depth: np.ndarray) -> np.ndarray:
        """Cycles of the matrix engine, 0 for nothing."""
        unit, p = self.unit, self.product
        if unit.partial_blocks == "padded":
            blocks = -(-rows // unit.block_m) * -(-columns // unit.block_n) * -(-depth // unit.block_k)
            cycles = blocks * unit.block_cycles(p.d_a)
        elif unit.partial_blocks == "streamed":
            cycles = streamed_cycles(unit, p.d_a, rows, np.array(1), columns, -(-depth // unit.block_k))
        else:
            cycles = _whole(rows * columns * depth / unit.macs(p.d_a))
        return np.where(cycles > 0, cycles + unit.fill, 0)

    def timed_instructions(self, nest: PieceNest) -> int:
        """Instructions that have to be looked at to know the cycles of a walk."""
        partitions = ceil_div(self.product.m if nest.keeps_a else self.product.n, nest.step)
        return nest.instructions(self.product) * min(partitions, SIMULATED) // partitions

    def cycles(self, nest: PieceNest) -> float:
        """Cycles from the first load until the last sums have left."""
        p = self.product
        kept, passing = (p.m, p.n) if nest.keeps_a else (p.n, p.m)
        partitions = ceil_div(kept, nest.step)
        left_out = max(0, partitions - SIMULATED)
        kept -= left_out * nest.step
        times = self._times(nest, kept, passing)
        if not left_out:
            return times[-1]
        each = len(times) // SIMULATED
        whole = 4 if nest.backward else 3  # the last whole partition
        return times[-1] + left_out * (times[whole * each - 1] - times[(whole - 1) * each - 1])

    def _times(self, nest: PieceNest, kept: int, passing: int) -> list[int]:
        """When each instruction of the matrix engine is over, its sums gone if they are the last."""
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
        # Where each load stands in its queue, and the instruction that was the last to use what lay in its place. Loads
        # that share a queue stand in the order of their first use.
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
                (_whole(of_kept * size_kept / bw_kept), _whole(of_passing * size_passing / bw_passing)),
                (before_kept, before_passing),
            )
        )
        queue = (0 * order if self.one_queue else order >= o * s * t).tolist()
        needs_kept = np.broadcast_to(place_kept.reshape(o, 1, s, t, 1), last.shape).reshape(-1).tolist()
        needs_passing = np.broadcast_to(place_passing.reshape(o, g, s, 1, u), last.shape).reshape(-1).tolist()
        leave = _whole(sizes[0] * sizes[1] * self.leaving)[:, :, 0].reshape(-1).tolist()
        return self._run(work.reshape(-1).tolist(), needs_kept, needs_passing, cost, before, queue, leave, nest.sums)

    def _run(
        self,
        work: list[int],
        needs_kept: list[int],
        needs_passing: list[int],
        cost: list[int],
        before: list[int],
        queue: list[int],
        leave: list[int],
        sums: int,
    ) -> list[int]:
        done, there, gone, free = [0] * len(work), [0] * len(cost), [0] * len(leave), [0, 0]
        latency, drain, steps = self.latency, self.drain, len(work) // len(leave)
        clock = load = left = port = 0  # `free` are the queues of loads, `left` the one of results
        for number, (kept, passing, cycles) in enumerate(zip(needs_kept, needs_passing, work, strict=True)):
            while load <= kept or load <= passing:
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
            if there[kept] > clock:
                clock = there[kept]
            if there[passing] > clock:
                clock = there[passing]
            if number % steps == 0 and number // steps >= sums and gone[number // steps - sums] > clock:
                clock = gone[number // steps - sums]
            clock += cycles
            done[number] = clock
            if (number + 1) % steps == 0:
                left = max(left, clock + drain)
                if self.one_port:  # which a load takes that is ready before
                    while load < len(cost) and before[load] <= number:
                        time = max(free[0], done[before[load]] + drain if before[load] >= 0 else 0)
                        if time >= left:
                            break
                        free[0] = port = max(time, port) + cost[load]
                        there[load] = port + latency
                        load += 1
                    left = port = max(left, port) + leave[number // steps]
                else:
                    left += leave[number // steps]
                gone[number // steps] = left + latency
        done[-1] = max(done[-1], left + latency if self.leaving else 0)
        return done


def _whole(cycles: np.ndarray) -> np.ndarray:
    """Cycles rounded up, a number that only rounding puts above a whole one not."""
    rounded: np.ndarray = np.ceil(cycles * (1 - 1e-14)).astype(np.int64)
    return rounded


def _parts(size: int, step: int, piece: int) -> np.ndarray:
    """int64[steps, pieces]: how much of each piece of each step there is, 0 behind the end."""
    starts = np.arange(0, size, step)[:, None] + np.arange(0, step, piece)
    ends = np.minimum(starts + piece, np.minimum(np.arange(0, size, step) + step, size)[:, None])
    parts: np.ndarray = np.maximum(0, ends - starts)
    return parts


def _shifted(last: np.ndarray, by: int) -> np.ndarray:
    """The rows `by` rows before, -1 where there are none."""
    before = np.full_like(last, -1)
    before[by:] = last[:-by]
    return before
