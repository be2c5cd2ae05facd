"""Recombines indices of fused axes that are adjacent in memory.

The rows of a matrix multiplication are a batch and positions, m = b * s + i. If b and s are constants, TVM cancels m //
s * s + m % s; if s is symbolic, the division would be computed for every element. In a tensor whose second axis has s
elements, the element [m // s, m % s] has the same address as [0, m].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

Expr: TypeAlias = tirx.Expr


def with_joined_axes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with such indices of its parameters recombined; parameters with strides are excluded."""
    parameters = {p for p in func.params if hasattr(p, "shape") and not len(p.strides)}

    def load(found: TensorLoad) -> Expr:
        if found.source not in parameters:
            return found
        joined = joined_indices(found.source.shape, found.indices)
        return found if joined is None else tirx.BufferLoad(found.source, joined)

    def store(found: tirx.BufferStore) -> tirx.Stmt:
        joined = joined_indices(found.buffer.shape, found.indices) if found.buffer in parameters else None
        return found if joined is None else tirx.BufferStore(found.buffer, found.value, joined)

    body = tvm_ffi.structural_map(func.body, [(TensorLoad, load), (tirx.BufferStore, store)])
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _without_zero(index: Expr) -> Expr:
    """Return an index without an added 0, as produced by a window of one element."""
    plain = isinstance(index, tirx.Add) and isinstance(index.b, tirx.IntImm) and int(index.b) == 0
    return _without_zero(index.a) if plain else index


def joined_indices(shape: Sequence[Expr], indices: Sequence[Expr]) -> list[Expr] | None:
    """Return the indices with each adjacent pair x // s, x % s replaced by 0, x; None if there is no such pair."""
    found, changed = [_without_zero(index) for index in indices], False
    for axis in range(len(found) - 1):
        quotient, rest = found[axis], found[axis + 1]
        if (
            isinstance(quotient, tirx.FloorDiv)
            and isinstance(rest, tirx.FloorMod)
            and not isinstance(quotient.b, tirx.IntImm)
            and tvm_ffi.structural_equal(quotient.a, rest.a)
            and tvm_ffi.structural_equal(quotient.b, rest.b)
            and tvm_ffi.structural_equal(rest.b, shape[axis + 1])
        ):
            found[axis], found[axis + 1] = tirx.const(0, str(quotient.ty)), quotient.a
            changed = True
    return found if changed else None
