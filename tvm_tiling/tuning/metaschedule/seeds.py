"""Measured configurations as records of MetaSchedule's database, so that its search starts from them.

MetaSchedule ignores a record without a measured time, so estimates are not used as records either: configurations of
other shapes must first be measured for this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import tvm
from tvm import s_tir, tirx

from ...decide.configs.neighbourhood import Space
from ...decide.configs.record import Config, Value
from ...errors import DatabaseError
from ...schedule import Target, hardware_of, llvm_target
from .operator_space import space_of
from .rules import sample


def seed_database(
    database: Any, func: tirx.PrimFunc, measured: Iterable[tuple[Config, float]], target: Target = "llvm"
) -> int:
    """Add measured configurations of an operator to a MetaSchedule database. Return their number.

    func: as given to MetaSchedule's tuner. measured: configurations with their seconds for this operator on `target`,
    which is as in tiling_schedule. Configurations outside the neighbourhood of the decision are added as well.
    DatabaseError for an invalid cost.
    """
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.tune_context import _normalize_mod

    hardware = hardware_of(target)
    seeds = list(measured)
    for _, cost in seeds:
        if not isinstance(cost, int | float) or not 0 < cost < float("inf"):
            raise DatabaseError(f"seeds: cost = {cost!r}; expected measured seconds")
    module = _normalize_mod(func)
    space = with_configs(space_of(module["main"], hardware), [config for config, _ in seeds])
    workload = database.commit_workload(module)
    arguments = ms.arg_info.ArgInfo.from_prim_func(module["main"])
    described = llvm_target(hardware) if hardware.cpu is not None else tvm.target.Target("llvm")
    for config, cost in seeds:
        schedule = s_tir.Schedule(module)
        sample(schedule, space, picks=places(space, config))
        record = ms.database.TuningRecord(schedule.trace, workload, [float(cost)], described, arguments)
        database.commit_tuning_record(record)
    return len(seeds)


def places(space: Space, config: Config) -> dict[str, int]:
    """Return the index of each choice of a configuration among the options of a space that contains it."""
    return {name: _place(space.options[name], value) for name, value in space.choices(config).items()}


def with_configs(space: Space, configs: Iterable[Config]) -> Space:
    """Return the space with the values of further configurations appended to its options."""
    options = {name: list(values) for name, values in space.options.items()}
    for config in configs:
        if config.form not in options["form"]:
            raise DatabaseError(f"seeds: form = {config.form!r}; expected {', '.join(map(str, options['form']))}")
        for name, value in space.choices(config).items():
            if not any(_same(value, other) for other in options[name]):
                options[name].append(value)
    return replace(space, options=MappingProxyType({name: tuple(values) for name, values in options.items()}))


def _place(values: tuple[Value, ...], value: Value) -> int:
    return next(place for place, other in enumerate(values) if _same(value, other))


def _same(value: Value, other: Value) -> bool:
    """Return whether two values are equal and of the same type: True is not 1."""
    return type(value) is type(other) and value == other
