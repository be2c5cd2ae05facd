"""Activations prepared for multiplication by block-quantised weights: each block of each row in vectors, with rows
divided among cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.block_rows import BlockRows
from ..hardware.description import Cpu
from ..lowering.described import declare, inverse_of, like, magnitude, quantised, raised_by, scale_of
from ..lowering.lane_total import lane_total
from ..lowering.loops import share
from ..lowering.prim_func import root, write_function
from ..lowering.registers import counted, register
from ..lowering.samples import is_open

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
ROWS_OF_A_CORE = 8  # at least: fewer are finished before another core has started


def schedule_block_rows(rows: BlockRows, name: str, cpu: Cpu) -> tirx.PrimFunc:
    """Return the kernel of rows in 8 bits; its parameters are the inputs and outputs in order."""

    def body() -> None:
        buffers = declare(rows)
        with root():
            flat = {called: each.view(-1) for called, each in buffers.items()}
            RowsEmitter(rows, cpu, flat).emit()

    return write_function(name, None, body)


class RowsEmitter:
    """Emits the computation that BlockRows describes; `buffers` by name, flat."""

    def __init__(self, rows: BlockRows, cpu: Cpu, buffers: Mapping[str, tirx.Var]) -> None:
        self.r, self.cpu, self.buffers = rows, cpu, buffers
        self.lanes = min(cpu.lanes(4), rows.block)
        if rows.block % self.lanes:
            self.lanes = 1

    def emit(self) -> None:
        rows = self.r.rows
        count = counted(tirx.Cast("int64", rows), 0) if is_open(rows) else rows
        tasks: Index = tirx.min(self.cpu.cores, tirx.floordiv(count + ROWS_OF_A_CORE - 1, ROWS_OF_A_CORE))
        if not is_open(rows):
            tasks = min(self.cpu.cores, -(-rows // ROWS_OF_A_CORE))
        with T.parallel(0, tasks) if is_open(rows) or tasks > 1 else T.serial(0, 1) as task:
            first, end = (0, count) if not is_open(rows) and tasks == 1 else share(count, task, tasks)
            with T.serial(0, end - first) as turn:
                self.row(first + turn)

    def row(self, row: Index) -> None:
        r = self.r
        whole, rest = divmod(r.k, r.block)
        with T.serial(0, whole) as block:
            self.blocked(row, block, r.block, self.lanes)
        if rest:
            self.blocked(row, whole, rest, self.lanes if rest % self.lanes == 0 else 1)

    def blocked(self, row: Index, block: Index, count: int, lanes: int) -> None:
        """Emit one block of `count` elements, `lanes` at a time."""
        r, b = self.r, self.buffers
        at, place = row * r.k + block * r.block, row * r.blocks + block

        def vectors_of(buffer: tirx.Var, start: Index, index: Index) -> Expr:
            return buffer[T.ramp(start + index * lanes, 1, lanes) if lanes > 1 else start + index]

        def every(kind: str, value: Callable[[Index], Expr], add: Callable[[Expr, Expr], Expr]) -> tirx.Var:
            """Return a register with the reduction of value(index) over the block by `add`, in its first lane."""
            total = register(lanes, kind)
            zero = tirx.const(0, kind)
            T.buffer_store(total, T.broadcast(zero, lanes) if lanes > 1 else zero, [self.all_of(lanes)])
            with T.serial(0, count // lanes) as index:
                T.buffer_store(total, add(total[self.all_of(lanes)], value(index)), [self.all_of(lanes)])
            return lane_total(add, [total], lanes, kind)

        if r.to == "float32":
            total = every("float32", lambda index: vectors_of(b["x"], at, index), lambda x, y: x + y)
            T.buffer_store(b["sums"], total[0], [place])
            return
        largest = every("int32", lambda index: magnitude(vectors_of(b["x"], at, index)), tirx.max)
        T.buffer_store(b["scales"], scale_of(largest[0], r.to), [place])
        factors = [register(1, "float32") for _ in range(2)]
        for factor, value in zip(factors, (raised_by(largest[0]), inverse_of(largest[0], r.to)), strict=True):
            T.buffer_store(factor, value, [0])
        to = place * r.block * r.parts

        def kept(value: Expr) -> Expr:
            held = register(lanes, "int32")
            T.buffer_store(held, value, [self.all_of(lanes)])
            return held[self.all_of(lanes)]

        def narrow(value: Expr, start: Index) -> None:
            byte = T.Cast(f"int8x{lanes}" if lanes > 1 else "int8", value)
            T.buffer_store(b["x_blocks"], byte, [T.ramp(start, 1, lanes) if lanes > 1 else start])

        def store(index: Index) -> Expr:
            spread = [T.broadcast(factor[0], lanes) if lanes > 1 else factor[0] for factor in factors]
            value = kept(quantised(vectors_of(b["x"], at, index), *spread, r.to))
            start = to + index * lanes
            if r.to == "int8":
                narrow(value, start)
                return value
            kind = str(value.ty)
            high = kept(tirx.shift_right(value + like(128, kind), like(8, kind)))
            narrow(high, start)
            narrow(value - tirx.shift_left(high, like(8, kind)), start + r.block)
            return value

        total = every("int32", store, lambda x, y: x + y)
        T.buffer_store(b["sums"], total[0], [place])
        if count < r.block:
            with T.serial(0, r.block - count) as k:
                for part in range(r.parts):
                    T.buffer_store(b["x_blocks"], tirx.const(0, "int8"), [to + part * r.block + count + k])

    @staticmethod
    def all_of(lanes: int) -> Index:
        return T.ramp(0, 1, lanes) if lanes > 1 else 0
