"""Nodes that are not translated: each with its operator, the user's source line and the reason; all in one error."""

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
    """Why a node is not translated.

    operator: as in aten::add.Tensor. line: of the user's source, as in net.py:12, where PyTorch recorded it. why: empty
    where the operator has no converter. follows: the node is refused only because it reads what a refused node gives.
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
    """The operator that a node calls and its arguments; for an operator with effects, behind PyTorch's token of their
    order, itself."""
    if node.target is torch.ops.higher_order.with_effects:
        return node.args[1], node.args[2:]
    return node.target, node.args


def full_name(target: Any) -> str:
    """An operator's name, as in aten::add.Tensor; of a higher-order operator its own, of a function its name."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(target)
    return str(getattr(target, "__name__", target))


def source_line(node: torch.fx.Node) -> str:
    """`file.py:12` of the innermost frame of the user's own code; empty where it is not known."""
    inside = tuple(str(folder) for folder in _NOT_THE_USERS)
    frames = [
        (name, number)
        for name, number in _FRAME.findall(node.meta.get("stack_trace") or "")
        if not name.startswith(("<", *inside))
    ]
    return f"{Path(frames[-1][0]).name}:{frames[-1][1]}" if frames else ""


def unsupported(refusals: Iterable[Refusal], where: str) -> UnsupportedOperator:
    """The error that names all operators that are refused for a reason of their own."""
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
