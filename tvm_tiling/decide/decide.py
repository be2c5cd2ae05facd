"""decide(): the one entry to every decision, by what the workload is and what the machine has."""

from __future__ import annotations

from typing import Literal

from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload, RnnWorkload
from .conv.cpu import decide_conv_on_cpu
from .conv.tiling import ConvTiling
from .fold.wfold import decide_wfold, product_as_convolution
from .gemm.cpu import decide_on_cpu
from .gemm.partition import decide_partition
from .levels.gemm import LevelsTiling, decide_levels, has_levels
from .rnn.column import RnnTiling, decide_rnn
from .rnn.column_product import ColumnTiling, decide_column, refuse_shape
from .rnn.cpu import RnnCpuTiling, decide_rnn_on_cpu
from .tiling import GemmTiling


def decide(
    workload: GemmWorkload | ConvWorkload | RnnWorkload,
    hardware: Hardware,
    *,
    mode: Literal["best", "seed"] = "best",
    prefer: Literal["utilisation", "traffic"] = "utilisation",
    acc_factor: float = 0.5,
    outer_preset: str | int | None = None,
    inner_preset: str | int | None = None,
    form: str | None = None,
) -> GemmTiling | ConvTiling | LevelsTiling | ColumnTiling | RnnTiling | RnnCpuTiling:
    """How `workload` is cut on `hardware`. Milliseconds, no TVM. Sources: pages 01, 03 and 05.

    mode: "best", or "seed" for the formulas as printed (accelerators only). prefer: "utilisation" or "traffic".
    `prefer`, `acc_factor`, `outer_preset` and `inner_preset` belong to page 01; `form` forces a kernel on a CPU, or
    "wfold" on page 05's machine, which takes convolutions that way in any case, and products as convolutions of one tap
    where it has no other engine. A convolution on page 01's machine is cut as its matrix product: a GemmTiling; on a
    machine with several storage levels a LevelsTiling (page 02). Page 04's machine takes products of a matrix by a
    vector: a ColumnTiling, and recurrent layers: an RnnTiling, as on a CPU an RnnCpuTiling.
    Raises HardwareError where the machine has no unit for it or nothing fits, UnsupportedOperator for an unknown
    workload or one that the form does not serve.
    """
    if not isinstance(workload, GemmWorkload | ConvWorkload | RnnWorkload):
        raise UnsupportedOperator(
            f"{type(workload).__name__} is not a workload; accepted: GemmWorkload, ConvWorkload, RnnWorkload"
        )
    # What page 01's machine takes and others do not, with the one value that says nothing.
    foreign: dict[str, tuple[object, object]] = {
        "prefer": (prefer, "utilisation"),
        "acc_factor": (acc_factor, 0.5),
        "outer_preset": (outer_preset, None),
        "inner_preset": (inner_preset, None),
    }
    if isinstance(workload, RnnWorkload):
        _refuse(foreign, hardware)
        if form is not None:
            raise HardwareError(
                f"form = {form!r} is a product's or a convolution's, not recurrent layers'; accepted: None"
            )
        if hardware.column is None and hardware.cpu is not None:
            _refuse({"mode": (mode, "best")}, hardware)
            return decide_rnn_on_cpu(workload, hardware)
        return decide_rnn(workload, hardware, mode=mode)
    if isinstance(workload, GemmWorkload) and hardware.w_fold is not None and hardware.near_tile is None:
        workload = product_as_convolution(workload)
    if hardware.w_fold is not None and isinstance(workload, ConvWorkload):
        if form not in (None, "wfold"):
            raise HardwareError(
                f"form = {form!r} is no form of a convolution on {hardware.name}, page 05's machine; accepted: 'wfold'"
            )
        _refuse(foreign, hardware)
        return decide_wfold(workload, hardware, mode=mode)
    if hardware.near_tile is not None:
        if form is not None:
            raise HardwareError(
                f"form = {form!r} is for CPUs and page 05's machine, {hardware.name} has page 01's; accepted: None"
            )
        if has_levels(hardware):
            _refuse({"mode": (mode, "best"), **foreign}, hardware)
            return decide_levels(workload, hardware)
        return decide_partition(
            workload,
            hardware,
            mode=mode,
            prefer=prefer,
            acc_factor=acc_factor,
            outer_preset=outer_preset,
            inner_preset=inner_preset,
        )
    _refuse({"mode": (mode, "best"), **foreign}, hardware)
    if hardware.cpu is None:
        refuse_shape(workload, hardware)
        if form is not None:
            raise HardwareError(
                f"form = {form!r} is for CPUs and page 05's machine, {hardware.name} is none; accepted: None"
            )
        assert isinstance(workload, GemmWorkload)  # refuse_shape has refused others
        return decide_column(workload, hardware)
    if isinstance(workload, ConvWorkload):
        return decide_conv_on_cpu(workload, hardware, form=form, packing="ahead")
    return decide_on_cpu(workload, hardware, form=form)


def _refuse(foreign: dict[str, tuple[object, object]], hardware: Hardware) -> None:
    """Refuse every option whose value is not the one that says nothing."""
    for name, (value, silent) in foreign.items():
        if value != silent:
            raise HardwareError(
                f"{name} = {value!r} needs page 01's buffers alone, which {hardware.name} has not; accepted: {silent!r}"
            )
