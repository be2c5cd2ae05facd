"""A recurrent layer in one kernel for the whole sequence (column-wise matrix-vector multiplication, design page 04).

step                                        or: parallel task = share of the tiles of sequences
  parallel task = share of the units            step
    group of vectors of units                     group of vectors of units
      sequences, a register tile at a time          own sequences, a register tile at a time
        columns of the recurrent weights times the state; the projected inputs are added
        gates and state, in registers; the new state is stored

Packed weights: group of units, column, vector of units, gate, lane. The state is double-buffered, so that a step reads
one copy and writes the other. A GRU whose reset gate multiplies h has two such passes per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.rnn.recurrence import Recurrence, RecurrenceTiling, decide_recurrence
from ..hardware.cpu import CACHE_LINE, Cpu
from ..lowering.arithmetic import clamped
from ..lowering.dot import as_held, from_held
from ..lowering.gate_math import Value, falling, rising
from ..lowering.loops import by_edge, share, when
from ..lowering.prefetch import ask
from ..lowering.prim_func import ScheduledOperator, root, write_function
from ..lowering.recurrent_loops import declare
from ..lowering.registers import counted, register, registers
from ..lowering.samples import is_open
from ..match.recurrent import at_sample
from ..operand_types import held_as

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
KIND = "float32"
LINE = CACHE_LINE // 4  # elements


@dataclass(frozen=True)
class _Panel:
    """The packed weights of one pass: its gates, and their offset."""

    gates: str
    start: int


@dataclass(frozen=True)
class _Place:
    """A vector of units of one sequence: `width` units starting at `unit`, sequence `row`."""

    row: Index
    unit: Index
    width: int


class RecurrentEmitter:
    """Emits the recurrence of one layer. `buffers` by name, flat: "projected", "weights", "h0", "y", "h", and depending
    on the cell "c0", "c", "bias", "peepholes", "lengths". Steps and sequences may be dynamic."""

    def __init__(self, recurrence: Recurrence, tiling: RecurrenceTiling, buffers: Mapping[str, tirx.Var]) -> None:
        self.r, self.tiling, self.buffers = recurrence, tiling, buffers
        self.lanes = tiling.lanes
        self.units = tiling.blocks * tiling.lanes
        self.full, self.tail = divmod(recurrence.hidden, self.units)
        self.groups = self.full + (self.tail > 0)
        self.padded = -(-recurrence.hidden // self.lanes) * self.lanes
        panels, start = [], 0
        for gates in recurrence.phases:
            panels.append(_Panel(gates, start))
            start += len(gates) * self.padded * recurrence.hidden
        self.any_batch = is_open(recurrence.batch)
        self.size = recurrence.batch * recurrence.hidden  # elements of a state
        self.panels, self.packed_shape, self.packed_dtype = tuple(panels), (start,), held_as(recurrence.stored)

    # ---- whole sequence ---------------------------------------------------------------------------------------------

    def emit(self, packed: tirx.Var | None) -> None:
        r, size = self.r, self.size
        if packed is None:
            packed = T.alloc_buffer(self.packed_shape, self.packed_dtype)
            self.pack_whole(packed)
        self.weights = packed
        self.state = T.alloc_buffer((2 * size,), KIND)
        if self.tiling.rows > 1:
            self.scratch = T.alloc_buffer((self.tiling.threads * self.tiling.rows * self.tiling.vp,), KIND)
        if len(r.phases) > 1:
            self.reset, self.update = T.alloc_buffer((size,), KIND), T.alloc_buffer((size,), KIND)
        if self.tiling.split == "sequences":
            self.each_core_its_sequences()
            return
        self.take_state(0, self.r.batch)
        with T.serial(0, r.steps) as step:
            self.at_step(step)
            for panel in self.panels:
                self.every_group(panel)
        self.give_state(0, self.r.batch)

    def each_core_its_sequences(self) -> None:
        """Emit all steps of each core's sequences in whole tiles, without synchronising the cores."""
        tiles, _, _ = self.heights()
        with T.parallel(0, self.tiling.threads) as task:
            self.task = task
            first, end = share(tiles, task, self.tiling.threads)
            start, stop = (counted(tirx.floordiv(tile * self.r.batch, tiles), 0) for tile in (first, end))
            self.take_state(start, stop)
            with T.serial(0, self.r.steps) as step:
                self.at_step(step)
                for panel in self.panels:
                    with T.serial(0, self.groups) as turn:
                        group = self.turned(turn, self.groups)
                        own_tiles = partial(self.own_tiles, panel, group, (first, end))
                        by_edge(_index(group), self.full, self.tail, self.units, own_tiles)
            self.give_state(start, stop)

    def own_tiles(self, panel: _Panel, group: Index, own: tuple[Index, Index], units: int) -> None:
        """Emit one core's `own` tiles, from the first up to the second of two numbers, of one group."""
        first, end = own
        tiles, height, taller = self.heights()
        with T.serial(0, end - first) as turn:
            start, stop = share(self.r.batch, first + turn, tiles)
            row0 = counted(start, 0)
            one_more = stop - row0 - height if taller else 0
            for number, extent in ((one_more, height + 1), (1 - one_more, height)):
                if taller or extent == height:
                    with T.serial(0, number):
                        self.tile(panel, group, units, row0, extent)

    def heights(self) -> tuple[int, int, int]:
        """Return (tiles of sequences, sequences of each, number of tiles with one more): a small remainder would wait
        for weights."""
        tiles = -(-self.r.batch // self.tiling.rows)
        height, taller = divmod(self.r.batch, tiles)
        return tiles, height, taller

    def at_step(self, step: Expr) -> None:
        self.step = step
        self.place = self.r.steps - 1 - step if self.r.reverse else step
        self.now = tirx.floormod(step, 2) * self.size
        self.next = self.size - self.now

    def turned(self, turn: Expr, count: Index) -> Expr:
        """Return `turn`, counted from the end of range(count) in every other step."""
        return turn + tirx.floormod(self.step, 2) * (count - 1 - 2 * turn) if self.tiling.turning else turn

    def take_state(self, start: Index, stop: Index) -> None:
        """Copy the initial state of the sequences from `start` up to `stop`."""
        self.copy(self.buffers["h0"], 0, self.state, 0, start, stop)
        if self.r.cell == "lstm":
            self.copy(self.buffers["c0"], 0, self.buffers["c"], 0, start, stop)

    def give_state(self, start: Index, stop: Index) -> None:
        self.copy(self.state, self.r.steps % 2 * self.size, self.buffers["h"], 0, start, stop)

    def copy(self, source: tirx.Var, offset: Index, target: tirx.Var, to: Index, start: Index, stop: Index) -> None:
        """Copy the elements of the sequences from `start` up to `stop`."""
        first, size = start * self.r.hidden, (stop - start) * self.r.hidden
        whole, rest = size // self.lanes, size % self.lanes
        if not isinstance(whole, int) or whole:
            with T.serial(0, whole) as v, T.vectorized(0, self.lanes) as lane:
                at = first + v * self.lanes + lane
                T.buffer_store(target, source[offset + at], [to + at])
        if not isinstance(rest, int) or rest:
            with T.serial(0, rest) as i:
                at = first + whole * self.lanes + i
                T.buffer_store(target, source[offset + at], [to + at])

    def every_group(self, panel: _Panel) -> None:
        """Emit the groups of units: each core its share, in reverse order in every other step."""
        threads = self.tiling.threads
        with T.parallel(0, threads) if threads > 1 else T.serial(0, 1) as task:
            self.task = task
            if threads > 1:
                self.prefetch_state(panel)
            first, end = share(self.groups, task, threads)
            count = end - first
            with T.serial(0, count) as turn:
                group = first + self.turned(turn, count)
                by_edge(_index(group), self.full, self.tail, self.units, lambda units: self.group(panel, group, units))

    def prefetch_state(self, panel: _Panel) -> None:
        """Prefetch the whole state: other cores have just written their parts of it, and each cross-core cache-line
        transfer takes as long as 300 multiply-adds."""
        source, offset = self.source(panel)
        with T.serial(0, -(-self.size // LINE)) as line:
            ask(source, [offset + line * LINE], cache=1)

    def group(self, panel: _Panel, group: Index, units: int) -> None:
        """Emit all sequences, a tile at a time."""
        if self.any_batch:
            self.any_tiles(panel, group, units)
            return
        tiles, rows, larger = self.heights()
        start = 0
        for extent, count in ((rows + 1, larger), (rows, tiles - larger)):
            if count == 1:
                self.tile(panel, group, units, start, extent)
            elif count:
                with T.serial(0, count) as tile:
                    self.tile(panel, group, units, start + tile * extent, extent)
            start += extent * count

    def any_tiles(self, panel: _Panel, group: Index, units: int) -> None:
        """Emit the same for a dynamic number of sequences: a tile of each height, of which at most two heights are
        used."""
        batch = counted(self.r.batch, 0)
        tiles = counted(tirx.ceildiv(batch, self.tiling.rows), 0)
        height = counted(tirx.ceildiv(batch, tirx.max(tiles, 1)), 0)
        taller = counted(batch - tiles * (height - 1), 0)
        with T.serial(0, tiles) as tile:
            rows = counted(height - tirx.Cast("int64", tile >= taller), 0)
            row0 = counted(tile * height - tirx.max(tile - taller, 0), 0)
            for number in range(1, self.tiling.rows + 1):
                with when(tirx.EQ(rows, tirx.const(number, "int64"))):
                    self.tile(panel, group, units, row0, number)

    def columns_at_once(self, rows: int) -> int:
        lower = self.tiling.lower or ()
        return lower[rows - 1] if rows <= len(lower) else self.tiling.ep

    # ---- matrix multiplication --------------------------------------------------------------------------------------

    def tile(self, panel: _Panel, group: Index, units: int, row0: Index, rows: int) -> None:
        """Emit `rows` sequences of one group: sums, then gates and state."""
        lanes, gates = self.lanes, panel.gates
        widths = [min(lanes, units - at) for at in range(0, units, lanes)]
        vectors = [(block, gate) for block in range(len(widths)) for gate in gates]
        first = _index(group) * self.units

        def place(row: Index, block: int) -> _Place:
            return _Place(row0 + row, first + block * lanes, widths[block])

        sums = [[registers(len(vectors), lanes, KIND) for _ in range(rows)] for _ in range(self.columns_at_once(rows))]
        for row in range(rows):
            for number, (block, gate) in enumerate(vectors):
                self.prefetch_projected(place(row, block), gate)
                for some in sums:
                    T.buffer_store(some[row][number], _zeros(lanes), [T.ramp(0, 1, lanes)])
        base = panel.start + first * len(gates) * self.r.hidden
        self.columns(panel, sums, row0, base, len(vectors))
        whole = T.ramp(0, 1, lanes)
        for row in range(rows):
            for others in sums[1:]:
                for total, other in zip(sums[0][row], others[row], strict=True):
                    T.buffer_store(total, total[whole] + other[whole], [whole])
        if rows == 1:
            for block in range(len(widths)):
                found = {gate: sums[0][0][block * len(gates) + n] for n, gate in enumerate(gates)}
                self.add_start(place(0, block), found)
                self.behind(panel, place(0, block), found)
            return
        # Several sequences share the code of the gates: their sums go through memory in L1.
        start = self.task * self.tiling.rows * self.tiling.vp
        size = len(vectors) * lanes
        for row in range(rows):
            for number, total in enumerate(sums[0][row]):
                T.buffer_store(self.scratch, total[whole], [T.ramp(start + row * size + number * lanes, 1, lanes)])
        with T.serial(0, rows) as row:
            for block in range(len(widths)):
                found = {gate: register(lanes, KIND) for gate in gates}
                for number, total in enumerate(found.values(), start=block * len(gates)):
                    place_of_sums = T.ramp(start + row * size + number * lanes, 1, lanes)
                    T.buffer_store(total, self.scratch[place_of_sums], [whole])
                self.add_start(place(row, block), found)
                self.behind(panel, place(row, block), found)

    def prefetch_projected(self, at: _Place, gate: str) -> None:
        """Prefetch the projected inputs, which are in a distant cache, before the matrix multiplication; they are added
        after it. Adding them at the start delayed every tile, by a tenth of the total time for 8 sequences of 256
        units.
        """
        row = (self.place * self.r.batch + at.row) * self.r.gates + self.r.order.index(gate)
        first = row * self.r.hidden + at.unit
        for element in (first, first + at.width - 1) if self.r.hidden % self.lanes else (first,):
            ask(self.buffers["projected"], [element], cache=1)

    def add_start(self, at: _Place, sums: Mapping[str, tirx.Var]) -> None:
        """Add to each sum its projected input, or the bias of the part that the reset gate multiplies."""
        for gate, total in sums.items():
            with T.vectorized(0, at.width) as lane:
                biased = gate == "n" and self.r.reset_after
                start = self.buffers["bias"][at.unit + lane] if biased else self.projected(at, gate, lane)
                T.buffer_store(total, total[lane] + start, [lane])

    def projected(self, at: _Place, gate: str, lane: Index) -> Expr:
        r = self.r
        row = (self.place * r.batch + at.row) * r.gates + r.order.index(gate)
        return self.buffers["projected"][row * r.hidden + at.unit + lane]

    def source(self, panel: _Panel) -> tuple[tirx.Var, Index]:
        """Return the vector by which the weights are multiplied, and its offset."""
        second = len(self.panels) > 1 and panel is self.panels[-1]
        return (self.reset, 0) if second else (self.state, self.now)

    def columns(self, panel: _Panel, sums: list[list[list[tirx.Var]]], row0: Index, base: Expr, vectors: int) -> None:
        """Emit all columns of the weights, `ep` at a time, in alternating directions."""
        hidden, lanes, ep = self.r.hidden, self.lanes, len(sums)
        source, offset = self.source(panel)

        def column(into: list[list[tirx.Var]], k: Index) -> None:
            for row, totals in enumerate(into):
                for number, total in enumerate(totals):
                    with T.vectorized(0, lanes) as lane:
                        weight = from_held(self.weights[base + (k * vectors + number) * lanes + lane], self.r.stored)
                        product = source[offset + (row0 + row) * hidden + k] * weight
                        T.buffer_store(total, total[lane] + product, [lane])

        whole, rest = divmod(hidden, ep)
        with T.serial(0, whole) as number:
            block = self.turned(number, whole)
            for turn in range(ep):
                column(sums[turn], block * ep + turn)
        for turn in range(rest):
            column(sums[turn], whole * ep + turn)

    # ---- gates and state --------------------------------------------------------------------------------------------

    def behind(self, panel: _Panel, at: _Place, sums: dict[str, tirx.Var]) -> None:
        if self.r.cell == "lstm":
            self.lstm(at, sums)
        elif self.r.cell == "rnn":
            self.rnn(at, sums["h"])
        elif self.r.reset_after:
            self.gru(at, sums)
        elif panel.gates == "rz":
            self.gru_gates(at, sums)
        else:
            self.gru_candidate(at, sums["n"])

    def lstm(self, at: _Place, sums: dict[str, tirx.Var]) -> None:
        cell, keep = self.buffers["c"], partial(self.kept, at)
        own = at.row * self.r.hidden + at.unit

        def total(gate: str, state: tirx.Var) -> Value:
            if not self.r.peepholes:
                return lambda lane: self.clipped(sums[gate][lane])
            weights, start = self.buffers["peepholes"], "iof".index(gate) * self.r.hidden + at.unit
            return lambda lane: self.clipped(sums[gate][lane] + weights[start + lane] * state[lane])

        before = keep(lambda lane: cell[own + lane])
        i, f = falling(keep, total("i", before)), falling(keep, total("f", before))
        g = rising(keep, lambda lane: self.clipped(sums["g"][lane]))
        c = keep(lambda lane: before[lane] / (1.0 + f[lane]) + g[lane] / ((1.0 + i[lane]) * (g[lane] + 2.0)))
        o, through = falling(keep, total("o", c)), rising(keep, lambda lane: c[lane])
        with T.vectorized(0, at.width) as lane:
            T.buffer_store(cell, self.alive(at, c[lane], before[lane]), [own + lane])
        self.new_state(at, keep(lambda lane: through[lane] / ((1.0 + o[lane]) * (through[lane] + 2.0))))

    def gru(self, at: _Place, sums: dict[str, tirx.Var]) -> None:
        keep = partial(self.kept, at)
        r, z = (falling(keep, lambda lane, total=sums[gate]: self.clipped(total[lane])) for gate in "rz")
        inner = keep(lambda lane: self.projected(at, "n", lane) + sums["n"][lane] / (1.0 + r[lane]))
        self.blend(at, inner, lambda lane: 1.0 + z[lane])

    def gru_gates(self, at: _Place, sums: dict[str, tirx.Var]) -> None:
        own, keep = at.row * self.r.hidden + at.unit, partial(self.kept, at)
        r, z = (falling(keep, lambda lane, total=sums[gate]: self.clipped(total[lane])) for gate in "rz")
        with T.vectorized(0, at.width) as lane:
            T.buffer_store(self.reset, self.state[self.now + own + lane] / (1.0 + r[lane]), [own + lane])
        with T.vectorized(0, at.width) as lane:
            T.buffer_store(self.update, 1.0 + z[lane], [own + lane])

    def gru_candidate(self, at: _Place, total: tirx.Var) -> None:
        own = at.row * self.r.hidden + at.unit
        self.blend(at, total, lambda lane: self.update[own + lane])

    def blend(self, at: _Place, inner: tirx.Var, z: Callable[[Expr], Expr]) -> None:
        """Emit h' = n + (h - n) / z, n = tanh(inner); `z` is the reciprocal of the update gate."""
        own, keep = self.now + at.row * self.r.hidden + at.unit, partial(self.kept, at)
        m = rising(keep, lambda lane: self.clipped(inner[lane]))
        n = keep(lambda lane: m[lane] / (m[lane] + 2.0))
        self.new_state(at, keep(lambda lane: n[lane] + (self.state[own + lane] - n[lane]) / z(lane)))

    def rnn(self, at: _Place, total: tirx.Var) -> None:
        keep = partial(self.kept, at)
        if self.r.activation == "relu":
            self.new_state(at, keep(lambda lane: tirx.max(self.clipped(total[lane]), tirx.const(0.0, KIND))))
            return
        m = rising(keep, lambda lane: self.clipped(total[lane]))
        self.new_state(at, keep(lambda lane: m[lane] / (m[lane] + 2.0)))

    def clipped(self, total: Expr) -> Expr:
        return total if self.r.clip is None else clamped(total, -self.r.clip, self.r.clip)

    def new_state(self, at: _Place, value: tirx.Var) -> None:
        """Store the value in the state and the output; for a finished sequence the state is unchanged and the output is
        0."""
        own = at.row * self.r.hidden + at.unit
        with T.vectorized(0, at.width) as lane:
            before = self.state[self.now + own + lane] if self.r.lengths else None
            T.buffer_store(self.state, self.alive(at, value[lane], before), [self.next + own + lane])
        out = (self.place * self.r.batch + at.row) * self.r.hidden + at.unit
        with T.vectorized(0, at.width) as lane:
            T.buffer_store(self.buffers["y"], self.alive(at, value[lane], tirx.const(0.0, KIND)), [out + lane])

    def alive(self, at: _Place, value: Expr, otherwise: Expr | None) -> Expr:
        if not self.r.lengths or otherwise is None:
            return value
        return tirx.Select(self.place < self.buffers["lengths"][at.row], value, otherwise)

    def kept(self, at: _Place, value: Callable[[Expr], Expr]) -> tirx.Var:
        """Return a vector of values in a register."""
        held = register(self.lanes, KIND)
        with T.vectorized(0, at.width) as lane:
            T.buffer_store(held, value(lane), [lane])
        return held

    # ---- packing ----------------------------------------------------------------------------------------------------

    def pack_whole(self, packed: tirx.Var) -> None:
        """Pack the weights of every group consecutively, in reading order; lanes without a unit are 0."""
        with T.parallel(0, self.groups) if self.groups > 1 else T.serial(0, 1) as group:
            for panel in self.panels:
                by_edge(_index(group), self.full, self.tail, self.units,
                        lambda units, p=panel: self.pack_group(packed, p, group, units))  # fmt: skip

    def pack_group(self, packed: tirx.Var, panel: _Panel, group: Index, units: int) -> None:
        lanes, hidden, gates = self.lanes, self.r.hidden, panel.gates
        blocks, first = -(-units // lanes), _index(group) * self.units
        base = panel.start + first * len(gates) * hidden
        with T.serial(0, hidden) as k:
            for block in range(blocks):
                for number, gate in enumerate(gates):
                    row = self.r.order.index(gate) * hidden + first + block * lanes
                    to = base + ((k * blocks + block) * len(gates) + number) * lanes
                    width = min(lanes, units - block * lanes)
                    with T.serial(0, width) as lane:
                        weight = as_held(self.buffers["weights"][(row + lane) * hidden + k])
                        T.buffer_store(packed, weight, [to + lane])
                    if width < lanes:
                        with T.serial(0, lanes - width) as lane:
                            T.buffer_store(packed, tirx.const(0, self.packed_dtype), [to + width + lane])


def _zeros(lanes: int) -> Expr:
    return T.broadcast(tirx.const(0.0, KIND), lanes)


def _index(value: Index) -> Expr:
    return value if isinstance(value, tirx.Expr) else tirx.IntImm("int32", value)


def schedule_recurrence(
    recurrence: Recurrence,
    name: str,
    cpu: Cpu,
    *,
    prepacked: bool,
    tiling: RecurrenceTiling | None = None,
    deterministic: bool = False,
) -> ScheduledOperator:
    """Return the kernel of a recurrence; its parameters are those of the recurrence in order.

    prepacked: the weights are passed in packed form, made by the function that is returned with the kernel.
    deterministic: as in decide_recurrence().
    """
    chosen = tiling or decide_recurrence(
        at_sample(recurrence), cpu, any_batch=is_open(recurrence.batch), deterministic=deterministic
    )
    emitter = RecurrentEmitter(recurrence, chosen, {})
    shape, dtype = emitter.packed_shape, emitter.packed_dtype

    def main() -> None:
        buffers = declare(recurrence, shape if prepacked else None)
        with root():
            flat = {called: buffer.view(-1) for called, buffer in buffers.items()}
            RecurrentEmitter(recurrence, chosen, flat).emit(flat["weights"] if prepacked else None)

    def pack() -> None:
        weights = T.arg("weights", T.Buffer(recurrence.inputs["weights"], recurrence.stored))
        packed = T.arg("weights_packed", T.Buffer(shape, dtype))
        with root():
            RecurrentEmitter(recurrence, chosen, {"weights": weights.view(-1)}).pack_whole(packed)

    made = write_function(name, chosen, main)
    if not prepacked:
        return ScheduledOperator(chosen, made)
    return ScheduledOperator(chosen, made, write_function(f"{name}_pack", None, pack), shape, dtype)
