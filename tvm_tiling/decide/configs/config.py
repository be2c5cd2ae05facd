"""Configurations as data: what a decision settles, taken out of it and put to use for other shapes.

    config_of      decision -> Config
    tiling_of   Config -> the decision that it stands for, for the shape at hand

A Config and its blocks are plain data (configs/record.py). What they mean is told where the kernels' choices are:
configs/gemm_configs.py for products on a CPU; configs/conv_configs.py, configs/depthwise_configs.py and
configs/fold_configs.py for convolutions there; configs/partition_configs.py, configs/level_configs.py and
configs/wfold_configs.py for both on accelerators. Which of them a machine has is told by its kind (decide/kinds.py).
"""

from __future__ import annotations

import contextlib

from ...errors import DatabaseError, HardwareError, UnsupportedOperator
from ...hardware.description import Hardware
from ...workload import ConvWorkload, GemmWorkload
from ..kinds import KINDS, Rules, kind_of
from ..options import GIVEN
from ..surroundings import Surroundings
from ..tiling import Decision
from .record import Blocks, Config, Value
from .rule import ConfigRule, Tiling, because

__all__ = ["Blocks", "Config", "Tiling", "Value", "config_of", "rule_for", "rules_for", "tiling_of"]


def config_of(
    tiling: Decision, workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> Config:
    """What a decision settles, apart from the shape that it was made for; `around`: as it was made."""
    if tiling.rule is None:
        raise UnsupportedOperator(
            f"config: a decision of {tiling.op!r} has none; expected a product's, a convolution's"
        )
    return rule_for(tiling.rule, workload, hardware, around).config_of(tiling)


def tiling_of(
    config: Config,
    workload: GemmWorkload | ConvWorkload,
    hardware: Hardware,
    around: Surroundings | None = None,
    *,
    why: str = GIVEN,
) -> Tiling:
    """The same configuration for a shape: loop counts grow with it, blocks are clipped to it. `why` becomes the reason.

    HardwareError where the machine cannot (registers, cores, buffers), UnsupportedOperator where the workload does not
    admit the form, DatabaseError where the configuration is not of such an operator or lacks a choice.
    """
    if config.op != workload.op:
        raise DatabaseError(
            f"config: it is one of op = {config.op!r}, the workload is a {workload.op}; expected {workload.op!r}"
        )
    return because(rule_for(config.form, workload, hardware, around).tiling_of(config), config, why)


def rules_for(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> tuple[ConfigRule, ...]:
    """The kinds of kernels that serve a workload on `hardware`, each with its forms. HardwareError where the machine
    has no unit for it."""
    found: list[ConfigRule] = []
    for make in dict.fromkeys(_rules(workload, hardware, around).values()):
        with contextlib.suppress(UnsupportedOperator):
            found.append(make())
    return tuple(found)


def rule_for(
    form: str, workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> ConfigRule:
    """The rule of one form. UnsupportedOperator where the workload does not admit it, DatabaseError if no form of this
    operator on this machine has that name."""
    rules = _rules(workload, hardware, around)
    if form not in rules:
        raise DatabaseError(f"config: algorithm = {form!r}; expected {', '.join(rules)}")
    return rules[form]()


def _rules(workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None) -> Rules:
    """What makes the rule of each form."""
    kind = kind_of(workload, hardware)
    if kind.rules is None:
        others = ", ".join(other.name for other in KINDS if other.rules is not None)
        raise HardwareError(
            f"hardware {hardware.name!r}: a machine of kind {kind.name!r} leaves nothing to choose; expected {others}"
        )
    return kind.rules(workload, hardware, around or Surroundings())
