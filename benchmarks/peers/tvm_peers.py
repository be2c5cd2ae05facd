"""Unmodified TVM: the default pipeline, and dlight's rules."""

from __future__ import annotations

from typing import Any

from tvm_tiling.workload import ConvWorkload, GemmWorkload

from ..operands import GemmOperands, Operands, Workload
from .base import Peer, Prepared
from .tvm_operator import bind, target, tir

MOST_MACS = 1 << 26  # without a schedule a multiply-accumulate takes a nanosecond or two


class TvmDefault(Peer):
    """tvm.compile of the workload without a schedule: the performance of an untuned model."""

    name = "tvm"
    needs = ("tvm",)
    supports = (GemmWorkload, ConvWorkload)

    def refuses(self, workload: Workload, packed: bool) -> str | None:
        return "unscheduled code would take seconds" if workload.macs > MOST_MACS else None

    def prepare(self, operands: Operands, packed: bool) -> Prepared:
        import tvm

        module = tvm.IRModule({"main": tir(operands.workload)})
        return bind(tvm.compile(module, target=target())["main"], operands)


class DLight(Peer):
    """dlight's rules for CPUs, which support some matrix-vector multiplications only."""

    name = "dlight"
    needs = ("tvm",)

    def refuses(self, workload: GemmWorkload, packed: bool) -> str | None:
        return None if _dlight(workload) is not None else "no CPU rule supports this matrix multiplication"

    def prepare(self, operands: GemmOperands, packed: bool) -> Prepared:
        import tvm

        return bind(tvm.compile(_dlight(operands.workload), target=target())["main"], operands)


def _dlight(workload: GemmWorkload) -> Any:
    """Return the scheduled module, or None if no rule applies."""
    import tvm
    from tvm.s_tir import dlight

    module = tvm.IRModule({"main": tir(workload)})
    with target():
        scheduled = dlight.ApplyDefaultSchedule(dlight.cpu.GEMV(), dlight.cpu.Reduction())(module)
    return scheduled if "tirx.is_scheduled" in (scheduled["main"].attrs or {}) else None
