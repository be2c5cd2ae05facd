"""QR factorisations by Householder reflections, and products with their orthogonal factors, as in LAPACK.

They are computed in float64 for all operand types, matrix by matrix along the batch, and rounded once.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, Value, dtype_of, shape_of
from .elementwise import in_libm
from .linear_algebra import WIDE, copied, of_elements, stacked, unstacked, wide_number
from .loops import looped
from .products import turned
from .views import expanded, part, reshaped


def _reflected(
    target: Any, vectors: Any, factor: Any, b: Any, j: Any, rows: int, first: Any, end: Any, sums: Any
) -> None:
    """Reflect columns `first` to `end` of `target` by the j-th Householder vector, which is 1 at index j and stored
    below it in `vectors`."""
    with tir.serial(first, end) as c:
        sums[b] = target[b, j, c]
        with tir.serial(j + 1, rows) as i:
            sums[b] = sums[b] + vectors[b, i, j] * target[b, i, c]
        sums[b] = sums[b] * factor
        target[b, j, c] = target[b, j, c] - sums[b]
        with tir.serial(j + 1, rows) as i:
            target[b, i, c] = target[b, i, c] - vectors[b, i, j] * sums[b]


def _householder(t: Translation, matrices: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """R with the Householder vectors below its diagonal, and the factors of the reflections."""
    batch, rows, columns = shape_of(matrices)
    steps = min(rows, columns)

    def body(a: Any, qr: Any, factors: Any, head: Any, norm: Any) -> None:
        with tir.parallel(0, batch) as b:
            copied(a, qr, b, rows, columns)
            with tir.serial(0, steps) as j:
                norm[b] = wide_number(0)
                with tir.serial(j + 1, rows) as i:
                    norm[b] = norm[b] + qr[b, i, j] * qr[b, i, j]
                factors[b, j] = wide_number(0)
                with tir.If(norm[b] > wide_number(0)), tir.Then():
                    size = tirx.sqrt(norm[b] + qr[b, j, j] * qr[b, j, j])
                    head[b] = wide_number(0) - in_libm("copysign")(size, qr[b, j, j])
                    factors[b, j] = (head[b] - qr[b, j, j]) / head[b]
                    norm[b] = qr[b, j, j] - head[b]
                    with tir.serial(j + 1, rows) as i:
                        qr[b, i, j] = qr[b, i, j] / norm[b]
                    qr[b, j, j] = head[b]
                    _reflected(qr, qr, factors[b, j], b, j, rows, j + 1, columns, norm)

    shapes = [((batch, rows, columns), WIDE), ((batch, steps), WIDE), ((batch,), WIDE), ((batch,), WIDE)]
    found = looped(t, "householder", [matrices], shapes, body)
    return found[0], found[1]


def _by_reflections(
    t: Translation, vectors: relax.Expr, factors: relax.Expr, target: relax.Expr, *, backward: bool
) -> relax.Expr:
    """H1 H2 ... Hk target, or Hk ... H1 target if not `backward`."""
    batch, rows, columns = shape_of(target)
    steps = shape_of(factors)[1]

    def body(v: Any, factor: Any, given: Any, result: Any, sums: Any) -> None:
        with tir.parallel(0, batch) as b:
            copied(given, result, b, rows, columns)
            with tir.serial(0, steps) as step:
                j = steps - 1 - step if backward else step
                _reflected(result, v, factor[b, j], b, j, rows, 0, columns, sums)

    shapes = [((batch, rows, columns), WIDE), ((batch,), WIDE)]
    return looped(t, "reflections", [vectors, factors, target], shapes, body)[0]


def _columns_of_identity(t: Translation, batch: int, rows: int, columns: int) -> relax.Expr:
    return expanded(t, t.emit(op.eye(rows, columns, 0, WIDE)), (batch, rows, columns))


@of_elements("geqrf.default")
def _geqrf(t: Translation, self: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    batch = shape_of(self)[:-2]
    found, factors = _householder(t, stacked(t, self))
    return unstacked(t, found, batch, t.dtype), reshaped(t, t.cast(factors, t.dtype), (*batch, shape_of(factors)[1]))


@of_elements("linalg_qr.default")
def _qr(t: Translation, A: relax.Expr, mode: str) -> list[relax.Expr]:
    batch, dtype = shape_of(A)[:-2], dtype_of(A)
    found, factors = _householder(t, stacked(t, A))
    count, rows, columns = shape_of(found)
    kept = rows if mode == "complete" else min(rows, columns)
    upper = t.emit(op.triu(part(t, found, 1, 0, kept)))
    if mode == "r":
        q = t.emit(op.zeros((0,), dtype))
    else:
        start = _columns_of_identity(t, count, rows, kept)
        q = unstacked(t, _by_reflections(t, found, factors, start, backward=True), batch, dtype)
    return [q, unstacked(t, upper, batch, dtype)]


@of_elements("linalg_householder_product.default", "orgqr.default")
def _householder_product(
    t: Translation, input: Value = None, tau: Value = None, self: Value = None, input2: Value = None
) -> relax.Expr:
    vectors, factors = (input, tau) if input is not None else (self, input2)
    batch = t.shape[:-2]
    held = stacked(t, vectors)
    count, rows, columns = shape_of(held)
    flat = reshaped(t, t.cast(factors, WIDE), (count, shape_of(factors)[-1]))
    start = _columns_of_identity(t, count, rows, columns)
    return unstacked(t, _by_reflections(t, held, flat, start, backward=True), batch, t.dtype)


@of_elements("ormqr.default")
def _ormqr(
    t: Translation, self: relax.Expr, input2: relax.Expr, input3: relax.Expr, left: bool, transpose: bool
) -> relax.Expr:
    """Multiply a matrix by Q, given by reflections, or its transpose, from the left or the right."""
    batch = t.shape[:-2]
    vectors = stacked(t, self)
    factors = reshaped(t, t.cast(input2, WIDE), (prod(batch), shape_of(input2)[-1]))
    target = stacked(t, input3)
    target = target if left else turned(t, target)
    found = _by_reflections(t, vectors, factors, target, backward=transpose != left)
    return unstacked(t, found if left else turned(t, found), batch, t.dtype)
