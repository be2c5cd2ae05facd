"""Simulated time of one instruction of the W-fold engine with its buffers, piece by piece.

An instruction is a list of pieces: the taps of one kernel row, for one block of channels, one block of P = Ncu*Ws
points and one block of output channels. Four parts of the engine process them in order, coupled by buffers:

    main unit     forms the rows of a piece one after another in the first buffer, waiting for free space; the rows of
                  a piece are freed together after its last step, because all taps slide over them
    weights       a row per step, repeated to fill its width, in the second buffer, a ring buffer; the rows of a tap (or
                  of part of it, if the buffer holds fewer) are freed together when the buffers slide
    multipliers   one step per cycle. A tap starts once the rows that it reads have arrived, the first tap of a piece
                  with Ncu rows; a step needs its row of weights, and a block of points needs space for its sums
    write-out     after its last step, a block is written in rows of results, and frees its space with the last one

Pieces repeat, and so, soon, does the state of the buffers relative to the last step. The simulation is a tree of
repeated bodies; each is simulated once per initial state, and when a state recurs, the remaining iterations are
extrapolated exactly. The tests compare it with a direct simulation, row by row and step by step.

Instructions follow each other in a queue: during the last steps of one, rows of the next are formed and results of the
previous one are written. `fill` is the part of an instruction that may overlap the previous one, `drain` the part that
may overlap the next, and `busy` the additional time of each further equal instruction.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ...hardware.w_fold import WFold
from ..gemm.traffic import ceil_div
from .fold_nest import FoldNest

FINEST = 1000  # rates are approximated by fractions with denominators up to this
NEVER = -(1 << 62)


class FoldTime(NamedTuple):
    """Cycles of an instruction: `fill` may overlap the previous one, `busy` occupies the engine, `drain` may overlap
    the next. A single instruction takes their sum."""

    fill: int
    busy: int
    drain: int


@functools.lru_cache(maxsize=1 << 13)
def fold_time(nest: FoldNest, leaves: bool) -> FoldTime:
    """Return the time of an instruction that computes all of `nest`. `leaves`: its results are stored; otherwise its
    sums stay in the buffer."""
    clock = _Clock.of(nest.unit)
    walk = _Walk(clock, nest, leaves)
    body = _Tree(clock, nest, leaves).instruction()
    first = walk.run(body, walk.start())
    out = ceil_div(walk.leaves_at(first), clock.cycle)
    busy = min(out, ceil_div(walk.later(body, first.state), clock.cycle))
    fill = max(0, first.steps // clock.cycle - busy)
    return FoldTime(fill, busy, out - fill - busy)


def image_cycles(nest: FoldNest) -> int:
    """Return the cycles of one image, computed by its instructions one after another."""
    unit = nest.unit
    clock, done = 0, 0
    for count, part, leaves in nest.instructions:
        time = fold_time(part, leaves)
        busy = max(time.busy, unit.interval)
        clock = max(clock, time.fill) + count * busy
        done = max(done, clock + time.drain + unit.latency)
    return done


@dataclass(frozen=True)
class _Clock:
    """Ticks of the simulation: per cycle, per row of each port, and per contiguous read of the input memory
    (`read`)."""

    cycle: int
    row: int
    weight: int
    result: int
    read: int

    @classmethod
    @functools.lru_cache(maxsize=64)
    def of(cls, unit: WFold) -> _Clock:
        rates = (unit.input_rows_per_cycle, unit.weight_rows_per_cycle, unit.output_rows_per_cycle)
        periods = [_period(rate) for rate in rates]
        reads = unit.input_reads_per_cycle
        periods.append(Fraction(0) if reads is None else _period(reads))
        cycle = math.lcm(*(period.denominator for period in periods))
        return cls(cycle, *(int(period * cycle) for period in periods))


def _period(rate: float) -> Fraction:
    """Return the cycles between two rows."""
    if rate >= 1:
        return 1 / Fraction(rate).limit_denominator(FINEST)
    return Fraction(1 / rate).limit_denominator(FINEST)


class _State(NamedTuple):
    """State of buffers and ports, in ticks after the end of the last step.

    `formed`: when the main unit has formed its last row; `places`: when the space of the next rows is free; `loaded`:
    when the last row of weights was loaded; `weight_places`: when their space is free; `out`: when the last row of
    results is written; `rooms`: when the space for the sums of the next blocks is free. The last two are used only if
    the space for sums is limited.
    """

    formed: int
    places: tuple[int, ...]
    loaded: int
    weight_places: tuple[int, ...]
    out: int
    rooms: tuple[int, ...]


class _Walked(NamedTuple):
    """Effect of a body: its final state, the ticks until the end of its last step, and, if the space for sums is
    unlimited, its effect on the end of the write-out: max(out + writing, start + last)."""

    state: _State
    steps: int
    writing: int
    last: int


def _then(first: _Walked, second: _Walked) -> _Walked:
    """Combine two bodies; `second` starts in the final state of `first`."""
    last = max(first.last + second.writing, first.steps + second.last)
    return _Walked(second.state, first.steps + second.steps, first.writing + second.writing, max(last, NEVER))


def _again(body: _Walked, times: int) -> _Walked:
    """Repeat a body whose final state equals its initial state."""
    last = body.last + (times - 1) * max(body.steps, body.writing)
    return _Walked(body.state, times * body.steps, times * body.writing, max(last, NEVER))


@dataclass(frozen=True, eq=False)
class _Piece:
    """`rows` formed in `ticks` each; the last row that each tap reads; sizes of the sets of weight rows of a tap."""

    rows: int
    ticks: int
    reads: tuple[int, ...]
    sets: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Begin:
    """A block of points requests space for its sums."""


@dataclass(frozen=True, eq=False)
class _Leave:
    """A block of points is written, in `ticks` ticks."""

    ticks: int


@dataclass(frozen=True, eq=False)
class _Loop:
    """A repeated sequence of bodies."""

    times: int
    bodies: tuple[_Node, ...]


_Node = _Piece | _Begin | _Leave | _Loop


class _Tree:
    """The loops of an instruction from outer to inner: blocks of output channels, rows, blocks of points, pieces of the
    kernel's width, kernel rows, blocks of channels."""

    def __init__(self, clock: _Clock, nest: FoldNest, leaves: bool) -> None:
        self.clock, self.nest, self.leaves = clock, nest, leaves

    def instruction(self) -> _Loop:
        """Return the whole instruction."""
        return _Loop(1, tuple(_Loop(count, (self._pass(own, pieces),)) for count, own, pieces in self.nest.pass_blocks))

    def _pass(self, own: int, pieces: int) -> _Loop:
        nest = self.nest
        whole, rest = divmod(nest.layer.wo, nest.points)
        sums = _Loop(1, tuple(self._sums(own)))
        row: list[_Node] = []
        if whole:
            row.append(_Loop(whole, self._block(sums, nest.points, pieces)))
        if rest:
            row.append(_Loop(1, self._block(sums, rest, pieces)))
        return _Loop(nest.layer.groups * nest.layer.rows, tuple(row))

    def _block(self, sums: _Loop, points: int, pieces: int) -> tuple[_Node, ...]:
        if not self.leaves:
            return (sums,)
        rows = ceil_div(points, self.nest.wso) * pieces
        return _Begin(), sums, _Leave(rows * self.clock.result)

    def _sums(self, own: int) -> list[_Node]:
        nest, clock = self.nest, self.clock
        found: list[_Node] = []
        for width in nest.kw_pieces:
            first, others = (max(clock.row, reads * clock.read) for reads in nest.row_reads(width))
            blocks: list[_Node] = [self._piece(width, own, first)]
            if nest.bci > 1:
                blocks.append(_Loop(nest.bci - 1, (self._piece(width, own, others),)))
            found.append(_Loop(nest.layer.taps_high, tuple(blocks)))
        return found

    def _piece(self, width: int, own: int, ticks: int) -> _Piece:
        nest = self.nest
        held = nest.unit.second_buffer_rows
        whole, rest = divmod(own, held)
        return _Piece(
            rows=nest.piece_rows(width),
            ticks=ticks,
            reads=tuple((nest.points + tap - 1) // nest.ws for tap in range(width)),
            sets=(held,) * whole + ((rest,) if rest else ()),
        )


class _Walk:
    """Simulates bodies and caches the effect of each for each initial state."""

    def __init__(self, clock: _Clock, nest: FoldNest, leaves: bool) -> None:
        self.clock, self.unit = clock, nest.unit
        self.rooms = nest.rooms if leaves else None
        self.known: dict[tuple[_Node, _State], _Walked] = {}

    def start(self) -> _State:
        """Return the state with empty buffers."""
        unit = self.unit
        return _State(0, (0,) * unit.first_buffer_rows, 0, (0,) * unit.second_buffer_rows, 0, (0,) * (self.rooms or 0))

    def leaves_at(self, walked: _Walked) -> int:
        """Return the ticks from the start, with nothing left to write before it, until the last result is written."""
        return max(walked.steps, walked.writing, walked.last, walked.steps + walked.state.out)

    def later(self, body: _Node, state: _State) -> int:
        """Return the largest number of ticks by which a further body ends later than the previous one."""
        most, seen = 0, set[_State]()
        while state not in seen:
            seen.add(state)
            walked = self.run(body, state)
            most = max(most, walked.steps, walked.writing, walked.steps + walked.state.out - state.out)
            state = walked.state
        return most

    def run(self, node: _Node, state: _State) -> _Walked:
        """Return the effect of a body in a state."""
        key = node, state
        found = self.known.get(key)
        if found is None:
            if isinstance(node, _Loop):
                found = self._loop(node, state)
            elif isinstance(node, _Piece):
                found = self._piece(node, state)
            elif isinstance(node, _Begin):
                found = self._begin(state)
            else:
                found = self._leave(node, state)
            self.known[key] = found
        return found

    def _loop(self, loop: _Loop, state: _State) -> _Walked:
        total = _Walked(state, 0, 0, NEVER)
        seen: dict[_State, int] = {}
        done: list[_Walked] = []
        while len(done) < loop.times:
            if total.state in seen:
                period = done[seen[total.state] :]
                times, rest = divmod(loop.times - len(done), len(period))
                if times:
                    total = _then(total, _again(functools.reduce(_then, period), times))
                return functools.reduce(_then, period[:rest], total)
            seen[total.state] = len(done)
            body = _Walked(total.state, 0, 0, NEVER)
            for node in loop.bodies:
                body = _then(body, self.run(node, body.state))
            done.append(body)
            total = _then(total, body)
        return total

    def _piece(self, piece: _Piece, state: _State) -> _Walked:
        cycle, weight = self.clock.cycle, self.clock.weight
        formed, there = state.formed, []
        for place in state.places[: piece.rows]:
            formed = max(formed, place) + piece.ticks
            there.append(formed)
        now, loaded, places = 0, state.loaded, list(state.weight_places)
        for read in piece.reads:
            now = max(now, there[read])
            for size in piece.sets:
                for place in places[:size]:
                    loaded = (loaded if loaded > place else place) + weight
                    now = loaded if loaded > now else now
                    now += -now % cycle + cycle
                places[:size] = []
                places.extend([now] * size)
        free = (*state.places[piece.rows :], *((now,) * piece.rows))
        return self._after(now, _State(formed, free, loaded, tuple(places), state.out, state.rooms))

    def _begin(self, state: _State) -> _Walked:
        if not state.rooms:
            return _Walked(state, 0, 0, NEVER)
        cycle = self.clock.cycle
        now = -(-max(0, state.rooms[0]) // cycle) * cycle
        return self._after(now, state._replace(rooms=state.rooms[1:]))

    def _leave(self, leave: _Leave, state: _State) -> _Walked:
        if self.rooms is None:
            return _Walked(state, 0, leave.ticks, leave.ticks)
        out = max(state.out, 0) + leave.ticks
        return _Walked(state._replace(out=out, rooms=(*state.rooms, out)), 0, 0, NEVER)

    def _after(self, now: int, state: _State) -> _Walked:
        """Return the state relative to the end of the last step; times that can no longer cause delays become zero."""
        formed, loaded = state.formed, state.loaded
        return _Walked(
            _State(
                formed - now,
                tuple(max(place, formed) - now for place in state.places),
                loaded - now,
                tuple(max(place, loaded) - now for place in state.weight_places),
                max(state.out - now, 0),
                tuple(max(room - now, 0) for room in state.rooms),
            ),
            now,
            0,
            NEVER,
        )
