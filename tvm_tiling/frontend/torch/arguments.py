"""The arguments of a node of a program, with nodes replaced by the values of their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .refusals import called
from .translation import STORAGE, Absent, Follows, Missing, Unsupported, Value


def refused_operand(absent: Absent) -> Unsupported:
    return Follows(absent.why) if absent.follows else Unsupported(f"operand {absent.why}")


def operand_values(argument: Any, values: Mapping[torch.fx.Node, Value]) -> Value:
    """An argument with nodes replaced by their values."""
    if isinstance(argument, torch.fx.Node):
        value = values[argument]
        if isinstance(value, Missing):
            raise Unsupported(f"it uses {value.why}, which is not computed")
        if isinstance(value, Absent):
            raise refused_operand(value)
        return value
    if isinstance(argument, tuple | list):
        return type(argument)(operand_values(item, values) for item in argument)
    return argument


def arguments_by_name(node: torch.fx.Node, values: Mapping[torch.fx.Node, Value]) -> dict[str, Value]:
    """All arguments of the operator's schema by name, except those about storage."""
    bound: dict[str, Value] = {}
    target, args = called(node)
    for place, argument in enumerate(target._schema.arguments):
        if argument.name in STORAGE:
            continue
        if place < len(args) and not argument.kwarg_only:
            bound[argument.name] = operand_values(args[place], values)
        elif argument.name in node.kwargs:
            bound[argument.name] = operand_values(node.kwargs[argument.name], values)
        else:
            bound[argument.name] = argument.default_value
    return bound
