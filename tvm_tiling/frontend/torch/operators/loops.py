"""Kernels written as explicit loops, for algorithms in which each step depends on the previous one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as tir

from ..translation import Translation, shape_of
from .views import permuted, reshaped

# TVM's attribute for an unfusible kernel: these loops are not those of a TE computation.
ALONE = {"op_pattern": 8}


def looped(
    t: Translation,
    name: str,
    operands: Sequence[relax.Expr],
    results: Sequence[tuple[Sequence[int], str]],
    body: Callable[..., None],
) -> list[relax.Expr]:
    """The results, given by shape and type, of a kernel whose loops `body` emits with TVM's builder.

    `body` takes the buffers of the operands and of the results. A result may serve as scratch space.
    """

    def compute(*tensors: te.Tensor) -> Any:
        def write(ins: list[tirx.Buffer], outs: list[tirx.Buffer]) -> tirx.Stmt:
            with IRBuilder() as builder:
                with tir.seq_scope():
                    body(*(tir.buffer_proxy(buffer) for buffer in (*ins, *outs)))
                return builder.get()

        shapes, dtypes = [tuple(shape) for shape, _ in results], [dtype for _, dtype in results]
        return te.extern(shapes, list(tensors), write, dtype=dtypes, name=name)

    found = t.te(compute, *operands, primfunc_name_hint=name, primfunc_attrs=ALONE)
    if len(results) == 1:
        return [found]
    return [t.emit(relax.TupleGetItem(found, place)) for place in range(len(results))]


def lines(t: Translation, value: relax.Expr, axis: int) -> relax.Expr:
    """A tensor as rows along an axis: (flattened other axes, that axis)."""
    shape = shape_of(value)
    order = [place for place in range(len(shape)) if place != axis] + [axis]
    return reshaped(t, permuted(t, value, order), (prod(shape) // max(shape[axis], 1), shape[axis]))


def from_lines(t: Translation, rows: relax.Expr, axis: int, shape: Sequence[int]) -> relax.Expr:
    """The inverse of `lines`, where the axis may have a different extent; `shape` is that of the result."""
    rest = [extent for place, extent in enumerate(shape) if place != axis]
    order = [*range(axis), len(shape) - 1, *range(axis, len(shape) - 1)]
    apart = t.emit(op.reshape(rows, (*rest, shape[axis])))
    return permuted(t, apart, order)
