"""Conversion between decisions and configurations; a configuration applies to other shapes too.

    config_of   decision -> Config
    tiling_of   Config -> its decision for the given shape

A Config and its blocks are plain data (configs/record.py). The rules that interpret them are in configs/gemm_configs.py
for matrix multiplications on a CPU; configs/conv_configs.py, configs/depthwise_configs.py and configs/fold_configs.py
for convolutions on a CPU; configs/partition_configs.py, configs/level_configs.py and configs/wfold_configs.py for both
on accelerators. The machine kind determines which of them apply (decide/kinds.py).
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
    """Return the choices of `tiling`, the decision for `workload` on `hardware`, independently of its shape; `around`
    is the context in which it was made. Raises UnsupportedOperator for a decision without a configuration, such as that
    of recurrent layers.
    """
    if tiling.rule is None:
        raise UnsupportedOperator(
            f"config: a decision of {tiling.op!r} has no configuration; expected one of a gemm or a conv"
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
    """Return the decision of a configuration for a shape: loop counts follow the shape, and blocks are clipped to it.
    `why` becomes the reason.

    Raises HardwareError if the machine cannot run it (registers, cores, buffers), UnsupportedOperator if the workload
    does not allow the algorithm, and DatabaseError if the configuration is for another operator or lacks a choice.
    """
    if config.op != workload.op:
        raise DatabaseError(f"config: op = {config.op!r} does not match the workload; expected {workload.op!r}")
    return because(rule_for(config.form, workload, hardware, around).tiling_of(config), config, why)


def rules_for(
    workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> tuple[ConfigRule, ...]:
    """Return the configuration rules for a workload on `hardware`. Raises HardwareError if the machine has no unit for
    it."""
    found: list[ConfigRule] = []
    for make in dict.fromkeys(_rules(workload, hardware, around).values()):
        with contextlib.suppress(UnsupportedOperator):
            found.append(make())
    return tuple(found)


def rule_for(
    form: str, workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None = None
) -> ConfigRule:
    """Return the rule of one algorithm. Raises UnsupportedOperator if the workload does not allow it, and DatabaseError
    if this machine has no such algorithm for the operator."""
    rules = _rules(workload, hardware, around)
    if form not in rules:
        raise DatabaseError(f"config: algorithm = {form!r}; expected {', '.join(rules)}")
    return rules[form]()


def _rules(workload: GemmWorkload | ConvWorkload, hardware: Hardware, around: Surroundings | None) -> Rules:
    """Return the constructor of the rule for each algorithm."""
    kind = kind_of(workload, hardware)
    if kind.rules is None:
        others = ", ".join(other.name for other in KINDS if other.rules is not None)
        raise HardwareError(
            f"hardware {hardware.name!r}: a machine of kind {kind.name!r} has no configurations; expected {others}"
        )
    return kind.rules(workload, hardware, around or Surroundings())
