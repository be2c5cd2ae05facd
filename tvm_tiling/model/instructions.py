"""The instruction set that LLVM may use in kernels for a target."""

from __future__ import annotations

import tvm
from tvm.target.codegen import llvm_get_cpu_features

from ..errors import HardwareError
from ..hardware.instruction_sets import MACHINES, InstructionSet, host_arch, instruction_set_of_this_cpu
from ..target import this_cpu


def instructions_of(target: tvm.target.Target) -> InstructionSet | None:
    """The instruction set that LLVM may use; None for an architecture without kernel support.

    A processor's name implies extensions that a hypervisor may hide: kernels for this CPU require only extensions that
    it has.
    """
    triple = str(target.attrs.get("mtriple") or "")
    arch = MACHINES.get(triple.partition("-")[0]) if triple else host_arch()
    if arch is None:
        return None
    needed = InstructionSet.of(arch, map(str, llvm_get_cpu_features(target)))
    own = instruction_set_of_this_cpu()
    if own is None or own.arch != arch or target.attrs.get("mcpu") != _own_name():
        return needed
    return InstructionSet.of(arch, set(needed.extensions) & set(own.extensions))


def _own_name() -> str:
    """LLVM's name of this CPU; empty if it has none, or if kernels are not supported on it."""
    try:
        cpu = this_cpu().cpu
    except HardwareError:
        return ""
    return cpu.mcpu if cpu is not None else ""
