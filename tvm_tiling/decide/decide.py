"""decide(): the one entry to every decision, by what the workload is and what the machine has."""

from __future__ import annotations

from typing import Literal

from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload
from .gemm_cpu import decide_on_cpu
from .gemm_partition import decide_partition
from .tiling import GemmTiling


def decide(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    *,
    mode: Literal["best", "seed"] = "best",
    prefer: Literal["utilisation", "traffic"] = "utilisation",
    acc_factor: float = 0.5,
    outer_preset: str | int | None = None,
    inner_preset: str | int | None = None,
    form: str | None = None,
) -> GemmTiling:
    """How `workload` is cut on `hardware`. Milliseconds, no TVM. Sources: pages 01 and 03.

    mode: "best", or "seed" for the formulas as printed (machines with input buffers only). prefer: "utilisation" or
    "traffic". `acc_factor`, `outer_preset` and `inner_preset` belong to page 01; `form` forces a kernel on a CPU.
    Raises HardwareError where the machine has no unit for it or nothing fits, UnsupportedOperator for an unknown
    workload.
    """
    if not isinstance(workload, GemmWorkload | ConvWorkload):
        raise UnsupportedOperator(f"{type(workload).__name__} is not a workload; accepted: GemmWorkload, ConvWorkload")
    if hardware.near_tile is not None:
        if form is not None:
            raise HardwareError(f"form = {form!r} is for CPUs; {hardware.name} has page 01's units")
        return decide_partition(
            workload,
            hardware,
            mode=mode,
            prefer=prefer,
            acc_factor=acc_factor,
            outer_preset=outer_preset,
            inner_preset=inner_preset,
        )
    if isinstance(workload, ConvWorkload):
        raise UnsupportedOperator(
            f"convolutions are decided for page 01's buffers, {hardware.name} has none; accepted: a machine with a "
            "[near_tile] table, such as the preset 'neartile'"
        )
    # What page 01's machine takes and a CPU does not, with the one value that says nothing.
    foreign = {
        "mode": (mode, "best"),
        "prefer": (prefer, "utilisation"),
        "acc_factor": (acc_factor, 0.5),
        "outer_preset": (outer_preset, None),
        "inner_preset": (inner_preset, None),
    }
    for name, (value, silent) in foreign.items():
        if value != silent:
            raise HardwareError(
                f"{name} = {value!r} needs page 01's buffers, {hardware.name} has none; accepted: {silent!r}"
            )
    return decide_on_cpu(workload, hardware, form=form)
