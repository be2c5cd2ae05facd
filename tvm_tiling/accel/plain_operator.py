"""Reference TE implementation of a matrix multiplication or convolution with its epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from ..decide.epilogue import BIAS, CLIP, CLIPPED_AT, RELU, RESIDUAL, steps_of
from ..errors import UnsupportedOperator
from ..workload import ConvWorkload, GemmWorkload
from .plain_convolution import plain_convolution

ROWS = "m"  # the variable of a matrix multiplication with a symbolic number of rows


def plain_operator(
    workload: GemmWorkload | ConvWorkload, epilogue: str = "", *, open_rows: bool = False
) -> tirx.PrimFunc:
    """Return the workload in TE, followed by the steps that `epilogue` names (decide/epilogue.py). With `open_rows`,
    the number of rows of a matrix multiplication is a variable.

    Parameters: left, right, the operands of the steps in order, result. UnsupportedOperator for operands with padded
    rows, for convolutions that plain_convolution does not support, and for unknown epilogues.
    """
    steps = steps_of(epilogue)
    if isinstance(workload, ConvWorkload):
        inputs, result = plain_convolution(workload)
        column = -1 if workload.layout == "NHWC" else 1
    else:
        (inputs, result), column = _dense_product(workload, open_rows), -1
    added, stored = _behind(result, steps, column)
    func: tirx.PrimFunc = te.create_prim_func([*inputs, *added, stored])
    return func


def _dense_product(workload: GemmWorkload, open_rows: bool) -> tuple[list[te.Tensor], te.Tensor]:
    dense = (
        workload.m if workload.trans_a else workload.k,
        workload.k if workload.trans_b else workload.n,
        workload.n,
    )
    if (workload.lda, workload.ldb, workload.ldc) != dense:
        raise UnsupportedOperator(f"gemm: lda, ldb, ldc other than {dense} are not simulated; expected dense rows")
    return plain_product(workload, te.var(ROWS, "int64") if open_rows else workload.m)


def plain_product(workload: GemmWorkload, rows: Any = None) -> tuple[list[te.Tensor], te.Tensor]:
    """Return A and B, and C = A * B with the types, transposes and batch of the workload; `rows` overrides its m."""
    w, m = workload, workload.m if rows is None else rows
    batch = (w.batch,) if w.batch > 1 else ()
    a = te.placeholder((*batch, *((w.k, m) if w.trans_a else (m, w.k))), w.dtype, name="A")
    b = te.placeholder((*batch, *((w.n, w.k) if w.trans_b else (w.k, w.n))), w.types.b, name="B")
    r = te.reduce_axis((0, w.k), name="k")

    def element(*at: Any) -> Any:
        outer, i, j = at[:-2], at[-2], at[-1]
        of_a = (*outer, r, i) if w.trans_a else (*outer, i, r)
        of_b = (*outer, j, r) if w.trans_b else (*outer, r, j)
        return te.sum(a[of_a].astype(w.acc_dtype) * b[of_b].astype(w.acc_dtype), axis=r)

    return [a, b], te.compute((*batch, m, w.n), element, name="C")


def _behind(result: te.Tensor, steps: Sequence[str], column: int) -> tuple[list[te.Tensor], te.Tensor]:
    """Return the operands that the steps add, and the result of the steps applied to `result`; `column` is the axis
    that a bias is indexed by."""
    added: list[te.Tensor] = []
    for number, step in enumerate(steps):
        if step in (BIAS, RESIDUAL):
            shape = (result.shape[column],) if step == BIAS else result.shape
            added.append(te.placeholder(shape, result.dtype, name=f"{step}_{number}"))
        result = _stepped(result, step, column, added)
    return added, result


def _stepped(before: te.Tensor, step: str, column: int, added: Sequence[te.Tensor]) -> te.Tensor:
    def element(*at: Any) -> Any:
        value = before(*at)
        if step == RELU:
            return te.max(value, tirx.const(0, before.dtype))
        if step == CLIP:
            return te.min(value, tirx.const(CLIPPED_AT, before.dtype))
        return value + (added[-1](at[column]) if step == BIAS else added[-1](*at))

    return te.compute(before.shape, element, name=f"after_{step}")
