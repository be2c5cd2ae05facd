"""Which machine a target means, without TVM where the target is none of TVM's own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

from ..hardware.description import Hardware
from ..target import vsim_hardware

if TYPE_CHECKING:
    import tvm

Target: TypeAlias = "str | Hardware | tvm.target.Target"


def machine_of(target: Target) -> Hardware:
    """The machine of a target as tiling_schedule takes it; HardwareError for anything else."""
    if isinstance(target, Hardware):
        return target
    if target == "llvm":
        return _this_cpu()
    if isinstance(target, str) and (machine := vsim_hardware(target)) is not None:
        return machine
    from ..schedule import hardware_of

    return hardware_of(target)


@functools.lru_cache(maxsize=1)
def _this_cpu() -> Hardware:
    return Hardware.detect()
