"""L D L' factorisations of symmetric, possibly indefinite matrices, and solutions of equations by them.

The pivots are LAPACK's (Bunch-Kaufman): a block of D has one or two rows, and both pivots of a two-row block are
negative. Only the lower triangle is read. Everything is computed in float64 and rounded once.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ....lowering.positions import checked_positions
from ..translation import Translation, shape_of
from .linear_algebra import copied, of_elements, stacked, unstacked, whole, wide_number
from .loops import looped
from .views import expanded, reshaped

_WIDE = "float64"
_SHARE = (1 + sqrt(17)) / 8  # minimum ratio of a pivot to the largest number in its column
_PIVOT = "pivot of a factorisation, counted from 1,"


@of_elements("linalg_ldl_factor_ex.default")
def _factor(t: Translation, self: relax.Expr, hermitian: bool, check_errors: bool) -> list[relax.Expr]:
    """Both factors in the lower triangle, the pivots, and the first block of D that is 0, counted from 1."""
    shape, matrices = shape_of(self), stacked(t, self)
    batch, n, _ = shape_of(matrices)

    def body(given: Any, a: Any, pivots: Any, status: Any, start: Any, other: Any, width: Any, x: Any, y: Any) -> None:
        with tir.parallel(0, batch) as b:
            status[b], start[b] = whole(0), whole(0)
            with tir.serial(0, n) as i, tir.serial(0, n) as j:
                a[b, i, j] = tirx.Select(j <= i, given[b, i, j], wide_number(0))
            with tir.serial(0, n) as k, tir.If(tirx.EQ(start[b], tirx.Cast("int32", k))), tir.Then():
                _choose_pivot(a, b, k, n, other, width, x, y)
                zero = tirx.all(tirx.EQ(width[b], whole(1)), tirx.EQ(a[b, other[b], other[b]], wide_number(0)))
                first = tirx.all(tirx.EQ(status[b], whole(0)), zero)
                status[b] = tirx.Select(first, tirx.Cast("int32", k) + whole(1), status[b])
                _exchange_rows(a, b, k, n, other, width, x)
                with tir.If(tirx.EQ(width[b], whole(1))):
                    with tir.Then():
                        pivots[b, k] = other[b] + whole(1)
                        _eliminate_one(a, b, k, n)
                    with tir.Else():
                        pivots[b, k] = whole(-1) - other[b]
                        pivots[b, k + 1] = whole(-1) - other[b]
                        _eliminate_two(a, b, k, n, x, y)
                start[b] = tirx.Cast("int32", k) + width[b]

    rooms = [((batch,), "int32")] * 4 + [((batch,), _WIDE)] * 2
    found = looped(t, "ldl", [matrices], [((batch, n, n), _WIDE), ((batch, n), "int32"), *rooms], body)
    factors = unstacked(t, found[0], shape[:-2], t.dtype)
    return [factors, reshaped(t, found[1], shape[:-1]), reshaped(t, found[2], shape[:-2])]


def _choose_pivot(a: Any, b: Any, k: Any, n: int, other: Any, width: Any, column: Any, row: Any) -> None:
    """Choose the number of rows of the block at k, and the row to swap with its last one."""
    other[b], width[b] = tirx.Cast("int32", k), whole(1)
    with tir.If(k + 1 < n), tir.Then():
        other[b] = tirx.Cast("int32", k) + whole(1)
        with tir.serial(k + 2, n) as i:
            larger = tirx.abs(a[b, i, k]) > tirx.abs(a[b, other[b], k])
            other[b] = tirx.Select(larger, tirx.Cast("int32", i), other[b])
        column[b] = tirx.abs(a[b, other[b], k])
        with tir.If(tirx.abs(a[b, k, k]) >= wide_number(_SHARE) * column[b]):
            with tir.Then():
                other[b] = tirx.Cast("int32", k)
            with tir.Else():
                row[b] = wide_number(0)
                with tir.serial(k, n) as j, tir.If(tirx.NE(tirx.Cast("int32", j), other[b])), tir.Then():
                    low, high = tirx.max(tirx.Cast("int32", j), other[b]), tirx.min(tirx.Cast("int32", j), other[b])
                    row[b] = tirx.max(row[b], tirx.abs(a[b, low, high]))
                with tir.If(tirx.abs(a[b, k, k]) * row[b] >= wide_number(_SHARE) * column[b] * column[b]):
                    with tir.Then():
                        other[b] = tirx.Cast("int32", k)
                    with tir.Else():
                        enough = tirx.abs(a[b, other[b], other[b]]) >= wide_number(_SHARE) * row[b]
                        width[b] = tirx.Select(enough, whole(1), whole(2))


def _exchange_rows(a: Any, b: Any, k: Any, n: int, other: Any, width: Any, held: Any) -> None:
    """Swap the last row of the block at k, and its columns, with another one below it, from column k on."""
    last = tirx.Cast("int32", k) + width[b] - whole(1)

    def exchange(first: tuple[Any, Any], second: tuple[Any, Any]) -> None:
        held[b] = a[b, first[0], first[1]]
        a[b, first[0], first[1]] = a[b, second[0], second[1]]
        a[b, second[0], second[1]] = held[b]

    with tir.If(tirx.NE(last, other[b])), tir.Then():
        with tir.serial(k, n) as place:
            i = tirx.Cast("int32", place)
            with tir.If(i > other[b]), tir.Then():
                exchange((i, last), (i, other[b]))
            with tir.If(tirx.all(i > last, i < other[b])), tir.Then():
                exchange((i, last), (other[b], i))
        exchange((last, last), (other[b], other[b]))
        with tir.If(tirx.EQ(width[b], whole(2))), tir.Then():
            exchange((last, k), (other[b], k))


def _eliminate_one(a: Any, b: Any, k: Any, n: int) -> None:
    with tir.If(tirx.NE(a[b, k, k], wide_number(0))), tir.Then():
        with tir.serial(k + 1, n) as j, tir.serial(j, n) as i:
            a[b, i, j] = a[b, i, j] - a[b, i, k] * a[b, j, k] / a[b, k, k]
        with tir.serial(k + 1, n) as i:
            a[b, i, k] = a[b, i, k] / a[b, k, k]


def _eliminate_two(a: Any, b: Any, k: Any, n: int, x: Any, y: Any) -> None:
    """Eliminate by the block's inverse, scaled by its off-diagonal element."""
    beside = a[b, k + 1, k]
    first, second = a[b, k, k] / beside, a[b, k + 1, k + 1] / beside
    factor = wide_number(1) / ((first * second - wide_number(1)) * beside)
    with tir.serial(k + 2, n) as j:
        x[b] = factor * (second * a[b, j, k] - a[b, j, k + 1])
        y[b] = factor * (first * a[b, j, k + 1] - a[b, j, k])
        with tir.serial(j, n) as i:
            a[b, i, j] = a[b, i, j] - a[b, i, k] * x[b] - a[b, i, k + 1] * y[b]
        a[b, j, k] = x[b]
        a[b, j, k + 1] = y[b]


@of_elements("linalg_ldl_solve.default")
def _solve(t: Translation, LD: relax.Expr, pivots: relax.Expr, B: relax.Expr, hermitian: bool) -> relax.Expr:
    """Solve A X = B for X, with A given by its factors."""
    batch, n = t.shape[:-2], shape_of(LD)[-1]
    factors = stacked(t, expanded(t, LD, (*batch, n, n)))
    exchanged = reshaped(t, expanded(t, pivots, (*batch, n)), (prod(batch), n))
    right = stacked(t, expanded(t, B, t.shape))
    count, _, columns = shape_of(right)
    rows = t.emit(op.subtract(t.emit(op.abs(exchanged)), t.cast(1, "int32")))
    t.checks.append(checked_positions(t.builder, rows, n, "linalg_ldl_solve", wraps=False, called=_PIVOT))

    def body(a: Any, pivot: Any, y: Any, x: Any, start: Any, held: Any) -> None:
        def exchange(b: Any, k: Any, place: Any, c: Any) -> None:
            """Swap row `place` with the one named by the pivot at k; an invalid one, rejected at run time, is
            clamped."""
            size = tirx.max(pivot[b, k], whole(0) - pivot[b, k])
            other = tirx.max(tirx.min(size - whole(1), whole(n - 1)), whole(0))
            held[b] = x[b, place, c]
            x[b, place, c] = x[b, other, c]
            x[b, other, c] = held[b]

        def subtract(b: Any, c: Any, target: Any, k: Any, i: Any, source: Any) -> None:
            x[b, target, c] = x[b, target, c] - a[b, i, k] * x[b, source, c]

        def one_row(b: Any, k: Any) -> None:
            with tir.serial(0, columns) as c:
                exchange(b, k, k, c)
                with tir.serial(k + 1, n) as i:
                    subtract(b, c, i, k, i, k)
                x[b, k, c] = x[b, k, c] / a[b, k, k]
            start[b] = tirx.Cast("int32", k) + whole(1)

        def two_rows(b: Any, k: Any) -> None:
            beside = a[b, k + 1, k]
            first, second = a[b, k, k] / beside, a[b, k + 1, k + 1] / beside
            factor = (first * second - wide_number(1)) * beside
            with tir.serial(0, columns) as c:
                exchange(b, k, k + 1, c)
                with tir.serial(k + 2, n) as i:
                    subtract(b, c, i, k, i, k)
                    subtract(b, c, i, k + 1, i, k + 1)
                held[b] = (second * x[b, k, c] - x[b, k + 1, c]) / factor
                x[b, k + 1, c] = (first * x[b, k + 1, c] - x[b, k, c]) / factor
                x[b, k, c] = held[b]
            start[b] = tirx.Cast("int32", k) + whole(2)

        def back(b: Any, k: Any) -> None:
            with tir.serial(0, columns) as c, tir.serial(k + 1, n) as i:
                subtract(b, c, k, k, i, i)
            start[b] = tirx.Cast("int32", k) - whole(1)
            with tir.If(tirx.all(pivot[b, k] < whole(1), k > 0)), tir.Then():
                with tir.serial(0, columns) as c, tir.serial(k + 1, n) as i:
                    subtract(b, c, k - 1, k - 1, i, i)
                start[b] = tirx.Cast("int32", k) - whole(2)
            with tir.serial(0, columns) as c:
                exchange(b, k, k, c)

        with tir.parallel(0, count) as b:
            copied(y, x, b, n, columns)
            start[b] = whole(0)
            with tir.serial(0, n) as k, tir.If(tirx.EQ(start[b], tirx.Cast("int32", k))), tir.Then():
                single = tirx.any(pivot[b, k] > whole(0), k + 1 >= n)
                with tir.If(single):
                    with tir.Then():
                        one_row(b, k)
                    with tir.Else():
                        two_rows(b, k)
            start[b] = whole(n - 1)
            with tir.serial(0, n) as step, tir.If(tirx.EQ(start[b], tirx.Cast("int32", n - 1 - step))), tir.Then():
                back(b, n - 1 - step)

    shapes = [((count, n, columns), _WIDE), ((count,), "int32"), ((count,), _WIDE)]
    found = looped(t, "ldl_solve", [factors, exchanged, right], shapes, body)[0]
    return unstacked(t, found, batch, t.dtype)
