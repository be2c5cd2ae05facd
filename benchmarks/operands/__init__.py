"""The arrays of a case, the expected result, and its tolerance: one file for each kind of workload."""

from __future__ import annotations

from tvm_tiling.workload import ConvWorkload

from .base import ALIGNMENT, Operands, Workload, aligned
from .conv import ConvOperands
from .gemm import GemmOperands

__all__ = ["ALIGNMENT", "ConvOperands", "GemmOperands", "Operands", "Workload", "aligned", "random_operands"]


def random_operands(workload: Workload, seed: int = 0) -> Operands:
    """Return operands for the workload's kind, the same for the same seed."""
    if isinstance(workload, ConvWorkload):
        return ConvOperands.random(workload, seed)
    return GemmOperands.random(workload, seed)
