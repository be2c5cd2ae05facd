"""GEMM, WCONV and COLMV: sums of products, exact in integers (page 06).

Integers are multiplied by the machine's float matrix product, which is much faster than NumPy's for integers, over
stretches of k short enough for every partial sum to be a whole number that the float type holds:

    type     through    largest product    stretch of k    largest sum
    int8     float32    2^14               2^10            2^24
    uint8    float32    255^2              2^8             < 2^24
    int16    float64    2^30               2^22            2^52

Stretches are added in int32, which wraps round as the hardware's adders do; so does int16, where sums are kept in it.
int32 operands are multiplied as int64, whose low half is the wrapped product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..program.elements import as_float32, is_integer, narrowed
from ..program.isa import ElementType

_STRETCH: dict[int, tuple[type[Any], int | None]] = {
    ElementType.INT8: (np.float32, 1 << 10),
    ElementType.UINT8: (np.float32, 1 << 8),
    ElementType.INT16: (np.float64, 1 << 22),
}


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, kinds: tuple[int, int], accumulate: bool) -> None:
    """c[m, n0, n1] (+)= sum over k0, k1, k2 of a[m, k0, k1, k2] * b[n0, n1, k0, k1, k2].

    Views of stored elements: a and b of kinds[0], c of kinds[1]. Integers sum in c's type, int32 or int16. Floats sum
    in float32, to which c is added, and are rounded once, to the type of c. Where n0, k0 and k1 are 1, they may be left
    out of all three: a[m, k], b[n, k], c[m, n].
    """
    kind, result = kinds
    sums = _integer_sums(a, b, kind) if is_integer(kind) else _float_sums(a, b, kind)
    if c.ndim > 2:
        sums = sums.reshape(c.shape)
    if not is_integer(result) and result != ElementType.FLOAT32:
        c[...] = narrowed(as_float32(c, result) + sums if accumulate else sums, result)
    elif accumulate:
        np.add(c, sums.astype(c.dtype, copy=False), out=c)
    else:
        c[...] = sums.astype(c.dtype, copy=False)


def _float_sums(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    left, right = (x if kind == ElementType.FLOAT32 else as_float32(x, kind) for x in (a, b))
    if a.ndim > 2:
        left, right = _as_matrices(left, right)
    return left.dot(right.T)


def _integer_sums(a: np.ndarray, b: np.ndarray, kind: int) -> np.ndarray:
    """The sums in int32, wrapped round."""
    through, stretch = _STRETCH.get(kind, (np.int64, None))
    # Rows together, whatever their order in the memory: several loops are one then, and stretches are cut off easily.
    left, right = a.astype(through, order="C"), b.astype(through, order="C")
    if a.ndim > 2:
        left, right = _as_matrices(left, right)
    columns = left.shape[1]
    if stretch is None or columns <= stretch:
        return _wrapped(left.dot(right.T))
    sums = np.zeros((len(left), len(right)), np.int32)
    for start in range(0, columns, stretch):
        part = slice(start, start + stretch)
        sums += _wrapped(left[:, part].dot(right[:, part].T))
    return sums


def _as_matrices(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return a.reshape(a.shape[0], -1), b.reshape(b.shape[0] * b.shape[1], -1)


def _wrapped(sums: np.ndarray) -> np.ndarray:
    """Whole numbers of any type as int32, wrapped round."""
    # A float64 beyond int32 does not wrap when it becomes one; those of float32 are at most 2^24.
    return (sums.astype(np.int64) if sums.dtype == np.float64 else sums).astype(np.int32)
