"""Matrix multiplications with few rows: B is streamed once at memory bandwidth.

There are two variants, depending on the contiguous axis of B. Along n (B as [k, n]), `depth` rows of B are read side by
side and added to a row of sums that stays in L1. Along k (B as [n, k], a dense layer's weight), each sum is a vector of
partial sums in registers, `width` columns at a time, added up at the end.
"""

from __future__ import annotations

from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.tiling import GemmTiling
from ..hardware.dot_instructions import DotInstruction
from ..lowering.loops import share, when
from ..lowering.named_blocks import named
from ..lowering.registers import register, registers
from ..match import GemmProgram

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


class StreamEmitter:
    """Emits one matrix multiplication with few rows."""

    def __init__(self, program: GemmProgram, tiling: GemmTiling, engine: DotInstruction) -> None:
        self.program, self.engine = program, engine
        w = program.workload
        self.m, self.n, self.k, self.batch = w.m, w.n, w.k, w.batch
        assert tiling.lanes and tiling.mr and tiling.nr
        self.lanes, self.tiling = tiling.lanes, tiling
        self.threads = (tiling.threads_batch or 1, tiling.threads_n or 1)

    def emit(self) -> None:
        tb, tn = self.threads
        with T.parallel(0, tb * tn) if tb * tn > 1 else T.serial(0, 1) as task:
            b0, b1 = share(self.batch, tirx.floordiv(task, tn), tb)
            with T.serial(b0, b1) as batch:
                if self.program.workload.trans_b:
                    self.along_k(batch, tirx.floormod(task, tn), tn)
                else:
                    self.along_n(batch, tirx.floormod(task, tn), tn)

    def a(self, batch: Index, i: Index, k: Index) -> Expr:
        return self.program.a.at(batch, i, k, dtype=self.engine.acc)

    def b(self, batch: Index, k: Index, j: Index) -> Expr:
        return self.program.b.at(batch, k, j, dtype=self.engine.acc)

    def store(self, value: Expr, batch: Index, i: Index, j: Index) -> None:
        program = self.program
        T.buffer_store(program.out, program.result(value, batch, i, j), program.out_at(batch, i, j))

    # ---- B as [k, n]: rows of B side by side -------------------------------------------------------------------------

    def along_n(self, batch: Index, worker: Index, workers: int) -> None:
        """Process `partition_n` columns at a time, with `partition_k` rows of B per pass over the sums."""
        lanes, chunk = self.lanes, self.tiling.partition_n
        vectors, rest = divmod(self.n, lanes)
        first, end = share(vectors, worker, workers)
        sums = T.alloc_buffer((self.m * chunk,), self.engine.acc)
        step = chunk // lanes
        with T.serial(0, tirx.ceildiv(end - first, step)) as block:
            v0 = first + block * step
            with named("tile"):
                self.columns(batch, v0 * lanes, tirx.min(step, end - v0), lanes, sums)
        if rest:
            with when(tirx.EQ(worker, workers - 1)) if workers > 1 else T.serial(0, 1), named("tile"):
                self.columns(batch, vectors * lanes, 1, rest, sums)

    def columns(self, batch: Index, j0: Index, count: Index, width: int, sums: tirx.Var) -> None:
        """Emit the sums of `count` vectors of `width` columns starting at j0."""
        depth = min(self.tiling.partition_k, self.k)
        chunk = self.tiling.partition_n
        whole, rest = divmod(self.k, depth)

        def rows(k0: Index, k_count: int, fresh: bool) -> None:
            left = [[self.a(batch, i, k0 + r) for r in range(k_count)] for i in range(self.m)]
            with T.serial(0, count) as v, named("microkernel"), T.vectorized(0, width) as lane:
                right = [self.b(batch, k0 + r, j0 + v * width + lane) for r in range(k_count)]
                for i in range(self.m):
                    at = i * chunk + v * width + lane
                    total = left[i][0] * right[0] if fresh else sums[at] + left[i][0] * right[0]
                    for r in range(1, k_count):
                        total = total + left[i][r] * right[r]
                    T.buffer_store(sums, total, [at])

        rows(0, depth, True)
        if whole > 1:
            with T.serial(1, whole) as block:
                rows(block * depth, depth, False)
        if rest:
            rows(whole * depth, rest, False)
        with T.serial(0, self.m) as i, T.serial(0, count) as v, named("epilogue"), T.vectorized(0, width) as lane:
            column = v * width + lane
            self.store(sums[i * chunk + column], batch, i, j0 + column)

    # ---- B as [n, k]: dot products --------------------------------------------------------------------------------

    def along_k(self, batch: Index, worker: Index, workers: int) -> None:
        width = self.tiling.nr or 1
        groups, rest = divmod(self.n, width)
        first, end = share(groups, worker, workers)
        with T.serial(first, end) as group, named("tile"):
            self.dots(batch, group * width, width)
        if rest:
            with when(tirx.EQ(worker, workers - 1)) if workers > 1 else T.serial(0, 1), named("tile"):
                self.dots(batch, groups * width, rest)

    def dots(self, batch: Index, j0: Index, width: int) -> None:
        """Emit m x width sums, each a vector along k."""
        lanes, kind = self.lanes, self.engine.acc
        acc = [registers(width, lanes, kind) for _ in range(self.m)]
        whole, rest = divmod(self.k, lanes)
        for row in acc:
            for sums in row:
                T.buffer_store(sums, T.broadcast(tirx.const(0, kind), lanes), [T.ramp(0, 1, lanes)])

        def step(k0: Index, used: int) -> None:
            for i, row in enumerate(acc):
                for j, sums in enumerate(row):
                    with T.vectorized(0, used) as lane:
                        product = self.a(batch, i, k0 + lane) * self.b(batch, k0 + lane, j0 + j)
                        T.buffer_store(sums, sums[lane] + product, [lane])

        if whole:
            with T.serial(0, whole) as block, named("microkernel"):
                step(block * lanes, lanes)
        if rest:
            step(whole * lanes, rest)
        self.add_lanes(acc, batch, j0, width)

    def add_lanes(self, acc: list[list[tirx.Var]], batch: Index, j0: Index, width: int) -> None:
        """Finish the dot products: `width` vectors of partial sums become `width` sums side by side.

        Adjacent lanes of two vectors are added into one, so each round halves both the number of vectors and the
        partial sums per column; once a single vector is left, rounds with itself finish it.
        """
        lanes, kind = self.lanes, self.engine.acc
        even, odd = ([2 * lane + bit for lane in range(lanes)] for bit in (0, 1))
        size = 1 << (width - 1).bit_length()
        for i, row in enumerate(acc):
            parts: list[Expr] = [sums[T.ramp(0, 1, lanes)] for sums in row]
            zero = T.broadcast(tirx.const(0, kind), lanes)
            parts += [zero] * (size - width)
            while len(parts) > 1:
                parts = [self.kept(_pairs(a, b, even, odd)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            for _ in range((lanes // size).bit_length() - 1):
                parts = [self.kept(_pairs(parts[0], parts[0], even, odd))]
            sums = register(lanes, kind)
            T.buffer_store(sums, parts[0], [T.ramp(0, 1, lanes)])
            with named("epilogue"), T.vectorized(0, width) as lane:
                self.store(sums[lane], batch, i, j0 + lane)

    def kept(self, value: Expr) -> Expr:
        """Return `value` in a register, so that it is computed once and read twice."""
        held = register(self.lanes, self.engine.acc)
        whole = T.ramp(0, 1, self.lanes)
        T.buffer_store(held, value, [whole])
        return held[whole]


def _pairs(a: Expr, b: Expr, even: list[int], odd: list[int]) -> Expr:
    """Return the sums of adjacent lanes, those of `a` before those of `b`."""
    return T.Shuffle([a, b], even) + T.Shuffle([a, b], odd)
