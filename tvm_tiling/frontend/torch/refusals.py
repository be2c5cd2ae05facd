"""Nodes that cannot be translated, with their operator, the user's source line and the reason, reported in one
error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...errors import UnsupportedOperator

_NOT_THE_USERS = (Path(torch.__file__).parent, Path(__file__).parents[2])
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Refusal:
    """The reason why a node is not translated.

    operator: such as aten::add.Tensor. line: in the user's source, such as net.py:12, if PyTorch recorded it. why:
    empty if the operator has no converter. follows: the node is refused only because it reads the result of a refused
    node.
    """

    operator: str
    node: str
    line: str
    why: str
    follows: bool


def refusal(node: torch.fx.Node, why: str, follows: bool) -> Refusal:
    """The refusal of a node for this reason."""
    return Refusal(full_name(called(node)[0]), node.name, source_line(node), why, follows)


def called(node: torch.fx.Node) -> tuple[Any, Sequence[Any]]:
    """The operator called by a node, and its arguments; an operator with effects is unwrapped from PyTorch's ordering
    token."""
    if node.target is torch.ops.higher_order.with_effects:
        return node.args[1], node.args[2:]
    return node.target, node.args


def full_name(target: Any) -> str:
    """The name of an operator, such as aten::add.Tensor, of a higher-order operator, or of a function."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(target)
    return str(getattr(target, "__name__", target))


def source_line(node: torch.fx.Node) -> str:
    """The innermost frame of the user's own code, such as `file.py:12`; empty if unknown."""
    inside = tuple(str(folder) for folder in _NOT_THE_USERS)
    frames = [
        (name, number)
        for name, number in _FRAME.findall(node.meta.get("stack_trace") or "")
        if not name.startswith(("<", *inside))
    ]
    return f"{Path(frames[-1][0]).name}:{frames[-1][1]}" if frames else ""


def unsupported(refusals: Iterable[Refusal], where: str) -> UnsupportedOperator:
    """The error that lists all operators that are themselves unsupported."""
    places: dict[tuple[str, str], list[str]] = {}
    for found in refusals:
        if not found.follows:
            place = f"{found.node!r}{' at ' + found.line if found.line else ''}"
            places.setdefault((found.operator, found.why), []).append(place)
    listed = [
        f"{operator} (nodes {', '.join(nodes)}){': ' + why if why else ''}"
        for (operator, why), nodes in sorted(places.items())
    ]
    return UnsupportedOperator(f"{where}: unsupported operators: {'; '.join(listed)}")
