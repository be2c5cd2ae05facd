"""Building blocks of loop nests: shares of a range, guarded statements, edges, address origins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from tvm import tirx
from tvm.ir import Call
from tvm.script.ir_builder import tirx as T  # noqa: N812

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int


def share(count: int, index: Index, parts: int) -> tuple[Index, Index]:
    """Return [start, end) of one of `parts` nearly equal shares of range(count)."""
    if parts == 1:
        return 0, count
    return tirx.floordiv(index * count, parts), tirx.floordiv((index + 1) * count, parts)


def when(condition: Expr) -> ExitStack:
    """Return a context whose statements run only if `condition` holds."""
    stack = ExitStack()
    stack.enter_context(T.If(condition))
    stack.enter_context(T.Then())
    return stack


@contextmanager
def nested_twice(count: Index) -> Iterator[Index]:
    """Open a loop over `count` steps as one within another, if the count is known and has a divisor that suits; yields
    the step.

    LLVM gives registers to the values of the most deeply nested loops. Where the loop over the steps of a register tile
    is as deep as the loop over its results, the constants of functions may stay in registers while a sum of the tile is
    loaded and stored in each step, which is twice as slow (1500 x 384 x 1536 with GELU: 6.7 and 3.7 ms). Loops of fewer
    than four turns are unrolled.
    """
    outer = next((n for n in range(8, 3, -1) if isinstance(count, int) and count % n == 0), 1)
    if outer == 1:
        with T.serial(0, count) as step:
            yield step
        return
    inner = count // outer
    with T.serial(0, outer) as part, T.serial(0, inner) as step:
        yield part * inner + step


def by_edge(index: Expr, full: int, tail: int, size: int, emit: Callable[[int], None]) -> None:
    """Call emit(size) where `index` < `full`, else emit(tail), without a test if only one of the two can occur.

    The test is written as loops with one or zero iterations. After an If on an index that results from a division,
    TVM's CompactBufferAllocation does not bound what is written and gives the buffer a size in terms of that index.
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
    """Return a variable equal to `index`, which is at least 0, for addresses at constant distances from it.

    Without it, LLVM does not turn a constant distance into the displacement of a load if the index has a subtraction:
    it reassociates the sum, can no longer exclude an overflow of 32 bits, and needs two instructions per address. This
    slowed a direct convolution on two cores by 1.1x, and by 2x with vectors of half the register width. LLVM does not
    look through the maximum with 0.
    """
    zero = tirx.const(0, "int32")
    return T.bind(T.call_llvm_pure_intrin("int32", "llvm.smax.i32", index, zero))


def index_of(value: Expr) -> Expr:
    """Return the value from which the variable of an origin was made; other values unchanged."""
    return value.args[-1] if isinstance(value, Call) and len(value.args) == 3 else value
