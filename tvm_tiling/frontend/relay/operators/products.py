"""Matrix multiplications, and bias addition."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from ....figures import quantity
from ..operands import Operands, Value, axis_in, dtype_of, rank_of
from ..tree import BATCH_MATMUL_FLAGS, before, since


def turned(matrix: relax.Expr) -> relax.Expr:
    """`matrix` with its last two axes swapped."""
    rank = rank_of(matrix)
    if rank < 2:
        raise ValueError(f"an operand has {quantity(rank, 'dimension')}; expected 2 or more")
    return op.permute_dims(matrix, [*range(rank - 2), rank - 1, rank - 2])


def product(a: relax.Expr, b: relax.Expr, out: str | None) -> relax.Expr:
    """a @ b in the type `out`, or in the type of the operands."""
    dtype = out or dtype_of(a)
    return op.matmul(a, b, out_dtype=dtype)


def _dense(call: Operands) -> Value:
    weight = call.emit(turned(call.tensor(1)))
    return product(call.tensor(0), weight, call["out_dtype"])


def _matmul(call: Operands) -> Value:
    a, b = call.tensor(0), call.tensor(1)
    a = call.emit(turned(a)) if call["transpose_a"] else a
    b = call.emit(turned(b)) if call["transpose_b"] else b
    return product(a, b, call["out_dtype"])


def _batch_matmul(call: Operands) -> Value:
    a, b = call.tensor(0), call.tensor(1)
    turn_a, turn_b = bool(call["transpose_a"]), call["transpose_b"]
    if turn_b is None:
        turn_b = turned_by_release(call, a, b)
    a = call.emit(turned(a)) if turn_a else a
    b = call.emit(turned(b)) if turn_b else b
    return product(a, b, call["out_dtype"])


def turned_by_release(call: Operands, a: relax.Expr, b: relax.Expr) -> bool:
    """Return whether the second operand is implicitly transposed: always until 0.7, never since 0.8.

    If the release is unknown, the shapes decide; a square operand is read as in 0.8.
    """
    if before(call.release, BATCH_MATMUL_FLAGS) or since(call.release, BATCH_MATMUL_FLAGS):
        return before(call.release, BATCH_MATMUL_FLAGS)
    if call["transpose_a"] is not None:
        return False
    terms, rows, columns = call.extents(a)[-1], *call.extents(b)[-2:]
    if all(isinstance(size, int) for size in (terms, rows)):
        return bool(terms != rows)
    return call.shapes.same(terms, columns) and not call.shapes.same(terms, rows)


def _bias_add(call: Operands) -> Value:
    x, bias = call.tensor(0), call.tensor(1)
    rank = rank_of(x)
    axis = axis_in(call["axis"], rank)
    if axis == rank - 1:
        return op.add(x, bias)
    return op.add(x, op.reshape(bias, [-1 if place == axis else 1 for place in range(axis, rank)]))


OPERATORS: dict[str, Callable[[Operands], Value]] = {
    "nn.batch_matmul": _batch_matmul,
    "nn.bias_add": _bias_add,
    "nn.dense": _dense,
    "nn.matmul": _matmul,
}
