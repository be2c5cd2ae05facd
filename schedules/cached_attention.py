"""Attention of new rows over a cache, in one kernel for any number of rows and keys.

    parallel task = (batch, group of heads, share of rows)
      one row:    its heads together: scores key by key, from keys in place; softmax; values
      more rows:  keys transposed into panels; then tiles of rows, adjacent positions together:
                    scores, up to the last key that the tile's last row sees; softmax of each row; values

Rows are numbered by position first, then by head, so that a tile's rows see nearly the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.vector.cached_attention import (
    MOST_SHARED,
    CachedAttention,
    CachedAttentionTiling,
    decide_cached_attention,
)
from ..hardware.description import Cpu
from ..lowering.described import declare, final_score
from ..lowering.lane_sums import lane_sums
from ..lowering.lane_total import lane_total
from ..lowering.loops import share, when
from ..lowering.prim_func import ScheduledOperator, root, write_function
from ..lowering.registers import in_register, register, small_buffer
from ..lowering.samples import is_open
from ..lowering.softmax_weight import softmax_weight
from ..lowering.transpose import transpose
from ..lowering.vector_math import with_vector_math
from ..match.described import at_sample

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
KIND = "float32"
LOWEST = -3.0e38
MOST_SUMS = 24  # vectors of sums that a tile of values keeps in registers


class _Emitter:
    def __init__(self, sizes: CachedAttention, tiling: CachedAttentionTiling, buffers: Mapping[str, tirx.Var]) -> None:
        self.a, self.tiling, self.buffers = sizes, tiling, buffers
        self.lanes, self.width, self.shared = tiling.lanes, sizes.width, sizes.shared
        self.whole_vectors, self.rest = divmod(self.width, self.lanes)
        self.across = self.whole_vectors + (self.rest > 0)

    # ---- loop nest --------------------------------------------------------------------------------------------------

    def emit(self) -> None:
        a = self.a
        self.every, self.length = in_register(a.every), in_register(a.length)
        groups: Index = a.batch * a.groups
        shares = self.tiling.shares
        with T.parallel(0, groups * shares) as task:
            # In registers of the task: values of the enclosing function would be reloaded after every store.
            self.every, self.length = in_register(self.every), in_register(self.length)
            self.padded = in_register(self.parts(self.every, self.tiling.panel) * self.tiling.panel)
            place = tirx.Cast("int64", tirx.floordiv(task, shares))
            batch, group = tirx.floordiv(place, a.groups), tirx.floormod(place, a.groups)
            self.before = in_register(tirx.Cast("int64", self.buffers["before"][batch]))
            self.cache = (batch * a.groups + group) * self.every * self.width
            self.batch, self.group = batch, group
            part = tirx.Cast("int64", tirx.floormod(task, shares))
            room = self.shared if self.shared <= MOST_SHARED else 0
            # Computed from the sizes directly: registers would be defined after the allocations, which TVM moves to the
            # front.
            self.room = tirx.max(self.parts(a.every, self.tiling.panel) * self.tiling.panel, 1)
            scores = T.alloc_buffer((self.room * max(room, self.tiling.rows),), KIND)
            one = is_open(self.length) or int(self.length) == 1
            more = is_open(self.length) or int(self.length) > 1
            if room and one:
                with when(self.both(tirx.EQ(self.number(self.length), self.number(1)), tirx.EQ(part, self.number(0)))):
                    self.one_place(scores)
            if more or not room:
                condition = self.number(self.length) > 1 if room and one else None
                with when(condition) if condition is not None else T.serial(0, 1):
                    self.many_places(scores, part)

    @staticmethod
    def both(*conditions: Expr) -> Expr:
        return tirx.all(*conditions)

    @staticmethod
    def number(value: Index) -> Expr:
        return tirx.const(value, "int64") if isinstance(value, int) else value

    @staticmethod
    def parts(value: Index, size: int) -> Index:
        """Return the number of parts of at most `size`."""
        return tirx.floordiv(value + (size - 1), size) if is_open(value) else -(-int(value) // size)

    def end_of(self, place: Index) -> Expr:
        """Return the end of the keys that the row at `place` sees."""
        return tirx.min(self.before + place + 1, self.number(self.every))

    def first_of(self, end: Expr) -> Index:
        """Return the first key seen by a row whose keys end at `end`."""
        return in_register(tirx.max(end - self.a.window, 0)) if self.a.window else 0

    # ---- vectors ----------------------------------------------------------------------------------------------------

    @property
    def whole(self) -> Expr:
        return T.ramp(0, 1, self.lanes)

    def spread(self, value: Expr) -> Expr:
        return T.broadcast(value, self.lanes)

    def cleared(self, count: int) -> list[tirx.Var]:
        found = [register(self.lanes, KIND) for _ in range(count)]
        for each in found:
            T.buffer_store(each, self.spread(tirx.const(0.0, KIND)), [self.whole])
        return found

    def kept(self, value: Expr) -> Expr:
        held = register(self.lanes, KIND)
        T.buffer_store(held, value, [self.whole])
        return held[self.whole]

    def part_of_row(self, buffer: tirx.Var, start: Index, v: int) -> Expr:
        """Return vector v of a row of `width` elements, with zeros after its end."""
        if v < self.whole_vectors:
            return self.kept(buffer[T.ramp(start + v * self.lanes, 1, self.lanes)])
        held = self.cleared(1)[0]
        with T.vectorized(0, self.rest) as lane:
            T.buffer_store(held, buffer[start + v * self.lanes + lane], [lane])
        return held[self.whole]

    def query(self, row: Index) -> Index:
        """Return the offset of a row's query: rows at the same position are heads that share keys."""
        a = self.a
        place, head = tirx.floordiv(row, self.shared), tirx.floormod(row, self.shared)
        return ((self.batch * self.length + place) * a.heads + self.group * self.shared + head) * self.width

    # ---- one row of each head ---------------------------------------------------------------------------------------

    def one_place(self, scores: tirx.Var) -> None:
        """Emit the heads of the only position, with keys and values read in place."""
        end = in_register(self.end_of(0))
        first = self.first_of(end)
        count = in_register(end - first)
        lanes, last = self.lanes, end - 1
        with T.serial(0, self.parts(count, lanes)) as turn:
            start = first + turn * lanes
            rows = [self.cache + tirx.min(start + key, last) * self.width for key in range(lanes)]
            rows = [in_register(row) for row in rows]
            for head in range(self.shared):
                query = self.query(head)
                q = [self.part_of_row(self.buffers["q"], query, v) for v in range(self.across)]
                sums = self.cleared(lanes)
                for key in range(lanes):
                    for v in range(self.across):
                        value = self.part_of_row(self.buffers["keys"], rows[key], v)
                        T.buffer_store(sums[key], sums[key][self.whole] + q[v] * value, [self.whole])
                total = lane_sums(sums, lanes, lanes, KIND, True)[0].register if lanes > 1 else sums[0]
                self.keep_scores(scores, head, turn, total[self.whole])
        inverses = small_buffer((self.shared,), KIND)
        with T.serial(0, self.shared) as head:
            T.buffer_store(inverses, self.softmax(scores, head * self.padded, count), [head])
        self.values_of_one(scores, inverses, first, count)

    def keep_scores(self, scores: tirx.Var, row: int, turn: Index, value: Expr) -> None:
        place = row * self.padded + turn * self.lanes
        final = self.each(lambda score: final_score(self.a, score), value)
        T.buffer_store(scores, final, [T.ramp(place, 1, self.lanes)])

    def each(self, function: Callable[[Expr], Expr], value: Expr) -> Expr:
        """Return a function applied to every lane, in a register. The function is expanded lane by lane; on a vector it
        would be a call."""
        given, held = register(self.lanes, KIND), register(self.lanes, KIND)
        T.buffer_store(given, value, [self.whole])
        with T.vectorized(0, self.lanes) as lane:
            T.buffer_store(held, with_vector_math(function(given[lane])), [lane])
        return held[self.whole]

    def softmax(self, scores: tirx.Var, base: Index, count: Index, skipped: Index = 0) -> Expr:
        """Replace scores by exp of their difference to the largest, and return 1 / their sum. Scores before `skipped`
        and from `count` on become 0."""
        lanes = self.lanes
        vectors = self.parts(count, lanes)
        largest = register(lanes, KIND)
        T.buffer_store(largest, self.spread(tirx.const(LOWEST, KIND)), [self.whole])

        def seen(number: Index, value: Expr, otherwise: float) -> Expr:
            place = T.ramp(tirx.Cast("int32", number * lanes), 1, lanes)
            inside = place < self.spread(tirx.Cast("int32", self.number(count)))
            if not isinstance(skipped, int):
                inside = tirx.all(inside, place >= self.spread(tirx.Cast("int32", skipped)))
            return tirx.Select(inside, value, self.spread(tirx.const(otherwise, KIND)))

        def vector(number: Index) -> Expr:
            return scores[T.ramp(base + number * lanes, 1, lanes)]

        with T.serial(0, vectors) as number:
            T.buffer_store(largest, tirx.max(largest[self.whole], seen(number, vector(number), LOWEST)), [self.whole])
        most = lane_total(tirx.max, [largest], lanes, KIND)
        total = self.cleared(1)[0]
        with T.serial(0, vectors) as number:
            away = seen(number, vector(number), LOWEST) - self.spread(most[0])
            value = self.kept(seen(number, self.each(softmax_weight, away), 0.0))
            T.buffer_store(scores, value, [T.ramp(base + number * lanes, 1, lanes)])
            T.buffer_store(total, total[self.whole] + value, [self.whole])
        summed = lane_total(lambda x, y: x + y, [total], lanes, KIND)
        return tirx.const(1.0, KIND) / summed[0]

    def values_of_one(self, scores: tirx.Var, inverses: tirx.Var, first: Index, count: Index) -> None:
        """Multiply weights by values: as many vectors of all heads at once as registers hold."""
        at_once = max(1, MOST_SUMS // self.shared)
        for start in range(0, self.across, at_once):
            vectors = range(start, min(self.across, start + at_once))
            sums = {(head, v): self.cleared(1)[0] for head in range(self.shared) for v in vectors}
            with T.serial(0, count) as key:
                row = self.cache + (first + key) * self.width
                for v in vectors:
                    value = self.part_of_row(self.buffers["values"], row, v)
                    for head in range(self.shared):
                        weight = self.spread(scores[head * self.padded + key])
                        T.buffer_store(sums[head, v], sums[head, v][self.whole] + weight * value, [self.whole])
            for (head, v), total in sums.items():
                self.store(self.query(head), v, total[self.whole] * self.spread(inverses[head]))

    def store(self, start: Index, v: int, value: Expr) -> None:
        """Store a vector of the result, which has the layout of the queries."""
        y = self.buffers["y"]
        if v < self.whole_vectors:
            T.buffer_store(y, value, [T.ramp(start + v * self.lanes, 1, self.lanes)])
            return
        held = register(self.lanes, KIND)
        T.buffer_store(held, value, [self.whole])
        with T.vectorized(0, self.rest) as lane:
            T.buffer_store(y, held[lane], [start + v * self.lanes + lane])

    # ---- many rows --------------------------------------------------------------------------------------------------

    def many_places(self, scores: tirx.Var, part: Index) -> None:
        """Emit this task's share of the rows in tiles."""
        rows, lanes, panel = self.tiling.rows, self.lanes, self.tiling.panel
        total = in_register(self.length * self.shared)
        tiles = in_register(self.parts(total, rows))
        tile0, tile1 = map(in_register, share(tiles, part, self.tiling.shares))
        # The keys that the last row of the share sees.
        last = tirx.min(self.number(total), tile1 * rows) - 1
        end = in_register(self.end_of(tirx.floordiv(tirx.max(last, 0), self.shared)))
        turned = T.alloc_buffer((self.room * self.width,), KIND)
        with T.serial(0, self.parts(end, lanes)) as number:
            self.turn(turned, number, end)
        with T.serial(0, tile1 - tile0) as turn:
            row0 = in_register((tile0 + turn) * rows)
            here = in_register(tirx.min(self.number(total) - row0, rows))
            heights = range(1, rows + 1) if is_open(total) else sorted({rows, total % rows or rows})
            first = self.first_of(in_register(self.end_of(tirx.floordiv(row0, self.shared))))
            start = in_register(tirx.floordiv(first, panel) * panel) if self.a.window else 0
            end = in_register(self.end_of(tirx.floordiv(row0 + here - 1, self.shared)))
            for height in heights:
                with when(tirx.EQ(self.number(here), self.number(height))):
                    self.scores_of(scores, turned, row0, height, start, end)
            inverses = small_buffer((rows,), KIND)
            with T.serial(0, here) as row:
                own_end = in_register(self.end_of(tirx.floordiv(row0 + row, self.shared)))
                least = in_register(self.first_of(own_end) - start) if self.a.window else 0
                base, count = row * self.padded + start, in_register(own_end - start)
                T.buffer_store(inverses, self.softmax(scores, base, count, least), [row])
                self.clear_behind(scores, base, count, end - start)
            for height in heights:
                with when(tirx.EQ(self.number(here), self.number(height))):
                    self.values_of(scores, inverses, row0, height, start, end)

    def turn(self, turned: tirx.Var, number: Index, end: Expr) -> None:
        """Transpose `lanes` keys into columns of a panel: element e of all keys of a panel is contiguous."""
        lanes, per = self.lanes, self.tiling.panel // self.lanes
        base = tirx.floordiv(number, per) * (self.tiling.panel * self.width) + tirx.floormod(number, per) * lanes
        rows = [in_register(self.cache + tirx.min(number * lanes + key, end - 1) * self.width) for key in range(lanes)]
        for v in range(self.across):
            square = [self.part_of_row(self.buffers["keys"], row, v) for row in rows]
            for e, column in enumerate(transpose(square, KIND)[: min(lanes, self.width - v * lanes)]):
                at = base + (v * lanes + e) * self.tiling.panel
                T.buffer_store(turned, column, [T.ramp(at, 1, lanes)])

    def scores_of(self, scores: tirx.Var, turned: tirx.Var, row0: Index, height: int, start: Index, end: Index) -> None:
        """Compute the scores of some rows for the keys from `start`, the beginning of a panel, to `end`."""
        lanes, panel, per = self.lanes, self.tiling.panel, self.tiling.panel // self.lanes
        queries = [in_register(self.query(row0 + row)) for row in range(height)]
        skipped = tirx.floordiv(start, panel) if is_open(start) else 0
        with T.serial(0, self.parts(end, panel) - skipped) as turn:
            number = skipped + turn
            sums = {(row, v): self.cleared(1)[0] for row in range(height) for v in range(per)}
            with T.serial(0, self.width) as e:
                at = (number * self.width + e) * panel
                keys = [self.kept(turned[T.ramp(at + v * lanes, 1, lanes)]) for v in range(per)]
                for row, place in enumerate(queries):
                    element = self.spread(self.buffers["q"][place + e])
                    for v, value in enumerate(keys):
                        T.buffer_store(sums[row, v], sums[row, v][self.whole] + element * value, [self.whole])
            for (row, v), total in sums.items():
                self.keep_scores(scores, row, number * per + v, total[self.whole])

    def values_of(
        self, scores: tirx.Var, inverses: tirx.Var, row0: Index, height: int, start: Index, end: Index
    ) -> None:
        """Multiply the weights of some rows by values, as many vectors at once as registers hold."""
        queries = [in_register(self.query(row0 + row)) for row in range(height)]
        at_once = max(1, MOST_SUMS // height)
        for group in range(0, self.across, at_once):
            vectors = range(group, min(self.across, group + at_once))
            sums = {(row, v): self.cleared(1)[0] for row in range(height) for v in vectors}
            with T.serial(0, end - start) as key:
                place = self.cache + (start + key) * self.width
                values = [self.part_of_row(self.buffers["values"], place, v) for v in vectors]
                for row in range(height):
                    weight = self.spread(scores[row * self.padded + start + key])
                    for v, value in zip(vectors, values, strict=True):
                        T.buffer_store(sums[row, v], sums[row, v][self.whole] + weight * value, [self.whole])
            for (row, v), total in sums.items():
                self.store(queries[row], v, total[self.whole] * self.spread(inverses[row]))

    def clear_behind(self, scores: tirx.Var, base: Index, count: Index, end: Index) -> None:
        """Clear the weights of keys that only later rows of the tile see, in whole vectors; the rest of the row's last
        vector is already 0."""
        first = in_register(self.parts(count, self.lanes))
        with T.serial(0, tirx.max(self.parts(end, self.lanes) - first, 0)) as turn:
            place = base + (first + turn) * self.lanes
            T.buffer_store(scores, self.spread(tirx.const(0.0, KIND)), [T.ramp(place, 1, self.lanes)])


def schedule_cached_attention(sizes: CachedAttention, name: str, cpu: Cpu) -> ScheduledOperator:
    """Return the kernel; its parameters are those of the description in order."""
    chosen = decide_cached_attention(at_sample(sizes), cpu)

    def main() -> None:
        buffers = declare(sizes)
        with root():
            _Emitter(sizes, chosen, {called: each.view(-1) for called, each in buffers.items()}).emit()

    return ScheduledOperator(chosen, write_function(name, chosen, main))
