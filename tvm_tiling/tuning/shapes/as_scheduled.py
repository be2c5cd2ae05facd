"""What a machine's schedules take an operator for.

On a matrix engine a pointwise convolution is a matrix product; on a CPU a product with one column is one with one row.
"""

from __future__ import annotations

from dataclasses import replace

from ...decide.conv.cpu import as_product
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from .key import Workload, dense_rows


def as_scheduled(workload: Workload, hardware: Hardware) -> Workload:
    """The operator that is asked for, cut and measured where `workload` is computed on `hardware`.

    A matrix engine takes convolutions of one tap, without stride, border and groups, as products: points by output
    channels (NHWC), of one image in NCHW with both operands transposed. Everything else is itself.
    """
    if hardware.cpu is not None or hardware.near_tile is None or not isinstance(workload, ConvWorkload):
        return workload
    w, product = workload, as_product(workload)
    if product is None or w.d > 1 or (w.layout != "NHWC" and (w.layout != "NCHW" or w.n > 1)):
        return workload
    if w.layout == "NHWC":
        return product
    return GemmWorkload(m=w.h * w.w, n=w.co, k=w.ci, dtype=w.dtype, acc_dtype=w.acc_dtype, trans_a=True, trans_b=True)


def asked_for(workload: Workload, hardware: Hardware, ahead: bool) -> tuple[Workload, bool]:
    """The operator that a schedule asks a source of cuts for, and whether that takes its weights packed.

    A CPU's kernels store rows, so the operands of a product with one column change places; and weights that are one
    column are read as they are.
    """
    if hardware.cpu is None or not isinstance(workload, GemmWorkload) or workload.n > 1:
        return as_scheduled(workload, hardware), ahead
    w = workload
    if w.m == 1 or (w.lda, w.ldb, w.ldc) != dense_rows(w):
        return w, False
    rows = replace(w, m=1, n=w.m, trans_a=False, trans_b=not w.trans_a, lda=None, ldb=None, ldc=None)
    return replace(rows, memory_a=w.memory_b, memory_b=w.memory_a), False
