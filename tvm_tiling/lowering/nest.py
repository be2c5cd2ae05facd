"""Pieces of loop nests: shares of a range, guarded statements, edges."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias

from tvm import tirx
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
