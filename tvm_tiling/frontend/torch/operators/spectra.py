"""Singular values, eigenvalues, pseudo-inverses and exponentials of matrices, in float64.

Singular vectors and eigenvectors are not computed: they are unique only up to sign, and less so for equal values, so
that no other implementation matches PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import tirx as tir

from ..translation import Missing, Translation, Value, dtype_of, shape_of
from .elementwise import in_libm
from .linear_algebra import copied, of_elements, stacked, unstacked
from .linear_algebra import wide_number as number
from .loops import looped
from .products import turned
from .views import expanded, reshaped

_WIDE = "float64"
_SWEEPS = 40  # an upper bound for the method
_SMALL = 1e-16  # columns whose product is below this, relative to their norms, are orthogonal


def _rotation(cosine: Any, sine: Any, ratio: Any) -> None:
    """Store the rotation that diagonalises a symmetric 2 x 2 matrix; `ratio` is the difference of its diagonal over
    twice the other element."""
    size = tirx.abs(ratio)
    tangent = in_libm("copysign")(number(1) / (size + tirx.sqrt(number(1) + ratio * ratio)), ratio)
    cosine[0][cosine[1]] = number(1) / tirx.sqrt(number(1) + tangent * tangent)
    sine[0][sine[1]] = cosine[0][cosine[1]] * tangent


def _by_columns(t: Translation, matrices: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
    """Matrices with at least as many rows as columns, rotated so that their columns are orthogonal, and the rotations,
    by the one-sided Jacobi method."""
    batch, rows, columns = shape_of(matrices)

    def body(a: Any, w: Any, v: Any, c: Any, s: Any, x: Any, y: Any, z: Any, moved: Any, left: Any) -> None:
        with tir.parallel(0, batch) as b:
            copied(a, w, b, rows, columns)
            with tir.serial(0, columns) as i, tir.serial(0, columns) as j:
                v[b, i, j] = tirx.Select(tirx.EQ(i, j), number(1), number(0))
            moved[b], left[b] = number(1), number(_SWEEPS)
            with tir.While(tirx.all(moved[b] > number(0), left[b] > number(0))):
                moved[b], left[b] = number(0), left[b] - number(1)
                with tir.serial(0, columns) as p, tir.serial(p + 1, columns) as q:
                    x[b], y[b], z[b] = number(0), number(0), number(0)
                    with tir.serial(0, rows) as i:
                        x[b] = x[b] + w[b, i, p] * w[b, i, p]
                        y[b] = y[b] + w[b, i, q] * w[b, i, q]
                        z[b] = z[b] + w[b, i, p] * w[b, i, q]
                    with tir.If(tirx.abs(z[b]) > number(_SMALL) * tirx.sqrt(x[b] * y[b])), tir.Then():
                        moved[b] = number(1)
                        _rotation((c, b), (s, b), (y[b] - x[b]) / (number(2) * z[b]))
                        for target, length in ((w, rows), (v, columns)):
                            with tir.serial(0, length) as i:
                                z[b] = target[b, i, p]
                                target[b, i, p] = c[b] * z[b] - s[b] * target[b, i, q]
                                target[b, i, q] = s[b] * z[b] + c[b] * target[b, i, q]

    rooms = [((batch,), _WIDE)] * 7
    shapes = [((batch, rows, columns), _WIDE), ((batch, columns, columns), _WIDE), *rooms]
    found = looped(t, "jacobi", [matrices], shapes, body)
    return found[0], found[1]


def _tall(t: Translation, matrices: relax.Expr) -> relax.Expr:
    _, rows, columns = shape_of(matrices)
    return matrices if rows >= columns else turned(t, matrices)


def _values(t: Translation, turned_columns: relax.Expr) -> relax.Expr:
    """Norms of columns; (batch, columns)."""
    return t.emit(op.sqrt(t.emit(op.sum(t.emit(op.multiply(turned_columns, turned_columns)), 1))))


def _sorted(t: Translation, values: relax.Expr, descending: bool) -> relax.Expr:
    return t.emit(op.sort(values, 1, descending))


@of_elements("_linalg_svd.default")
def _svd(t: Translation, A: relax.Expr, full_matrices: bool, compute_uv: bool, driver: str | None) -> list[Value]:
    record = t.node.meta["val"][1]  # type: ignore[union-attr]
    columns, _ = _by_columns(t, _tall(t, stacked(t, A)))
    values = reshaped(t, t.cast(_sorted(t, _values(t, columns), True), dtype_of(A)), tuple(record.shape))
    if not compute_uv:
        nothing = [t.emit(op.zeros(tuple(each.shape), dtype_of(A))) for each in t.node.meta["val"]]  # type: ignore[union-attr]
        return [nothing[0], values, nothing[2]]
    return [Missing("the left singular vectors"), values, Missing("the right singular vectors")]


@of_elements("linalg_pinv.atol_rtol_tensor")
def _pseudo_inverse(t: Translation, self: relax.Expr, atol: Value, rtol: Value, hermitian: bool) -> relax.Expr:
    """V S^-2 (A V)' without singular values that are too small. A symmetric matrix, of which PyTorch reads the lower
    triangle, is treated like any other."""
    batch, (rows, columns) = shape_of(self)[:-2], shape_of(self)[-2:]
    matrices = stacked(t, self)
    if hermitian:
        matrices = _lower(t, matrices, "L")
    moved, rotations = _by_columns(t, _tall(t, matrices))
    values = _values(t, moved)
    largest = t.emit(op.max(values, 1, keepdims=True))
    low = t.cast(0.0, _WIDE) if atol is None else _limit(t, atol, batch)
    if rtol is None:
        eps = {"float64": 2.0**-52}.get(dtype_of(self), 2.0**-23)
        share = t.cast(max(rows, columns) * eps, _WIDE)
        # As in PyTorch, an absolute tolerance disables the default relative one.
        relative = t.emit(op.multiply(largest, share))
        if atol is not None:
            relative = t.emit(op.where(t.emit(op.greater(low, t.cast(0.0, _WIDE))), t.cast(0.0, _WIDE), relative))
    else:
        relative = t.emit(op.multiply(largest, _limit(t, rtol, batch)))
    limit = t.emit(op.maximum(low, relative))
    kept = t.emit(op.greater(values, limit))
    inverse = t.emit(op.divide(t.cast(1.0, _WIDE), t.emit(op.multiply(values, values))))
    inverse = t.emit(op.where(kept, inverse, t.cast(0.0, _WIDE)))
    scaled = t.emit(op.multiply(rotations, t.emit(op.expand_dims(inverse, 1))))
    found = t.emit(op.matmul(scaled, turned(t, moved)))
    return unstacked(t, found if rows >= columns else turned(t, found), batch, t.dtype)


def _limit(t: Translation, value: relax.Expr, batch: Sequence[int]) -> relax.Expr:
    """A bound for each matrix; (batch, 1)."""
    return reshaped(t, expanded(t, t.cast(value, _WIDE), batch), (math.prod(batch), 1))


def _lower(t: Translation, matrices: relax.Expr, triangle: str) -> relax.Expr:
    """Symmetric matrices from one of their triangles."""
    own = t.emit(op.tril(matrices) if triangle == "L" else op.triu(matrices))
    other = t.emit(op.tril(matrices, -1) if triangle == "L" else op.triu(matrices, 1))
    return t.emit(op.add(own, turned(t, other)))


@of_elements("_linalg_eigh.default")
def _eigh(t: Translation, A: relax.Expr, UPLO: str, compute_v: bool) -> list[Value]:
    batch, n = shape_of(A)[:-2], shape_of(A)[-1]
    values = _eigenvalues(t, _lower(t, stacked(t, A), UPLO.upper()))
    values = reshaped(t, t.cast(_sorted(t, values, False), dtype_of(A)), (*batch, n))
    if compute_v:
        return [values, Missing("the eigenvectors")]
    return [values, t.emit(op.zeros(tuple(t.node.meta["val"][1].shape), dtype_of(A)))]  # type: ignore[union-attr]


def _eigenvalues(t: Translation, matrices: relax.Expr) -> relax.Expr:
    """Eigenvalues of symmetric matrices by the two-sided Jacobi method; (batch, n)."""
    batch, n, _ = shape_of(matrices)

    def body(a: Any, w: Any, values: Any, c: Any, s: Any, z: Any) -> None:
        with tir.parallel(0, batch) as b:
            copied(a, w, b, n, n)
            with tir.serial(0, _SWEEPS // 2), tir.serial(0, n) as p, tir.serial(p + 1, n) as q:
                small = number(1e-18) * (tirx.abs(w[b, p, p]) + tirx.abs(w[b, q, q]))
                with tir.If(tirx.abs(w[b, p, q]) > small), tir.Then():
                    _rotation((c, b), (s, b), (w[b, q, q] - w[b, p, p]) / (number(2) * w[b, p, q]))
                    with tir.serial(0, n) as i:
                        z[b] = w[b, i, p]
                        w[b, i, p] = c[b] * z[b] - s[b] * w[b, i, q]
                        w[b, i, q] = s[b] * z[b] + c[b] * w[b, i, q]
                    with tir.serial(0, n) as i:
                        z[b] = w[b, p, i]
                        w[b, p, i] = c[b] * z[b] - s[b] * w[b, q, i]
                        w[b, q, i] = s[b] * z[b] + c[b] * w[b, q, i]
            with tir.serial(0, n) as i:
                values[b, i] = w[b, i, i]

    shapes = [((batch, n, n), _WIDE), ((batch, n), _WIDE), *[((batch,), _WIDE)] * 3]
    return looped(t, "eigenvalues", [matrices], shapes, body)[1]


_TERMS = 18  # terms of the series, for a norm of at most 1/8


@of_elements("linalg_matrix_exp.default", "matrix_exp.default")
def _exponential(t: Translation, self: relax.Expr) -> relax.Expr:
    """The matrix exponential by scaling and squaring of the series."""
    matrices = stacked(t, self)
    batch, n, _ = shape_of(matrices)

    def body(a: Any, total: Any, term: Any, room: Any, size: Any, halves: Any) -> None:
        def multiplied(left: Any, right: Any, factor: Any, b: Any) -> None:
            with tir.serial(0, n) as i, tir.serial(0, n) as j:
                room[b, i, j] = number(0)
                with tir.serial(0, n) as k:
                    room[b, i, j] = room[b, i, j] + left[b, i, k] * right[b, k, j] * factor

        with tir.parallel(0, batch) as b:
            size[b], halves[b] = number(0), number(0)
            with tir.serial(0, n) as i, tir.serial(0, n) as j:
                size[b] = size[b] + tirx.abs(a[b, i, j])
            with tir.While(tirx.all(size[b] > number(0.125), halves[b] < number(1100))):
                size[b] = size[b] * number(0.5)
                halves[b] = halves[b] + number(1)
            size[b] = in_libm("exp2")(number(0) - halves[b])
            with tir.serial(0, n) as i, tir.serial(0, n) as j:
                term[b, i, j] = tirx.Select(tirx.EQ(i, j), number(1), number(0))
                total[b, i, j] = term[b, i, j]
            with tir.serial(1, _TERMS) as order:
                multiplied(term, a, size[b] / tirx.Cast(_WIDE, order), b)
                copied(room, term, b, n, n)
                with tir.serial(0, n) as i, tir.serial(0, n) as j:
                    total[b, i, j] = total[b, i, j] + term[b, i, j]
            with tir.While(halves[b] > number(0)):
                multiplied(total, total, number(1), b)
                copied(room, total, b, n, n)
                halves[b] = halves[b] - number(1)

    shapes = [*[((batch, n, n), _WIDE)] * 3, *[((batch,), _WIDE)] * 2]
    return unstacked(t, looped(t, "matrix_exponential", [matrices], shapes, body)[0], t.shape[:-2], t.dtype)
