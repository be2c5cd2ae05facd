"""Shared parts of compiling a workload with TVM: its TIR, the target, and calls without copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tvm_tiling.hardware import Hardware
from tvm_tiling.runtime.arrays import SHARED_AS
from tvm_tiling.runtime.launcher import use_all_cores
from tvm_tiling.workload import ConvWorkload

from ..operands import ALIGNMENT, Operands, Workload
from .base import Prepared
from .tvm_conv import conv
from .tvm_product import product


@cache
def this_machine() -> Hardware:
    """Return the description of this machine, read once."""
    return Hardware.detect()


def target() -> Any:
    """Return the LLVM target of this CPU with all usable cores, the same for every variant."""
    import tvm

    cpu = this_machine().cpu
    assert cpu is not None
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu.mcpu or _system_mcpu(), "num-cores": cpu.cores})


def _system_mcpu() -> str:
    from tvm.target import codegen

    return str(codegen.llvm_get_system_cpu())


def tir(workload: Workload) -> Any:
    """Return the workload as an unscheduled TIR function of its two operands and its output."""
    return conv(workload) if isinstance(workload, ConvWorkload) else product(workload)


def as_tensor(array: Any) -> Any:
    """Return a TVM tensor on an array's own memory. tvm.runtime.from_dlpack would refuse rows with gaps between
    them."""
    import tvm_ffi

    name = array.dtype.name
    if name not in SHARED_AS:
        return tvm_ffi.from_dlpack(array, require_alignment=ALIGNMENT)
    import tvm

    assert array.flags.c_contiguous, f"rows of {name} with gaps between them"
    return tvm.runtime.from_dlpack(array.view(SHARED_AS[name]))._create_view(array.shape, name)


def bind(main: Callable[..., object], operands: Operands, note: str = "") -> Prepared:
    """Call `main` on the operands' own memory, the output last."""
    use_all_cores()
    out = operands.output()
    arguments = [as_tensor(array) for array in (*operands.inputs, out)]
    return Prepared(lambda: main(*arguments), lambda: out, note)
