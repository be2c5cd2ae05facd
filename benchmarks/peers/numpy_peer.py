"""NumPy, which bundles OpenBLAS."""

from __future__ import annotations

import numpy as np

from tvm_tiling.operand_types import HALVES
from tvm_tiling.workload import GemmWorkload

from ..operands import GemmOperands
from .base import Peer, Prepared

MOST_INT8_MACS = 512**3  # NumPy has no BLAS for integers: about one multiply-accumulate per nanosecond


class NumPy(Peer):
    """np.matmul into an existing array. OpenBLAS uses every core by default and has no interface for packed weights."""

    name = "numpy"
    needs = ("numpy",)

    def refuses(self, workload: GemmWorkload, packed: bool) -> str | None:
        if workload.dtype == "int8" and workload.macs > MOST_INT8_MACS:
            return "no fast int8 matrix multiplication; would take seconds"
        return f"has no library kernel for {workload.dtype}" if workload.dtype in HALVES else None

    def prepare(self, operands: GemmOperands, packed: bool) -> Prepared:
        a, b, out = operands.a, operands.b, operands.output()
        if operands.workload.dtype == "int8":
            return Prepared(lambda: np.matmul(a, b, out=out, dtype=np.int32), lambda: out)
        return Prepared(lambda: np.matmul(a, b, out=out), lambda: out)
