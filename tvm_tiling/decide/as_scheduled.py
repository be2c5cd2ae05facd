"""The form in which a machine schedules an operator. Decisions, database look-ups and measurements all use this form.

A matrix engine runs a pointwise convolution as a matrix multiplication; a CPU runs a matrix multiplication with one
output column as one with a single row.
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware.description import Hardware
from ..operand_types import PLAIN, PREPACKED
from ..workload import ConvWorkload, GemmWorkload
from .conv.cpu_conv import as_product


def as_scheduled(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> GemmWorkload | ConvWorkload:
    """Return the operator that is decided, looked up and measured when `workload` runs on `hardware`.

    On a matrix engine, a pointwise convolution without stride, padding or groups becomes a GEMM: output points by
    output channels for NHWC, and a single NCHW image with both operands transposed. Any other operator is returned
    unchanged.
    """
    if hardware.cpu is not None or hardware.near_tile is None or not isinstance(workload, ConvWorkload):
        return workload
    w, product = workload, as_product(workload)
    if product is None or w.d > 1 or (w.layout != "NHWC" and (w.layout != "NCHW" or w.n > 1)):
        return workload
    if w.layout == "NHWC":
        return product
    return GemmWorkload(m=w.h * w.w, n=w.co, k=w.ci, trans_a=True, trans_b=True, **w.type_fields(exchanged=True))


def asked_for(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool
) -> tuple[GemmWorkload | ConvWorkload, bool]:
    """Return the operator to decide or to look up, and whether its weights are prepacked.

    CPU kernels store whole rows, so the operands of a matrix multiplication with one output column are exchanged.
    Weights that form a single column are read in place and never prepacked.
    """
    if hardware.cpu is not None and workload.encoding == PREPACKED:
        workload, prepacked = replace(workload, encoding=PLAIN), True
    if hardware.cpu is None or not isinstance(workload, GemmWorkload) or workload.n > 1:
        return as_scheduled(workload, hardware), prepacked
    return (workload if workload.m == 1 else workload.exchanged()), False
