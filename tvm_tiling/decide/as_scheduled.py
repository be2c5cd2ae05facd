"""What a machine's schedules take an operator for: what is decided, asked of a database, and measured in its place.

On a matrix engine a pointwise convolution is a matrix product; on a CPU a product with one column is one with one row.
"""

from __future__ import annotations

from dataclasses import replace

from ..hardware.description import Hardware
from ..operand_types import PLAIN, PREPACKED
from ..workload import ConvWorkload, GemmWorkload
from .conv.cpu_conv import as_product


def as_scheduled(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> GemmWorkload | ConvWorkload:
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
    return GemmWorkload(m=w.h * w.w, n=w.co, k=w.ci, trans_a=True, trans_b=True, **w.type_fields(exchanged=True))


def asked_for(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, prepacked: bool
) -> tuple[GemmWorkload | ConvWorkload, bool]:
    """The operator that a schedule decides, or asks a source of configurations for, and whether that takes its weights
    packed.

    A CPU's kernels store rows, so the operands of a product with one column change places; and weights that are one
    column are read as they are.
    """
    if hardware.cpu is not None and workload.encoding == PREPACKED:
        workload, prepacked = replace(workload, encoding=PLAIN), True
    if hardware.cpu is None or not isinstance(workload, GemmWorkload) or workload.n > 1:
        return as_scheduled(workload, hardware), prepacked
    return (workload if workload.m == 1 else workload.exchanged()), False
