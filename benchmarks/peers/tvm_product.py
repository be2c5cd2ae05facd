"""A matrix multiplication as unscheduled TVM code."""

from __future__ import annotations

from typing import Any

from tvm_tiling.workload import ConvWorkload, GemmWorkload


def product(workload: GemmWorkload) -> Any:
    """Return the TIR of the matrix multiplication: strided if any leading dimension is longer than its row, else
    dense."""
    dense = (workload.lda, workload.ldb, workload.ldc) == (workload.k, workload.n, workload.n)
    return dense_product(workload) if dense else strided_product(workload)


def strided_product(workload: GemmWorkload) -> Any:
    """C = A B as an unscheduled TIR function of A, B and C, with the workload's leading dimensions."""
    from tvm.script import tirx

    m, k, n = workload.m, workload.k, workload.n
    lda, ldb, ldc = workload.lda, workload.ldb, workload.ldc
    element, total = workload.dtype, workload.acc_dtype
    assert workload.types.out == total, "rows with gaps between them must be stored in the accumulation type"

    @tirx.prim_func(s_tir=True)
    def main(a_handle: tirx.handle, b_handle: tirx.handle, c_handle: tirx.handle):
        tirx.func_attr({"global_symbol": "main", "tirx.noalias": True})
        A = tirx.match_buffer(a_handle, (m, k), element, strides=(lda, 1))
        B = tirx.match_buffer(b_handle, (k, n), element, strides=(ldb, 1))
        C = tirx.match_buffer(c_handle, (m, n), total, strides=(ldc, 1))
        for i, j, r in tirx.grid(m, n, k):
            with tirx.sblock("C"):
                vi, vj, vr = tirx.axis.remap("SSR", [i, j, r])
                with tirx.init():
                    C[vi, vj] = tirx.cast(0, total)
                C[vi, vj] = C[vi, vj] + tirx.cast(A[vi, vr], total) * tirx.cast(B[vr, vj], total)

    return main


def dense_product(workload: GemmWorkload) -> Any:
    """The same for dense rows, as te defines it, which TVM's own rules recognise."""
    from tvm import te

    w = workload
    a, b = te.placeholder((w.m, w.k), w.dtype, name="A"), te.placeholder((w.k, w.n), w.dtype, name="B")
    r = te.reduce_axis((0, w.k), name="k")
    c = te.compute(
        (w.m, w.n), lambda i, j: te.sum(a[i, r].astype(w.acc_dtype) * b[r, j].astype(w.acc_dtype), axis=r), name="C"
    )
    return te.create_prim_func([a, b, stored(c, w)])


def stored(summed: Any, workload: GemmWorkload | ConvWorkload) -> Any:
    """Convert the sums to the result's type."""
    from tvm import topi

    return summed if workload.types.out == workload.types.acc else topi.cast(summed, workload.types.out)
