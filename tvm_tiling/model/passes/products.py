"""Matrix multiplications in the form that their kernels compute best.

Operands that are transposed by an operator of their own are read as they are stored: the kernels transpose while they
pack. Multiplications with K = 1, outer products, have one term per result: they are element-wise operators, unless rows
of the result are so long that the right operand leaves L1 between two of them, which tiles of several rows avoid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op

from .dataflow import Expr, Rewriter, ints, is_op, rewrite, shape_of

_FLOATS = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes
# Bytes of a row of an outer product up to which it is element-wise: 256 x 4096 in float32 takes 0.54 of the time of
# tiles, 32 x 30000 takes 1.14, 8 x 100000 takes 1.33.
_LONGEST_ROW = 16 << 10


def with_plain_products(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with its matmul operators that read transposed operands, or have K = 1, rewritten."""
    return rewrite(mod, _product)


def _product(rewriter: Rewriter, variable: relax.Var, call: Expr) -> Expr | None:
    if not is_op(call, "matmul"):
        return None
    shapes = [shape_of(operand) for operand in call.args]
    types = [str(value.ty.dtype) for value in (*call.args, variable)]
    left, right = shapes
    if left is None or right is None or min(len(left), len(right)) < 2:
        return None
    if len({*types}) > 1 or types[0] not in _FLOATS:
        return None
    if left[-1] == 1 and right[-1] * _FLOATS[types[0]] <= _LONGEST_ROW:
        return op.multiply(*call.args)
    return _of_transposed(rewriter, call)


def _of_transposed(rewriter: Rewriter, call: relax.Call) -> Expr | None:
    """The matrix multiplication of the operands before their transposition; None if neither is transposed."""
    sources = [_before_transposition(rewriter, operand) for operand in call.args]
    if sources == [None, None]:
        return None
    operands = []
    for operand, source in zip(call.args, sources, strict=True):
        if source is not None:
            rewriter.take_name(operand)
        operands.append(operand if source is None else source)
    turned = [source is not None for source in sources]
    return rewriter.builder.call_te(_multiplied, *operands, *turned, primfunc_name_hint="matmul_transposed")


def _before_transposition(rewriter: Rewriter, operand: Expr) -> Expr | None:
    """The source of an operand whose last two axes were exchanged; None if that is not all that was done."""
    value, shape = rewriter.value(operand), shape_of(operand)
    if not is_op(value, "permute_dims") or shape is None:
        return None
    rank = len(shape)
    axes = [*range(rank)][::-1] if value.attrs.axes is None else [axis % rank for axis in ints(value.attrs.axes)]
    return value.args[0] if axes == [*range(rank - 2), rank - 1, rank - 2] else None


def _multiplied(a: te.Tensor, b: te.Tensor, turned_a: bool, turned_b: bool) -> te.Tensor:
    """The product of two tensors of matrices; `turned_a`, `turned_b`: the operand is stored transposed."""
    (*batch_a, rows, depth), (*batch_b, _, columns) = (
        [*tensor.shape[:-2], *(tensor.shape[-2:][::-1] if turned else tensor.shape[-2:])]
        for tensor, turned in ((a, turned_a), (b, turned_b))
    )
    batch = np.broadcast_shapes(*([int(size) for size in sizes] for sizes in (batch_a, batch_b)))
    summed = te.reduce_axis((0, depth), name="k")

    def element(
        tensor: te.Tensor, outer: Sequence[tirx.Var], row: tirx.Var, column: tirx.Var, turned: bool
    ) -> tirx.Expr:
        sizes = tensor.shape[:-2]
        own = [0 if int(size) == 1 else at for size, at in zip(sizes, outer[len(outer) - len(sizes) :], strict=True)]
        matrix = (column, row) if turned else (row, column)
        return tensor(*own, *matrix)

    def result(*at: tirx.Var) -> tirx.Expr:
        *outer, i, j = at
        left, right = element(a, outer, i, summed, turned_a), element(b, outer, summed, j, turned_b)
        return te.sum(left * right, axis=summed)

    return te.compute((*batch, rows, columns), result, name="matmul")
