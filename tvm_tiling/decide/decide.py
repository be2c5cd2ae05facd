"""decide(): the one entry to every decision, by what the workload is and what the machine has.

What explains, schedules, compiles, tunes and fills a database asks `decided` with the same workload, machine, options
and surroundings, and so gets the same decision; decide() is its public form, for an operator on its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from ..errors import HardwareError, UnsupportedOperator
from ..hardware.description import Hardware
from ..workload import ConvWorkload, GemmWorkload, RnnWorkload
from .as_scheduled import asked_for
from .conv.cpu import decide_conv_on_cpu
from .conv.tiling import ConvTiling
from .fold.wfold import decide_wfold, product_as_convolution
from .gemm.cpu import decide_on_cpu
from .levels.gemm import LevelsTiling, decide_levels, has_levels
from .options import Options
from .rnn.column import RnnTiling, decide_rnn
from .rnn.column_product import ColumnTiling, decide_column, refuse_shape
from .rnn.cpu import RnnCpuTiling, decide_rnn_on_cpu
from .surroundings import Surroundings
from .tiling import GemmTiling, Reason

WEIGHTS = ("plain", "packed")


def decide(
    workload: GemmWorkload | ConvWorkload | RnnWorkload,
    hardware: Hardware | str | None = None,
    *,
    mode: Literal["best", "seed"] = "best",
    prefer: Literal["utilisation", "traffic"] = "utilisation",
    acc_factor: float = 0.5,
    outer_preset: str | int | None = None,
    inner_preset: str | int | None = None,
    form: str | None = None,
    weights: str = "plain",
) -> GemmTiling | ConvTiling | LevelsTiling | ColumnTiling | RnnTiling | RnnCpuTiling:
    """The tiling of `workload` on `hardware` as tiling_schedule writes it: a Hardware, the name of a preset, a TOML
    file, or None for this CPU. Milliseconds, no TVM.

    mode: "best", or "seed" for the formulas as printed (accelerators only). prefer: "utilisation" or "traffic".
    `prefer`, `acc_factor`, `outer_preset` and `inner_preset` belong to machines with buffers alone (design page 01);
    `form` forces a kernel on a CPU, or "wfold" on a W-fold machine, which takes convolutions that way in any case, and
    matrix multiplications as convolutions of one tap where it has no other engine. `weights` "packed" is for weights
    that are prepacked when a model is compiled, on CPUs; "plain" ones are packed while a kernel runs.

    A convolution on a machine with buffers is a ConvPartition: its matrix multiplication with the blocks of the
    program; a pointwise one is decided as the matrix multiplication, points by output channels, that it is scheduled
    as, and so is a single column on a CPU, as a single row. On a machine with several storage levels a convolution is a
    LevelsTiling. The column engine takes matrix-vector multiplications: a ColumnTiling, and recurrent layers: an
    RnnTiling, as on a CPU an RnnCpuTiling.
    Raises HardwareError if the machine has no unit for it or nothing fits, UnsupportedOperator for an unknown workload
    or one that the form does not support.
    """
    if not isinstance(workload, GemmWorkload | ConvWorkload | RnnWorkload):
        raise UnsupportedOperator(
            f"{type(workload).__name__} is not a workload; accepted: GemmWorkload, ConvWorkload, RnnWorkload"
        )
    if weights not in WEIGHTS:
        raise UnsupportedOperator(f"weights = {weights!r}; accepted: {', '.join(map(repr, WEIGHTS))}")
    machine = hardware if isinstance(hardware, Hardware) else _machine(hardware)
    if weights == "packed" and machine.cpu is None:
        raise HardwareError(f"weights = 'packed' is for CPUs, {machine.name} has no cpu; accepted: 'plain'")
    # What page 01's machine takes and others do not, with the one value that says nothing.
    partition: dict[str, tuple[object, object]] = {
        "prefer": (prefer, "utilisation"),
        "acc_factor": (acc_factor, 0.5),
        "outer_preset": (outer_preset, None),
        "inner_preset": (inner_preset, None),
    }
    folds = machine.w_fold is not None and isinstance(workload, ConvWorkload)
    if machine.near_tile is None or has_levels(machine) or folds or isinstance(workload, RnnWorkload):
        _refuse(partition, machine)
    if isinstance(workload, RnnWorkload):
        return _recurrent(workload, machine, mode, form)
    asked, ahead = asked_for(workload, machine, weights == "packed")
    around = Surroundings(ahead=ahead, exchanged=asked != workload and machine.cpu is not None)
    given = {name: value for name, (value, _) in partition.items()}
    return decided(asked, machine, Options(form=form, mode=mode, ahead=ahead), around, given)


def decided(
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    options: Options,
    around: Surroundings,
    partition: dict[str, Any] | None = None,
) -> GemmTiling | ConvTiling | LevelsTiling | ColumnTiling:
    """The decision for an operator where it stands: `around` tells what its place settles, `options` what the caller
    does; `partition` are page 01's own options. Errors as decide."""
    form, mode = options.form, options.mode
    if isinstance(workload, GemmWorkload) and hardware.w_fold is not None and hardware.near_tile is None:
        workload = product_as_convolution(workload)
    if hardware.w_fold is not None and isinstance(workload, ConvWorkload):
        if form not in (None, "wfold"):
            raise HardwareError(
                f"form = {form!r} is no form of a convolution on {hardware.name}, page 05's machine; accepted: 'wfold'"
            )
        return decide_wfold(workload, hardware, mode=mode)
    if hardware.near_tile is not None:
        if form is not None:
            raise HardwareError(
                f"form = {form!r} is for CPUs and page 05's machine, {hardware.name} has page 01's; accepted: None"
            )
        if has_levels(hardware):
            _refuse({"mode": (mode, "best")}, hardware)
            return decide_levels(workload, hardware, behind=around.behind)
        from .near_tile import decide_near_tile  # NumPy, which a CPU does without

        return decide_near_tile(workload, hardware, mode=mode, **(partition or {}))
    _refuse({"mode": (mode, "best")}, hardware)
    if hardware.cpu is None:
        refuse_shape(workload, hardware)
        if form is not None:
            raise HardwareError(
                f"form = {form!r} is for CPUs and page 05's machine, {hardware.name} is none; accepted: None"
            )
        assert isinstance(workload, GemmWorkload)  # refuse_shape has refused others
        return decide_column(workload, hardware)
    if isinstance(workload, ConvWorkload):
        return decide_conv_on_cpu(
            workload,
            hardware,
            form=form,
            packing=around.packing,
            source=around.source,
            winograd=options.winograd,
            tolerance=options.tolerance,
        )
    tiling = decide_on_cpu(
        workload,
        hardware,
        form=form,
        microkernel=options.microkernel,
        packing=around.packing,
        plain_a=around.plain_a,
        plain_b=around.plain_b,
        accumulates_in_output=around.accumulates,
    )
    if around.exchanged:
        why = "exchanged, so that the contiguous axis of the result is n: A stands for the second operand"
        tiling = replace(tiling, reasons=(*tiling.reasons, Reason("operands", "exchanged", why)))
    return tiling


def _machine(named: str | None) -> Hardware:
    return Hardware.detect() if named is None else Hardware.load(named)


def _recurrent(
    workload: RnnWorkload, hardware: Hardware, mode: Literal["best", "seed"], form: str | None
) -> RnnTiling | RnnCpuTiling:
    if form is not None:
        raise HardwareError(f"form = {form!r} is a product's or a convolution's, not recurrent layers'; accepted: None")
    if hardware.column is None and hardware.cpu is not None:
        _refuse({"mode": (mode, "best")}, hardware)
        return decide_rnn_on_cpu(workload, hardware)
    return decide_rnn(workload, hardware, mode=mode)


def _refuse(foreign: dict[str, tuple[object, object]], hardware: Hardware) -> None:
    """Refuse every option whose value is not the one that says nothing."""
    for name, (value, silent) in foreign.items():
        if value != silent:
            raise HardwareError(
                f"{name} = {value!r} needs page 01's buffers alone, which {hardware.name} has not; accepted: {silent!r}"
            )
