"""GEMM, WCONV and COLMV: sums of products, exact in integers (page 06).

Integers are multiplied by the machine's float matrix product, which is much faster than NumPy's for integers, over
stretches of k short enough for every partial sum to be a whole number that the float type holds:

    type     through    largest product    stretch of k    largest sum
    int8     float32    2^14               2^10            2^24
    uint8    float32    255^2              2^8             < 2^24
    int16    float64    2^30               2^22            2^52

Stretches are added in int32, which wraps round as the hardware's adders do. int32 operands are multiplied as int64,
whose low half is the wrapped product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .elements import as_float32, is_integer, narrowed
from .isa import ElementType

_STRETCH: dict[int, tuple[type[Any], int]] = {
    ElementType.INT8: (np.float32, 1 << 10),
    ElementType.UINT8: (np.float32, 1 << 8),
    ElementType.INT16: (np.float64, 1 << 22),
}


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, kinds: tuple[int, int], accumulate: bool) -> None:
    """c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2].

    Views of stored elements: a and b of kinds[0], c of kinds[1]. Integers sum in int32. Floats sum in float32, to which
    c is added, and are rounded once, to the type of c. Loops that are gone round once may be left out of all views
    where a and b are of two dimensions: a[m, k], b[n, k], c[m, n].
    """
    kind, result = kinds
    if is_integer(kind):
        sums = _integer_sums(a, b, kind)
    else:
        sums = np.dot(_matrix(_float32(a, kind), 1), _matrix(_float32(b, kind), b.ndim - a.ndim + 1).T)
    sums = sums.reshape(c.shape)
    if sums.dtype == c.dtype:
        if accumulate:
            np.add(c, sums, out=c)
        else:
            c[...] = sums
    else:
        c[...] = narrowed(as_float32(c, result) + sums if accumulate else sums, result)


def _float32(stored: np.ndarray, kind: int) -> np.ndarray:
    return stored if kind == ElementType.FLOAT32 else as_float32(stored, kind)


def _matrix(values: np.ndarray, outer: int) -> np.ndarray:
    """A matrix whose rows are the first `outer` dimensions, whose columns all others."""
    if values.ndim == 2:
        return values
    rows = int(np.prod(values.shape[:outer]))
    return values.reshape(rows, -1)


def _integer_sums(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    outer = b.ndim - a.ndim + 1
    if kind not in _STRETCH:
        wide = [_matrix(x.astype(np.int64), n) for x, n in ((a, 1), (b, outer))]
        return np.matmul(wide[0], wide[1].T).astype(np.int32)
    through, stretch = _STRETCH[kind]
    # Rows together, whatever the order in the memory: columns are taken in stretches and several loops are one.
    left = _matrix(a.astype(through, order="C"), 1)
    right = _matrix(b.astype(through, order="C"), outer)
    columns = left.shape[1]
    if columns <= stretch:
        return _wrapped(np.dot(left, right.T))
    sums = np.zeros((len(left), len(right)), np.int32)
    for start in range(0, columns, stretch):
        part = slice(start, start + stretch)
        sums += _wrapped(np.dot(left[:, part], right[:, part].T))
    return sums


def _wrapped(sums: np.ndarray) -> np.ndarray:
    """Whole numbers of a float type as int32, wrapped round."""
    # Those of float32 are at most 2^24 in size and fit; those of float64 may not.
    return sums.astype(np.int32) if sums.dtype == np.float32 else sums.astype(np.int64).astype(np.int32)
