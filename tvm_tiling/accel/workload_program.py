"""From a workload to its program on a machine: the operator written plainly, scheduled, recorded."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..errors import UnsupportedOperator
from ..hardware.description import Hardware
from ..schedule import tiling_schedule
from ..workload import ConvWorkload, GemmWorkload
from .plain_convolution import plain_convolution
from .program import Program
from .record import record


def workload_program(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> Program:
    """The program of `tiling_schedule` for a product or a convolution. UnsupportedOperator for operands with longer
    rows than their data and for convolutions that plain_convolution does not write; HardwareError where the machine
    cannot do it."""
    if isinstance(workload, ConvWorkload):
        return record(tiling_schedule(plain_convolution(workload), target=hardware).mod, hardware)
    dense = (
        workload.m if workload.trans_a else workload.k,
        workload.k if workload.trans_b else workload.n,
        workload.n,
    )
    if (workload.lda, workload.ldb, workload.ldc) != dense:
        raise UnsupportedOperator(f"gemm: lda, ldb, ldc other than {dense} are not simulated; accepted: dense rows")
    return record(tiling_schedule(plain_product(workload), target=hardware).mod, hardware)


def plain_product(workload: GemmWorkload) -> tirx.PrimFunc:
    """C = A * B as TE writes it, with the workload's types, transposes and batch."""
    w = workload
    batch = (w.batch,) if w.batch > 1 else ()
    a = te.placeholder((*batch, *((w.k, w.m) if w.trans_a else (w.m, w.k))), w.dtype, name="A")
    b = te.placeholder((*batch, *((w.n, w.k) if w.trans_b else (w.k, w.n))), w.dtype, name="B")
    r = te.reduce_axis((0, w.k), name="k")

    def element(*at: Any) -> Any:
        outer, i, j = at[:-2], at[-2], at[-1]
        of_a = (*outer, r, i) if w.trans_a else (*outer, i, r)
        of_b = (*outer, j, r) if w.trans_b else (*outer, r, j)
        return te.sum(a[of_a].astype(w.acc_dtype) * b[of_b].astype(w.acc_dtype), axis=r)

    c = te.compute((*batch, w.m, w.n), element, name="C")
    func: tirx.PrimFunc = te.create_prim_func([a, b, c])
    return func
