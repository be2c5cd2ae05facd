"""Cuts as data: what a decision settles, taken out of it and put to use for other shapes.

    cut_of      decision -> Cut
    tiling_of   Cut -> the decision that it stands for, for the shape at hand

A Cut and its blocks are plain data (cuts/record.py). What they mean is told where the kernels' choices are:
cuts/gemm.py for products on a CPU; cuts/conv.py, cuts/depthwise.py and cuts/fold.py for convolutions there;
cuts/partition.py, cuts/levels.py and cuts/wfold.py for both on accelerators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ...errors import DatabaseError, HardwareError, UnsupportedOperator
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..conv.tiling import ConvTiling
from ..levels.gemm import LevelsTiling, has_levels
from ..options import GIVEN
from ..surroundings import Surroundings
from ..tiling import Decision, GemmTiling
from .conv import DirectCuts, ProductCuts, conv_forms
from .depthwise import DepthwiseCuts
from .fold import WFoldCuts, WinogradCuts
from .gemm import BlockedCuts, StreamCuts
from .levels import LevelsCuts
from .partition import partition_rule
from .record import Blocks, Cut, Value
from .rule import CutRule, Tiling, because
from .wfold import WFoldMachineCuts

__all__ = ["Blocks", "Cut", "Tiling", "Value", "cut_of", "rule_for", "rules_for", "tiling_of"]


def cut_of(
    tiling: Decision, workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> Cut:
    """What a decision settles, apart from the shape that it was made for; `around`: as it was made."""
    return rule_for(_form(tiling), workload, hardware, around).cut_of(tiling)


def tiling_of(
    cut: Cut,
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    around: Surroundings | None = None,
    *,
    why: str = GIVEN,
) -> Tiling:
    """The same cut for a shape: loop counts grow with it, blocks are clipped to it. `why` becomes the reason.

    HardwareError where the machine cannot (registers, cores, buffers), UnsupportedOperator where the workload does not
    admit the form, DatabaseError where the cut is not of such an operator or lacks a choice.
    """
    op = "conv" if isinstance(workload, ConvWorkload) else "gemm"
    if cut.op != op:
        raise DatabaseError(f"cut: it is one of op = {cut.op!r}, the workload is a {op}; accepted: {op!r}")
    return because(rule_for(cut.form, workload, hardware, around).tiling_of(cut), cut, why)


def rules_for(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> tuple[CutRule, ...]:
    """The kinds of kernels that serve a workload on `hardware`, each with its forms. HardwareError where the machine
    has no unit for it."""
    found: list[CutRule] = []
    makers = _makers(workload, hardware, around or Surroundings())
    for make in dict.fromkeys(makers.values()):
        with contextlib.suppress(UnsupportedOperator):
            found.append(make())
    return tuple(found)


def rule_for(
    form: str, workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> CutRule:
    """The rule of one form. UnsupportedOperator where the workload does not admit it, DatabaseError if no form of this
    operator on this machine has that name."""
    makers = _makers(workload, hardware, around or Surroundings())
    if form not in makers:
        raise DatabaseError(f"cut: form = {form!r}, accepted here: {', '.join(makers)}")
    return makers[form]()


def _makers(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings
) -> dict[str, Callable[[], CutRule]]:
    """What makes the rule of each form."""
    cpu = hardware.cpu
    if cpu is None:
        return _accelerated(workload, hardware, around)
    if isinstance(workload, GemmWorkload):
        product = workload

        def blocked() -> CutRule:
            return BlockedCuts(product, cpu, around)

        return {**dict.fromkeys(BlockedCuts.forms, blocked), "stream": lambda: StreamCuts(product, cpu, around)}
    forms = conv_forms(workload, hardware, cpu, around)
    return {
        "direct": lambda: DirectCuts(forms, "direct"),
        "stride_fold": lambda: DirectCuts(forms, "stride_fold"),
        "gemm": lambda: ProductCuts(forms, around, few_rows=False),
        "gemm_stream": lambda: ProductCuts(forms, around, few_rows=True),
        "depthwise": lambda: DepthwiseCuts(forms),
        "winograd": lambda: WinogradCuts(forms),
        "wfold": lambda: WFoldCuts(forms),
    }


def _accelerated(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings
) -> dict[str, Callable[[], CutRule]]:
    """The same on an accelerator: the one form that its machine has."""
    if hardware.w_fold is not None and (isinstance(workload, ConvWorkload) or hardware.near_tile is None):
        return {"wfold": lambda: WFoldMachineCuts(workload, hardware)}
    if hardware.near_tile is None:
        raise HardwareError(
            f"hardware {hardware.name!r}: has no unit whose cuts are known; accepted: a cpu, near_tile or w_fold"
        )
    if has_levels(hardware):
        return {"levels": lambda: LevelsCuts(workload, hardware, around.behind)}
    return {"matrix": lambda: partition_rule(workload, hardware)}


def _form(tiling: Decision) -> str:
    """A form that the decision's rule knows."""
    if isinstance(tiling, GemmTiling) and tiling.form is not None:
        return "stream" if tiling.form == "stream" else "normal"
    if isinstance(tiling, GemmTiling):
        return "matrix"
    if isinstance(tiling, LevelsTiling):
        return "levels"
    if isinstance(tiling, ConvTiling):
        few_rows = tiling.product is not None and tiling.product.form == "stream"
        return "gemm_stream" if few_rows else tiling.form
    raise UnsupportedOperator(f"cut: a decision of {tiling.op!r} has none; accepted: a product's, a convolution's")
