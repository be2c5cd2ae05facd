"""Cumulative sums and products along an axis that is not the innermost: whole vectors of the inner axes at once.

TVM computes one column after the other, with elements a row apart. Here a task takes a block of adjacent columns, keeps
their running values in registers, and reads and writes contiguous pieces of rows. Every column is summed in order, so
that results have the same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ...lowering.checked import LEAST_SHARED, SHARES
from ...lowering.extents import apart, number_of
from ...lowering.loops import by_edge
from ...lowering.registers import small_buffer

Expr: TypeAlias = tirx.Expr
_BITS = {
    "float32": 32,
    "float64": 64,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_LEAST, _MOST = 1024, 4096  # bits of the columns of a block


def _scan(name: str, combine: Callable[[Expr, Expr], Expr], start: int) -> Callable[[relax.BlockBuilder, Any], Any]:
    def legalise(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
        data, dtype = call.args[0], str(call.ty.dtype)
        if call.attrs.axis is None or dtype not in _BITS or str(data.ty.dtype) not in (*_BITS, "bool"):
            return call
        shape = [number_of(extent) for extent in data.ty.shape]
        axis = int(call.attrs.axis) % len(shape)
        if 0 in shape or all(isinstance(e, int) and e == 1 for e in shape[axis + 1 :]):
            return call

        def scanned(tensor: te.Tensor) -> te.Tensor:
            # Dynamic extents of the function are variables of its own.
            own = [number_of(extent) for extent in tensor.shape]
            return _Scan(own, axis, dtype, bool(call.attrs.exclusive), combine, start).tensor(tensor)

        return builder.call_te(scanned, data, primfunc_name_hint=name, primfunc_attrs={"op_pattern": 8})

    return legalise


class _Scan:
    """One scan over `shape` along `axis`; columns are the inner axes if their extents are static, else the last one."""

    def __init__(
        self,
        shape: Sequence[Any],
        axis: int,
        dtype: str,
        exclusive: bool,
        combine: Callable[[Expr, Expr], Expr],
        start: int,
    ) -> None:
        self.shape, self.axis, self.dtype, self.exclusive = shape, axis, dtype, exclusive
        self.combine, self.start = combine, tirx.const(start, dtype)
        inner = shape[axis + 1 :]
        # Quotients by dynamic extents would be computed for every element.
        first = axis + 1 if all(isinstance(extent, int) for extent in inner) else len(shape) - 1
        self.columns = list(shape[first:])
        self.rows = [*shape[:axis], *shape[axis + 1 : first]]

    def tensor(self, data: te.Tensor) -> te.Tensor:
        return te.extern(
            [data.shape],
            [data],
            lambda inputs, outputs: self.emit(inputs[0], outputs[0]),
            dtype=self.dtype,
            out_buffers=[tirx.decl_buffer(data.shape, self.dtype, "scanned", layout=None)],
            name="scan",
        )

    def emit(self, source: tirx.Buffer, result: tirx.Buffer) -> tirx.Stmt:
        rows, columns, width = prod(self.rows), prod(self.columns), self.width()
        blocks = -(-columns // width) if isinstance(columns, int) else tirx.floordiv(columns + (width - 1), width)
        count = rows * blocks
        fixed = all(isinstance(extent, int) for extent in self.shape)
        alone = fixed and (count == 1 or prod(self.shape) < LEAST_SHARED)

        def block(size: Any, row: Expr, first: Expr) -> None:
            self.block(source, result, size, row, first)

        with IRBuilder() as builder, T.seq_scope():
            end = tirx.const(count, "int64") if isinstance(count, int) else count
            with T.serial(0, end) if alone else T.parallel(0, end) as task:
                row, number = tirx.floordiv(task, blocks), tirx.floormod(task, blocks)
                first = number * width
                if isinstance(columns, int):
                    full, rest = divmod(columns, width)
                    by_edge(number, full, rest, width, lambda size: block(size, row, first))
                else:
                    block(tirx.min(tirx.const(width, "int64"), columns - first), row, first)
        return builder.get()

    def width(self) -> int:
        """The columns of a block: fewer if there would be too few blocks to share."""
        least, most = (bits // _BITS[self.dtype] for bits in (_LEAST, _MOST))
        columns, rows = prod(self.columns), prod(self.rows)
        if not isinstance(columns, int):
            return most
        if isinstance(rows, int):
            most = min(most, max(least, -(-columns * rows // SHARES)))
        return min(columns, most)

    def block(self, source: tirx.Buffer, result: tirx.Buffer, size: Any, row: Expr, first: Expr) -> None:
        """Emit the scan of `size` columns from `first`: a vector if their number is static."""
        kept = size if isinstance(size, int) else self.width()
        running = small_buffer((kept,), self.dtype)
        length, kind = self.shape[self.axis], T.vectorized if isinstance(size, int) and size > 1 else T.serial

        def each(step: Any, store: Callable[[Expr, list[Expr], Expr], None]) -> None:
            with kind(tirx.const(0, "int64"), tirx.const(size, "int64") if isinstance(size, int) else size) as lane:
                at = self.place(row, step, first + lane)
                store(lane, at, tirx.Cast(self.dtype, tirx.BufferLoad(source, at)))

        def begin(lane: Expr, _: list[Expr], value: Expr) -> None:
            T.buffer_store(running, self.start if self.exclusive else value, [lane])

        def keep(lane: Expr, at: list[Expr], _: Expr) -> None:
            T.buffer_store(result, running[lane], at)

        def add(lane: Expr, _: list[Expr], value: Expr) -> None:
            T.buffer_store(running, self.combine(running[lane], value), [lane])

        zero, one = tirx.const(0, "int64"), tirx.const(1, "int64")
        with T.serial(zero, one if isinstance(length, int) else tirx.min(length, one)) as step:
            each(step, begin)
            each(step, keep)
        with T.serial(zero, length - one) as before:
            each(before if self.exclusive else before + one, add)
            each(before + one, keep)

    def place(self, row: Expr, step: Any, column: Expr) -> list[Expr]:
        """The indices of an element."""
        rows = apart(row, self.rows)
        return [*rows[: self.axis], step, *rows[self.axis :], *apart(column, self.columns)]


LEGALISED = {
    "relax.cumprod": _scan("cumprod", operator.mul, 1),
    "relax.cumsum": _scan("cumsum", operator.add, 0),
}
