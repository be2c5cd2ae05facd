"""Positions of the k largest elements along an axis, in order: a heap of k elements instead of a sort of all.

An element and its position are one integer of 64 bits, the element above and the position inverted below, so that of
equal elements the first one is larger. The heap's smallest integer is its root. The largest element of each block is
compared with it, in vectors; only if that one belongs into the heap, all of the block are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .extents import apart, number_of
from .loops import when
from .registers import small_buffer

Expr: TypeAlias = tirx.Expr
_BLOCK = 64
_LEAST_SHARED = 1 << 12  # elements; fewer are not worth the start of threads
_LOW = (1 << 32) - 1


def positions_of_largest(data: te.Tensor, k: int, axis: int, largest: bool, dtype: str) -> te.Tensor:
    """Return the positions of the k largest or smallest int32 elements along an axis of static extent, in order; of
    equal elements the first one comes first."""
    shape = [number_of(extent) for extent in data.shape]
    wanted = [*shape[:axis], k, *shape[axis + 1 :]]
    return te.extern(
        [wanted],
        [data],
        lambda inputs, outputs: _Selection(shape, k, axis, largest, dtype).emit(inputs[0], outputs[0]),
        dtype=dtype,
        out_buffers=[tirx.decl_buffer(wanted, dtype, "places", layout=None)],
        name="largest",
    )


class _Selection:
    """One selection of k elements from each row along `axis`."""

    def __init__(self, shape: Sequence[Any], k: int, axis: int, largest: bool, dtype: str) -> None:
        self.outer, self.inner = list(shape[:axis]), list(shape[axis + 1 :])
        self.length, self.k, self.largest, self.dtype = int(shape[axis]), k, largest, dtype
        self.contiguous = all(isinstance(extent, int) and extent == 1 for extent in self.inner)

    def emit(self, source: tirx.Buffer, result: tirx.Buffer) -> tirx.Stmt:
        rows = prod([*self.outer, *self.inner])
        alone = isinstance(rows, int) and (rows == 1 or rows * self.length < _LEAST_SHARED)
        with IRBuilder() as builder, T.seq_scope():
            end = _whole(rows) if isinstance(rows, int) else rows
            with T.serial(0, end) if alone else T.parallel(0, end) as row:
                self.row(source, result, row)
        return builder.get()

    def row(self, source: tirx.Buffer, result: tirx.Buffer, row: Expr) -> None:
        heap = small_buffer((2 * self.k + 2,), "int64")

        def key(index: Expr) -> Expr:
            value = tirx.BufferLoad(source, self.place(row, index))
            return value if self.largest else tirx.bitwise_not(value)

        def join(index: Expr) -> Expr:
            return tirx.shift_left(tirx.Cast("int64", key(index)), _whole(32)) + (_whole(_LOW) - index)

        def offer(index: Expr) -> None:
            with when(key(index) > _element(heap[0])):
                self.sink(heap, _whole(0), join(index))

        with T.serial(0, _whole(self.k)) as index:
            T.buffer_store(heap, join(index), [index])
        # Children beyond the last element are larger than all.
        with T.serial(0, _whole(self.k + 2)) as index:
            T.buffer_store(heap, tirx.max_value("int64"), [index + _whole(self.k)])
        with T.serial(0, _whole(self.k // 2)) as index:
            root = _whole(self.k // 2 - 1) - index
            self.sink(heap, root, heap[root])
        blocks = (self.length - self.k) // _BLOCK if self.contiguous else 0
        with T.serial(0, _whole(blocks)) as block:
            first = block * _whole(_BLOCK) + _whole(self.k)
            most = T.alloc_buffer((1,), "int32", scope="local")
            T.buffer_store(most, tirx.min_value("int32"), [0])
            with T.serial(0, _whole(_BLOCK)) as index:
                T.buffer_store(most, tirx.max(most[0], key(first + index)), [0])
            with when(most[0] > _element(heap[0])), T.serial(0, _whole(_BLOCK)) as index:
                offer(first + index)
        done = self.k + blocks * _BLOCK
        with T.serial(0, _whole(self.length - done)) as index:
            offer(index + _whole(done))
        with T.serial(0, _whole(self.k)) as index:
            last = _whole(self.k - 1) - index
            position = _whole(_LOW) - tirx.bitwise_and(heap[0], _whole(_LOW))
            T.buffer_store(result, tirx.Cast(self.dtype, position), self.place(row, last))
            moved = T.alloc_buffer((1,), "int64", scope="local")
            T.buffer_store(moved, heap[last], [0])
            T.buffer_store(heap, tirx.max_value("int64"), [last])
            self.sink(heap, _whole(0), moved[0])

    def sink(self, heap: tirx.Buffer, root: Expr, value: Expr) -> None:
        """Replace the root of a part of the heap by a value, without branches: their outcome is random."""
        own = T.alloc_buffer((1,), "int64", scope="local")
        at = T.alloc_buffer((1,), "int64", scope="local")
        T.buffer_store(own, value, [0])
        T.buffer_store(at, root, [0])
        with T.serial(0, _whole(self.k.bit_length() - 1)):
            left = T.bind(at[0] * _whole(2) + _whole(1))
            one = T.bind(heap[left])
            other = T.bind(heap[left + _whole(1)])
            less = T.bind(tirx.min(one, other))
            sinks = T.bind(less < own[0])
            T.buffer_store(heap, tirx.Select(sinks, less, heap[at[0]]), [at[0]])
            T.buffer_store(at, tirx.Select(sinks, left + tirx.Cast("int64", other < one), at[0]), [0])
        T.buffer_store(heap, own[0], [at[0]])

    def place(self, row: Expr, index: Expr) -> list[Expr]:
        """The indices of an element of a row."""
        rows = apart(row, [*self.outer, *self.inner])
        return [*rows[: len(self.outer)], index, *rows[len(self.outer) :]]


def _element(joined: Expr) -> Expr:
    return tirx.Cast("int32", tirx.shift_right(joined, _whole(32)))


def _whole(value: int) -> Expr:
    return tirx.const(value, "int64")
