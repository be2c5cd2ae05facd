"""Machine kinds: which unit of a machine runs an operator, what decides its tiling, and which tilings are possible.

Each entry of KINDS is one kind; the first kind that takes a workload is used. Its schedule is registered under the same
name in schedules/accel.py, except for the CPU's. All other code (decide, databases, searches, schedules) reaches the
kinds through `kind_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from ..errors import HardwareError
from ..hardware.description import ENGINES, Hardware
from ..workload import ConvWorkload, GemmWorkload, RnnWorkload
from .configs.conv_configs import DirectConfigs, ProductConfigs, conv_forms
from .configs.depthwise_configs import DepthwiseConfigs
from .configs.fold_configs import WFoldConfigs, WinogradConfigs
from .configs.gemm_configs import BlockedConfigs, StreamConfigs
from .configs.grouped_configs import GroupedConfigs
from .configs.level_configs import LevelsConfigs
from .configs.planes_configs import PlanesConfigs
from .configs.rule import ConfigRule, Tiling
from .configs.wfold_configs import WFoldMachineConfigs
from .conv.conv_tiling import ConvTiling
from .conv.cpu_conv import decide_conv_on_cpu
from .explain import shown_name
from .fold.wfold import decide_wfold, product_as_convolution
from .gemm.blocked import BlockedTiling, decide_blocked
from .gemm.cpu_gemm import decide_on_cpu
from .levels.level_gemm import LevelsTiling, decide_levels, has_levels
from .options import Options
from .rnn.column import RnnTiling, decide_rnn
from .rnn.column_product import ColumnTiling, decide_column
from .rnn.cpu_rnn import RnnCpuTiling, decide_rnn_on_cpu
from .surroundings import Surroundings
from .tiling import GemmTiling, Reason

Operator: TypeAlias = GemmWorkload | ConvWorkload
Workload: TypeAlias = Operator | RnnWorkload
Decided: TypeAlias = GemmTiling | BlockedTiling | ConvTiling | LevelsTiling | ColumnTiling | RnnTiling | RnnCpuTiling
Rules: TypeAlias = Mapping[str, Callable[[], ConfigRule]]


@dataclass(frozen=True, kw_only=True)
class MachineKind:
    """One kind of machine.

    `takes` tells whether a machine of this kind runs a workload. `options` lists, for each type of workload, the
    Options that `decide` reads; any other option that is set is refused. `rules` returns the configuration rules of an
    operator (configs/rule.py) by algorithm name, or is None if there is nothing to choose. `complete` derives what a
    configuration leaves to the formulas.
    """

    name: str
    takes: Callable[[Workload, Hardware], bool]
    options: Mapping[type[Workload], tuple[str, ...]]
    decide: Callable[[Workload, Hardware, Options, Surroundings], Decided]
    rules: Callable[[Operator, Hardware, Surroundings], Rules] | None
    complete: Callable[[Tiling, Operator, Hardware, Surroundings], Tiling] = lambda tiling, *_: tiling


def kind_of(workload: Workload, hardware: Hardware) -> MachineKind:
    """Return the kind that runs `workload` on `hardware`. Raises HardwareError, listing the machine's units, if none
    does."""
    for kind in KINDS:
        if kind.takes(workload, hardware):
            return kind
    raise HardwareError(_no_unit(workload, hardware))


def decided(workload: Workload, hardware: Hardware, options: Options, around: Surroundings) -> Decided:
    """Decide the tiling of an operator in its context.

    `around` holds what the context fixes, `options` what the caller fixes. Raises HardwareError if no unit of the
    machine takes the operator, an option does not apply, or nothing fits; UnsupportedOperator if the algorithm does not
    support the operator.
    """
    kind = kind_of(workload, hardware)
    for option in fields(Options):
        value = getattr(options, option.name)
        if option.name in REFUSED and value != option.default and option.name not in kind.options[type(workload)]:
            raise HardwareError(
                f"{shown_name(option.name)} = {value!r} does not apply to a {workload.op} on {hardware.name}, "
                f"which is {_CALLED.get(kind.name, kind.name)}; expected {option.default!r}"
            )
    return kind.decide(workload, hardware, options, around)


_CALLED = {
    "cpu": "a CPU",
    "w-fold": "a W-fold engine",
    "levels": "an accelerator with storage levels",
    "near-tile": "a matrix engine",
    "column": "a column engine",
}
# Options that change a decision; kinds that do not read them refuse them.
REFUSED = ("form", "mode", "prefer", "acc_factor", "outer_preset", "inner_preset")


# ---- CPU -------------------------------------------------------------------------------------------------------------


def _decide_on_cpu(workload: Workload, hardware: Hardware, options: Options, around: Surroundings) -> Decided:
    if isinstance(workload, RnnWorkload):
        return decide_rnn_on_cpu(workload, hardware, deterministic=options.deterministic)
    if isinstance(workload, ConvWorkload):
        return decide_conv_on_cpu(
            workload,
            hardware,
            form=options.form,
            packing=around.packing,
            source=around.source,
            winograd=options.winograd,
            tolerance=options.tolerance,
            deterministic=options.deterministic,
        )
    if workload.encoding.how.bits is not None:
        if options.form is not None or options.microkernel is not None:
            raise HardwareError("algorithm and microkernel do not apply to block-quantised weights; expected neither")
        assert hardware.cpu is not None  # guaranteed by the choice of kind
        return decide_blocked(workload, hardware.cpu, deterministic=options.deterministic)
    tiling = decide_on_cpu(
        workload,
        hardware,
        form=options.form,
        microkernel=options.microkernel,
        packing=around.packing,
        plain_a=around.plain_a,
        plain_b=around.plain_b,
        accumulates_in_output=around.accumulates,
        deterministic=options.deterministic,
    )
    if around.exchanged:
        why = "exchanged, so that n is the contiguous axis of the result: A is the second operand"
        tiling = replace(tiling, reasons=(*tiling.reasons, Reason("operands", "exchanged", why)))
    return tiling


def _rules_on_cpu(workload: Operator, hardware: Hardware, around: Surroundings) -> Rules:
    cpu = hardware.cpu
    assert cpu is not None  # guaranteed by the choice of kind
    if isinstance(workload, GemmWorkload):
        product = workload

        def blocked() -> ConfigRule:
            return BlockedConfigs(product, cpu, around)

        return {**dict.fromkeys(BlockedConfigs.forms, blocked), "stream": lambda: StreamConfigs(product, cpu, around)}
    forms = conv_forms(workload, hardware, cpu, around)
    return {
        "direct": lambda: DirectConfigs(forms, "direct"),
        "stride_fold": lambda: DirectConfigs(forms, "stride_fold"),
        "gemm": lambda: ProductConfigs(forms, around, few_rows=False),
        "gemm_stream": lambda: ProductConfigs(forms, around, few_rows=True),
        "depthwise": lambda: DepthwiseConfigs(forms),
        "winograd": lambda: WinogradConfigs(forms),
        "wfold": lambda: WFoldConfigs(forms),
        "planes": lambda: PlanesConfigs(forms),
        "grouped": lambda: GroupedConfigs(forms),
    }


# ---- W-fold ----------------------------------------------------------------------------------------------------------


def _folds(workload: Workload, hardware: Hardware) -> bool:
    """Return whether the W-fold engine takes the workload: convolutions, and matrix multiplications if there is no
    matrix engine."""
    if hardware.w_fold is None:
        return False
    return isinstance(workload, ConvWorkload) or (isinstance(workload, GemmWorkload) and hardware.near_tile is None)


def _decide_wfold(workload: Workload, hardware: Hardware, options: Options, around: Surroundings) -> Decided:
    if options.form not in (None, "wfold"):
        raise HardwareError(f"algorithm = {options.form!r} is not an algorithm on {hardware.name}; expected 'wfold'")
    assert isinstance(workload, Operator)
    layer = product_as_convolution(workload) if isinstance(workload, GemmWorkload) else workload
    return decide_wfold(layer, hardware, mode=options.mode)


# ---- a matrix engine with buffers ------------------------------------------------------------------------------------


def _decide_levels(workload: Workload, hardware: Hardware, options: Options, around: Surroundings) -> Decided:
    assert isinstance(workload, Operator)
    return decide_levels(workload, hardware, behind=around.behind, prefer=options.prefer)


def _decide_near_tile(workload: Workload, hardware: Hardware, options: Options, around: Surroundings) -> Decided:
    from .near_tile import decide_near_tile

    assert isinstance(workload, Operator)
    return decide_near_tile(workload, hardware, options, vector=around.vector)


def _rules_near_tile(workload: Operator, hardware: Hardware, around: Surroundings) -> Rules:
    from .configs.partition_configs import partition_rule

    return {"matrix": lambda: partition_rule(workload, hardware)}


def _complete_near_tile(tiling: Tiling, workload: Operator, hardware: Hardware, around: Surroundings) -> Tiling:
    from .near_tile import with_blocks, with_chunks

    assert isinstance(tiling, GemmTiling)
    if isinstance(workload, ConvWorkload):
        return with_blocks(tiling, workload, hardware, around.vector)
    return with_chunks(tiling, workload, hardware, around.vector)


# ---- columns ---------------------------------------------------------------------------------------------------------


def _is_column(workload: Workload, hardware: Hardware) -> bool:
    """Return whether the column engine takes the workload: recurrent layers and matrix-vector multiplications."""
    if hardware.column is None or isinstance(workload, ConvWorkload):
        return False
    return isinstance(workload, RnnWorkload) or 1 in (workload.m, workload.n)


def _decide_column(workload: Workload, hardware: Hardware, options: Options, around: Surroundings) -> Decided:
    if isinstance(workload, RnnWorkload):
        return decide_rnn(workload, hardware, mode=options.mode)
    assert isinstance(workload, GemmWorkload)
    return decide_column(workload, hardware)


def _no_unit(workload: Workload, hardware: Hardware) -> str:
    units = ", ".join(unit for unit in ENGINES if getattr(hardware, unit) is not None)
    if isinstance(workload, RnnWorkload):
        what, accepted = "recurrent layers", "a machine with a cpu or a column engine"
    else:
        what, accepted = "a convolution", "a machine with cpu, near_tile or w_fold"
        if isinstance(workload, GemmWorkload):
            what = f"a matrix multiplication of {workload.m} x {workload.k} by {workload.k} x {workload.n}"
        if hardware.column is not None:
            accepted = f"matrix-vector multiplications (m = 1 or n = 1), or {accepted}"
    return f"{hardware.name} has no unit for {what}, only {units}; expected {accepted}"


PARTITION = ("mode", "prefer", "acc_factor", "outer_preset", "inner_preset")

KINDS: list[MachineKind] = [
    MachineKind(
        name="cpu",
        takes=lambda workload, hardware: hardware.cpu is not None,
        options={GemmWorkload: ("form",), ConvWorkload: ("form",), RnnWorkload: ()},
        decide=_decide_on_cpu,
        rules=_rules_on_cpu,
    ),
    MachineKind(
        name="w-fold",
        takes=_folds,
        options={GemmWorkload: ("form", "mode"), ConvWorkload: ("form", "mode")},
        decide=_decide_wfold,
        rules=lambda workload, hardware, around: {"wfold": lambda: WFoldMachineConfigs(workload, hardware)},
    ),
    MachineKind(
        name="levels",
        takes=lambda workload, hardware: has_levels(hardware) and isinstance(workload, Operator),
        options={GemmWorkload: ("prefer",), ConvWorkload: ("prefer",)},
        decide=_decide_levels,
        rules=lambda workload, hardware, around: {"levels": lambda: LevelsConfigs(workload, hardware, around.behind)},
    ),
    MachineKind(
        name="near-tile",
        takes=lambda workload, hardware: hardware.near_tile is not None and isinstance(workload, Operator),
        options={GemmWorkload: PARTITION, ConvWorkload: PARTITION},
        decide=_decide_near_tile,
        rules=_rules_near_tile,
        complete=_complete_near_tile,
    ),
    MachineKind(
        name="column",
        takes=_is_column,
        options={GemmWorkload: (), RnnWorkload: ("mode",)},
        decide=_decide_column,
        rules=None,
    ),
]
