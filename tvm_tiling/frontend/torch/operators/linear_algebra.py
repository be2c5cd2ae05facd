"""Matrix factorisations, and solutions of equations by them, as in LAPACK, with the same pivots and signs.

They are computed in float64 for all operand types, matrix by matrix along the batch, and rounded once. A matrix that
PyTorch rejects at run time, such as a singular one, ends the execution here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ....lowering.positions import checked_positions
from ..translation import Converter, Missing, Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import NAMES
from .loops import looped
from .products import turned
from .views import expanded, part, reshaped

WIDE = "float64"


def of_elements(*names: str, nothing: float | None = None) -> Callable[[Converter], Converter]:
    """Register a converter that does not handle empty operands. `nothing`: the first result in that case, the others
    being 0, such as status and pivots; without it, raises Unsupported if a float result is nonempty."""

    def register(convert: Converter) -> Converter:
        @converter(*names)
        def served(t: Translation, **arguments: Value) -> Value:
            if not any(0 in operand.shape for operand in t.operands):
                return convert(t, **arguments)
            several = t.node.meta["val"]  # type: ignore[union-attr]
            records = several if isinstance(several, tuple | list) else [several]
            if nothing is None and any(record.numel() and record.is_floating_point() for record in records):
                raise Unsupported("empty matrices are not supported; expected elements")
            found = [
                t.emit(op.full(relax.ShapeExpr(tuple(record.shape)), t.cast(0 if place else nothing or 0, kind), kind))
                for place, record in enumerate(records)
                for kind in [NAMES[record.dtype]]
            ]
            return found if isinstance(several, tuple | list) else found[0]

        return convert

    return register


def wide_number(value: float) -> Any:
    return tirx.const(value, WIDE)


def whole(value: int) -> Any:
    return tirx.const(value, "int32")


def stacked(t: Translation, value: relax.Expr) -> relax.Expr:
    """Matrices in float64 as (batch, rows, columns)."""
    shape = shape_of(value)
    return reshaped(t, t.cast(value, WIDE), (prod(shape[:-2]), *shape[-2:]))


def unstacked(t: Translation, value: relax.Expr, batch: Sequence[int], dtype: str) -> relax.Expr:
    """The inverse of `stacked`: restore the batch axes, in type `dtype`."""
    return reshaped(t, t.cast(value, dtype), (*batch, *shape_of(value)[1:]))


def copied(source: Any, target: Any, b: Any, rows: int, columns: int) -> None:
    with tir.serial(0, rows) as i, tir.serial(0, columns) as j:
        target[b, i, j] = source[b, i, j]


# ---- Cholesky -------------------------------------------------------------------------------------------------------


def _cholesky(t: Translation, data: relax.Expr, upper: bool) -> tuple[relax.Expr, relax.Expr]:
    """The lower Cholesky factor, or its transpose, of matrices of which one triangle is read; and their status."""
    matrices = stacked(t, data)
    batch, n, _ = shape_of(matrices)

    def body(a: Any, lower: Any, status: Any) -> None:
        with tir.parallel(0, batch) as b:
            status[b] = whole(0)
            with tir.serial(0, n) as i, tir.serial(0, n) as j:
                lower[b, i, j] = wide_number(0)
            with tir.serial(0, n) as j:
                with tir.serial(j, n) as i:
                    lower[b, i, j] = a[b, j, i] if upper else a[b, i, j]
                    with tir.serial(0, j) as k:
                        lower[b, i, j] = lower[b, i, j] - lower[b, i, k] * lower[b, j, k]
                positive = lower[b, j, j] > wide_number(0)
                bad = tirx.all(tirx.EQ(status[b], whole(0)), tirx.Not(positive))
                status[b] = tirx.Select(bad, tirx.Cast("int32", j + 1), status[b])
                lower[b, j, j] = tirx.sqrt(lower[b, j, j])
                with tir.serial(j + 1, n) as i:
                    lower[b, i, j] = lower[b, i, j] / lower[b, j, j]

    found, status = looped(t, "cholesky", [matrices], [((batch, n, n), WIDE), ((batch,), "int32")], body)
    return (turned(t, found) if upper else found), status


@of_elements("linalg_cholesky_ex.default")
def _cholesky_ex(t: Translation, self: relax.Expr, upper: bool, check_errors: bool) -> tuple[relax.Expr, relax.Expr]:
    factor, status = _cholesky(t, self, upper)
    batch = shape_of(self)[:-2]
    return unstacked(t, factor, batch, t.dtype), reshaped(t, status, batch)


@of_elements("cholesky.default")
def _cholesky_old(t: Translation, self: relax.Expr, upper: bool) -> relax.Expr:
    factor, status = _cholesky(t, self, upper)
    _refuse_in_run(t, status, "cholesky")
    return unstacked(t, factor, shape_of(self)[:-2], t.dtype)


@of_elements("cholesky_solve.default")
def _cholesky_solve(t: Translation, self: relax.Expr, input2: relax.Expr, upper: bool) -> relax.Expr:
    batch = t.shape[:-2]
    right = stacked(t, expanded(t, self, (*batch, *shape_of(self)[-2:])))
    factor = stacked(t, expanded(t, input2, (*batch, *shape_of(input2)[-2:])))
    return unstacked(t, _by_cholesky(t, factor, right, upper), batch, t.dtype)


def _by_cholesky(t: Translation, factor: relax.Expr, right: relax.Expr, upper: bool) -> relax.Expr:
    other = turned(t, factor)
    first, second = (other, factor) if upper else (factor, other)
    return _triangular(t, second, _triangular(t, first, right, False, False), True, False)


@of_elements("cholesky_inverse.default")
def _cholesky_inverse(t: Translation, self: relax.Expr, upper: bool) -> relax.Expr:
    factor = stacked(t, self)
    return unstacked(t, _by_cholesky(t, factor, _identity(t, factor), upper), t.shape[:-2], t.dtype)


def _identity(t: Translation, like: relax.Expr) -> relax.Expr:
    batch, n, _ = shape_of(like)
    one = t.emit(op.eye(n, n, 0, WIDE))
    return expanded(t, one, (batch, n, n))


# ---- triangles ------------------------------------------------------------------------------------------------------


def _triangular(t: Translation, a: relax.Expr, right: relax.Expr, upper: bool, unit: bool) -> relax.Expr:
    """Solve a X = right for stacked triangular matrices, of which only the triangle is read."""
    batch, n, columns = shape_of(right)

    def body(m: Any, y: Any, x: Any) -> None:
        with tir.parallel(0, batch) as b, tir.serial(0, n) as step:
            i = n - 1 - step if upper else step
            with tir.serial(0, columns) as c:
                x[b, i, c] = y[b, i, c]
                with tir.serial(i + 1 if upper else 0, n if upper else i) as k:
                    x[b, i, c] = x[b, i, c] - m[b, i, k] * x[b, k, c]
                if not unit:
                    x[b, i, c] = x[b, i, c] / m[b, i, i]

    return looped(t, "triangular_solve", [a, right], [((batch, n, columns), WIDE)], body)[0]


@of_elements("linalg_solve_triangular.default")
def _solve_triangular(
    t: Translation, self: relax.Expr, B: relax.Expr, upper: bool, left: bool, unitriangular: bool
) -> relax.Expr:
    batch = t.shape[:-2]
    a = stacked(t, expanded(t, self, (*batch, *shape_of(self)[-2:])))
    right = stacked(t, expanded(t, B, t.shape))
    if left:
        return unstacked(t, _triangular(t, a, right, upper, unitriangular), batch, t.dtype)
    found = _triangular(t, turned(t, a), turned(t, right), not upper, unitriangular)
    return unstacked(t, turned(t, found), batch, t.dtype)


@of_elements("triangular_solve.default")
def _triangular_solve(
    t: Translation, self: relax.Expr, A: relax.Expr, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[relax.Expr, relax.Expr]:
    batch = t.shape[:-2]
    given = expanded(t, A, (*batch, *shape_of(A)[-2:]))
    a, right = stacked(t, given), stacked(t, expanded(t, self, t.shape))
    if transpose:
        a, upper = turned(t, a), not upper
    return unstacked(t, _triangular(t, a, right, upper, unitriangular), batch, t.dtype), given


# ---- LU -------------------------------------------------------------------------------------------------------------


def _lu(t: Translation, matrices: relax.Expr) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """Both factors in one matrix, the pivots, counted from 1, and the status."""
    batch, rows, columns = shape_of(matrices)
    steps = min(rows, columns)

    def body(a: Any, lu: Any, pivots: Any, status: Any, held: Any) -> None:
        with tir.parallel(0, batch) as b:
            copied(a, lu, b, rows, columns)
            status[b] = whole(0)
            with tir.serial(0, steps) as j:
                pivots[b, j] = tirx.Cast("int32", j)
                with tir.serial(j + 1, rows) as i:
                    larger = tirx.abs(lu[b, i, j]) > tirx.abs(lu[b, pivots[b, j], j])
                    pivots[b, j] = tirx.Select(larger, tirx.Cast("int32", i), pivots[b, j])
                with tir.serial(0, columns) as c:
                    held[b] = lu[b, j, c]
                    lu[b, j, c] = lu[b, pivots[b, j], c]
                    lu[b, pivots[b, j], c] = held[b]
                pivots[b, j] = pivots[b, j] + whole(1)
                zero = tirx.EQ(lu[b, j, j], wide_number(0))
                bad = tirx.all(tirx.EQ(status[b], whole(0)), zero)
                status[b] = tirx.Select(bad, tirx.Cast("int32", j + 1), status[b])
                with tir.serial(j + 1, rows) as i:
                    lu[b, i, j] = lu[b, i, j] / tirx.Select(zero, wide_number(1), lu[b, j, j])
                    with tir.serial(j + 1, columns) as c:
                        lu[b, i, c] = lu[b, i, c] - lu[b, i, j] * lu[b, j, c]

    shapes = [((batch, rows, columns), WIDE), ((batch, steps), "int32"), ((batch,), "int32"), ((batch,), WIDE)]
    found, pivots, status, _ = looped(t, "lu", [matrices], shapes, body)
    return found, pivots, status


def _order(t: Translation, pivots: relax.Expr, rows: int) -> relax.Expr:
    """The row permutation of the pivots, (batch, rows): the source row at each position."""
    batch, steps = shape_of(pivots)

    def body(exchanged: Any, order: Any, held: Any) -> None:
        with tir.parallel(0, batch) as b:
            with tir.serial(0, rows) as i:
                order[b, i] = tirx.Cast("int64", i)
            with tir.serial(0, steps) as j:
                # Out-of-range pivots, which no factorisation returns, are clamped.
                other = tirx.max(tirx.min(exchanged[b, j] - whole(1), whole(rows - 1)), whole(0))
                held[b] = order[b, j]
                order[b, j] = order[b, other]
                order[b, other] = held[b]

    return looped(t, "row_order", [pivots], [((batch, rows), "int64"), ((batch,), "int64")], body)[0]


def _lu_solved(t: Translation, lu: relax.Expr, pivots: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Solve A X = B for X, with A given by its factors."""
    batch, n, columns = shape_of(right)
    order = expanded(t, t.emit(op.expand_dims(_order(t, pivots, n), 2)), (batch, n, columns))
    exchanged = t.emit(op.gather_elements(right, order, 1))
    return _triangular(t, lu, _triangular(t, lu, exchanged, False, True), True, False)


@of_elements("linalg_lu_factor_ex.default")
def _lu_factor(
    t: Translation, A: relax.Expr, pivot: bool, check_errors: bool
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    if not pivot:
        raise Unsupported("pivot=False is not supported; expected True")
    batch = shape_of(A)[:-2]
    found, pivots, status = _lu(t, stacked(t, A))
    steps = shape_of(pivots)[1]
    return unstacked(t, found, batch, t.dtype), reshaped(t, pivots, (*batch, steps)), reshaped(t, status, batch)


@of_elements("linalg_lu.default")
def _linalg_lu(t: Translation, A: relax.Expr, pivot: bool) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    if not pivot:
        raise Unsupported("pivot=False is not supported; expected True")
    found, pivots, _ = _lu(t, stacked(t, A))
    return _unpacked(t, found, pivots, shape_of(A)[:-2], t.dtype)


def _unpacked(
    t: Translation, lu: relax.Expr, pivots: relax.Expr, batch: Sequence[int], dtype: str
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """The permutation matrix and both factors as separate matrices."""
    count, rows, columns = shape_of(lu)
    steps = min(rows, columns)
    order = t.emit(op.expand_dims(_order(t, pivots, rows), 1))
    places = t.emit(op.reshape(t.emit(op.arange(0, rows, 1, "int64")), (1, rows, 1)))
    exchanges = expanded(t, t.cast(t.emit(op.equal(order, places)), WIDE), (count, rows, rows))
    lower = t.emit(op.tril(part(t, lu, 2, 0, steps), -1))
    lower = t.emit(op.add(lower, t.emit(op.eye(rows, steps, 0, WIDE))))
    upper = t.emit(op.triu(part(t, lu, 1, 0, steps)))
    found = [unstacked(t, value, batch, dtype) for value in (exchanges, lower, upper)]
    return found[0], found[1], found[2]


@of_elements("lu_unpack.default")
def _lu_unpack(
    t: Translation, LU_data: relax.Expr, LU_pivots: relax.Expr, unpack_data: bool, unpack_pivots: bool
) -> list[Value]:
    batch = shape_of(LU_data)[:-2]
    pivots = reshaped(t, LU_pivots, (prod(batch), shape_of(LU_pivots)[-1]))
    found = _unpacked(t, stacked(t, LU_data), pivots, batch, dtype_of(LU_data))
    nothing = t.emit(op.zeros((0,), dtype_of(LU_data)))
    return [found[0] if unpack_pivots else nothing, *(found[1:] if unpack_data else [nothing, nothing])]


@of_elements("linalg_lu_solve.default")
def _lu_solve(
    t: Translation, LU: relax.Expr, pivots: relax.Expr, B: relax.Expr, left: bool, adjoint: bool
) -> relax.Expr:
    batch = t.shape[:-2]
    n = shape_of(LU)[-1]
    lu = stacked(t, expanded(t, LU, (*batch, n, n)))
    exchanged = reshaped(t, expanded(t, pivots, (*batch, n)), (prod(batch), n))
    right = stacked(t, expanded(t, B, t.shape))
    right = right if left else turned(t, right)
    if adjoint == left:
        # The transposed system: U'L'P' X = right.
        other = turned(t, lu)
        found = _triangular(t, other, _triangular(t, other, right, False, False), True, True)
        columns = shape_of(right)[2]
        back = t.emit(op.argsort(_order(t, exchanged, n), axis=1, dtype="int64"))
        places = expanded(t, t.emit(op.expand_dims(back, 2)), (prod(batch), n, columns))
        found = t.emit(op.gather_elements(found, places, 1))
    else:
        found = _lu_solved(t, lu, exchanged, right)
    return unstacked(t, found if left else turned(t, found), batch, t.dtype)


@of_elements("_linalg_solve_ex.default")
def _solve(t: Translation, A: relax.Expr, B: relax.Expr, left: bool, check_errors: bool) -> list[Value]:
    record = t.node.meta["val"]  # type: ignore[union-attr]
    shape = shape_of(A)
    batch, n = tuple(record[1].shape[:-2]), shape[-1]
    vector = len(t.shape) == len(batch) + 1
    right = t.emit(op.expand_dims(B, len(shape_of(B)))) if vector else B
    right = stacked(t, expanded(t, right, (*batch, *shape_of(right)[-2:])))
    matrices = stacked(t, expanded(t, A, (*batch, n, n)))
    if not left:
        matrices, right = turned(t, matrices), turned(t, right)
    lu, pivots, status = _lu(t, matrices)
    found = _lu_solved(t, lu, pivots, right)
    found = reshaped(t, t.cast(found if left else turned(t, found), t.dtype), t.shape)
    return [found, Missing("factors"), Missing("pivots"), reshaped(t, status, batch)]


@of_elements("linalg_inv_ex.default")
def _inverse(t: Translation, A: relax.Expr, check_errors: bool) -> tuple[relax.Expr, relax.Expr]:
    batch = shape_of(A)[:-2]
    matrices = stacked(t, A)
    lu, pivots, status = _lu(t, matrices)
    found = _lu_solved(t, lu, pivots, _identity(t, matrices))
    return unstacked(t, found, batch, t.dtype), reshaped(t, status, batch)


def _diagonal_of(t: Translation, A: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """The diagonal of U, and the sign of the permutation; (batch, n) and (batch,)."""
    matrices = stacked(t, A)
    batch, n, _ = shape_of(matrices)
    lu, pivots, _ = _lu(t, matrices)
    flat = reshaped(t, lu, (batch, n * n))
    diagonal = t.emit(op.strided_slice(flat, [1], [0], [n * n], [n + 1]))
    places = t.emit(op.arange(1, n + 1, 1, "int32"))
    moved = t.emit(op.not_equal(pivots, places))
    signs = t.emit(op.where(moved, t.cast(-1.0, WIDE), t.cast(1.0, WIDE)))
    return diagonal, t.emit(op.prod(signs, 1))


@of_elements("_linalg_det.default", nothing=1)
def _determinant(t: Translation, A: relax.Expr) -> list[Value]:
    diagonal, sign = _diagonal_of(t, A)
    found = t.emit(op.multiply(t.emit(op.prod(diagonal, 1)), sign))
    return [reshaped(t, t.cast(found, t.dtype), t.shape), Missing("factors"), Missing("pivots")]


@of_elements("_linalg_slogdet.default", nothing=1)
def _sign_and_logarithm(t: Translation, A: relax.Expr) -> list[Value]:
    diagonal, sign = _diagonal_of(t, A)
    sign = t.emit(op.multiply(sign, t.emit(op.prod(t.emit(op.sign(diagonal)), 1))))
    size = t.emit(op.sum(t.emit(op.log(t.emit(op.abs(diagonal)))), 1))
    found = [reshaped(t, t.cast(value, t.dtype), t.shape) for value in (sign, size)]
    return [*found, Missing("factors"), Missing("pivots")]


# ---- errors at run time ---------------------------------------------------------------------------------------------


@converter("_linalg_check_errors.default")
def _check_errors(t: Translation, info: relax.Expr, api_name: str, is_matrix: bool) -> None:
    _refuse_in_run(t, info, api_name)


def _refuse_in_run(t: Translation, status: relax.Expr, operator: str) -> None:
    """End the execution if the status of a matrix is nonzero."""
    count = prod(shape_of(status))
    if count:
        flat = reshaped(t, t.cast(status, "int64"), (count,))
        t.checks.append(checked_positions(t.builder, flat, 1, operator, wraps=False, called=_STATUS))


_STATUS = "status of a matrix, 0 if it can be factorised,"
