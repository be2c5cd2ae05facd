"""Pieces of loop nests: shares of a range, guarded statements, edges, origins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias

from tvm import tirx
from tvm.ir import Call
from tvm.script.ir_builder import tirx as T  # noqa: N812

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


def share(count: int, index: Index, parts: int) -> tuple[Index, Index]:
    """[start, end) of one of `parts` nearly equal shares of range(count)."""
    if parts == 1:
        return 0, count
    return tirx.floordiv(index * count, parts), tirx.floordiv((index + 1) * count, parts)


def when(condition: Expr) -> ExitStack:
    """The statements within run only if `condition` holds."""
    stack = ExitStack()
    stack.enter_context(T.If(condition))
    stack.enter_context(T.Then())
    return stack


def by_edge(index: Expr, full: int, tail: int, size: int, emit: Callable[[int], None]) -> None:
    """emit(size) where `index` < `full`, else emit(tail); nothing is asked where one of the two cannot occur.

    The question is put as loops of one turn or none. Behind an If on an index that comes of a division, TVM's
    CompactBufferAllocation does not bound what is written, and gives the buffer a size in terms of that index.
    """
    if not tail:
        emit(size)
    elif not full:
        emit(tail)
    else:
        inside = tirx.max(0, tirx.min(1, full - index))
        with T.serial(0, inside):
            emit(size)
        with T.serial(0, 1 - inside):
            emit(tail)


def origin(index: Expr) -> tirx.Var:
    """A variable that is `index`, at least 0, for addresses at constant distances from it.

    A distance that is added to the sum itself is no displacement of its load where the sum has a subtraction: LLVM adds
    up in another order, can rule out an overflow of 32 bits no longer, and takes two instructions for each address. A
    direct convolution on two cores took 1.1 times as long for that, and twice as long with vectors of half the
    registers' width. The maximum with 0 is what LLVM does not look through.
    """
    zero = tirx.const(0, "int32")
    return T.bind(T.call_llvm_pure_intrin("int32", "llvm.smax.i32", index, zero))


def index_of(value: Expr) -> Expr:
    """What the variable of an origin was made from; other values as they are."""
    return value.args[-1] if isinstance(value, Call) and len(value.args) == 3 else value
