"""What a caller passes to an exported program and gets from it: tensors inside of nested arguments, by names.

A tensor that is an argument itself has the argument's name. One inside of a tuple, list, dict, dataclass or any other
container that PyTorch knows has the names of its places behind that, as in past_key_values.key_cache.0. An output has
the names of its places where its container names them, as in logits, otherwise PyTorch's name of the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from ...errors import ModelFormatError

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class UserInput:
    """A tensor that a caller passes. `value`: without content; its sizes may be open."""

    name: str
    node: torch.fx.Node
    value: torch.Tensor


@dataclass(frozen=True)
class UserOutput:
    """A tensor that a caller gets."""

    name: str
    node: torch.fx.Node


def user_inputs(program: torch.export.ExportedProgram, where: str) -> list[UserInput]:
    """The tensors that a caller passes, in the graph's order. ModelFormatError for numbers of open value."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    names = _input_names([spec.arg.name for spec in specs], _input_paths(program))
    found = []
    for spec, name in zip(specs, names, strict=True):
        if isinstance(spec.arg, ConstantArgument):
            continue
        value = nodes[spec.arg.name].meta["val"]
        if not isinstance(value, torch.Tensor):
            raise ModelFormatError(
                f"{where}: input {name!r} is a {type(value).__name__} whose value is open; accepted: tensors, and "
                f"numbers of fixed value"
            )
        found.append(UserInput(name, nodes[spec.arg.name], value))
    return found


def user_outputs(program: torch.export.ExportedProgram) -> list[UserOutput]:
    """The tensors that a caller gets, in order; behind them those that inputs are changed to, as in x.updated."""
    nodes = {node.name: node for node in program.graph.nodes}
    given, changed = [], []
    inputs = dict(zip(*_plain_names(program), strict=True))
    specs = program.graph_signature.output_specs
    own = [spec for spec in specs if spec.kind not in CHANGES]
    names = _output_names([getattr(spec.arg, "name", "") for spec in own], _output_paths(program, own, nodes))
    for spec, name in zip(own, names, strict=True):
        if isinstance(spec.arg, TensorArgument):
            given.append(UserOutput(name, nodes[spec.arg.name]))
    for spec in specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            changed.append(UserOutput(f"{inputs.get(spec.target, spec.target)}.updated", nodes[spec.arg.name]))
    return given + changed


CHANGES = tuple(
    getattr(OutputKind, name)
    for name in ("BUFFER_MUTATION", "PARAMETER_MUTATION", "USER_INPUT_MUTATION")
    if hasattr(OutputKind, name)
)


def changed_inputs(program: torch.export.ExportedProgram) -> list[int]:
    """The numbers, among all user inputs, of those that the program changes, in the order of user_outputs()."""
    own, _ = _plain_names(program)
    specs = program.graph_signature.output_specs
    return [own.index(str(spec.target)) for spec in specs if spec.kind is OutputKind.USER_INPUT_MUTATION]


def changed_state(program: torch.export.ExportedProgram) -> list[str]:
    """The names of buffers and parameters that the program changes while it runs; not of those that it sets to
    themselves, as `self.table = self.table.to(x.device)` does."""
    signature = program.graph_signature
    own = {**signature.inputs_to_buffers, **signature.inputs_to_parameters}
    return [
        str(spec.target)
        for spec in signature.output_specs
        if spec.kind in CHANGES and spec.kind is not OutputKind.USER_INPUT_MUTATION
        if own.get(getattr(spec.arg, "name", "")) != spec.target
    ]


def arguments(program: torch.export.ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> tuple[Any, Any]:
    """Positional and keyword arguments of the program with these tensors, by PyTorch's names of the inputs."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves = [spec.arg.value if isinstance(spec.arg, ConstantArgument) else tensors[spec.arg.name] for spec in specs]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


# ---- places ---------------------------------------------------------------------------------------------------------


def _input_paths(program: torch.export.ExportedProgram) -> list[Path]:
    """Where each leaf of the arguments lies: 0 and its number, or 1 and its keyword, then its places inside."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    tensors = {name: node.meta.get("val") for name, node in nodes.items()}
    try:
        return [path for path, _ in _leaves((), arguments(program, tensors))]
    except Exception:  # a container that is not made of tensors without content: PyTorch's names are used
        return []


def _output_paths(
    program: torch.export.ExportedProgram, specs: Sequence[Any], nodes: Mapping[str, torch.fx.Node]
) -> list[Path]:
    values = [
        nodes[spec.arg.name].meta.get("val") if isinstance(spec.arg, TensorArgument) else getattr(spec.arg, "value", 0)
        for spec in specs
    ]
    try:
        out_spec = program.call_spec.out_spec
        assert out_spec is not None
        return [path for path, _ in _leaves((), pytree.tree_unflatten(values, out_spec))]
    except Exception:  # as above
        return []


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    """What a nested value holds, in PyTorch's order, with its places."""
    if type(value) is dict:
        parts: list[tuple[Any, Any]] = list(value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = list(zip(value._fields, value, strict=True))
    elif type(value) in (tuple, list):
        parts = list(enumerate(value))
    else:
        kind = pytree.SUPPORTED_NODES.get(type(value))
        if kind is None:
            yield path, value
            return
        children = list(kind.flatten_fn(value)[0])
        parts = list(zip(_keys(kind, value, len(children)), children, strict=True))
    for key, part in parts:
        yield from _leaves((*path, key if isinstance(key, int) else str(key)), part)


def _keys(kind: Any, value: Any, count: int) -> list[Any]:
    """What a container calls its parts: by PyTorch's record of it, by its own keys, or by numbers."""
    named = getattr(kind, "flatten_with_keys_fn", None)
    if named is not None:
        return [_plain(key) for key, _ in named(value)[0]]
    if isinstance(value, Mapping) and len(value) == count:
        return list(value)
    return list(range(count))


def _plain(key: Any) -> Any:
    for field in ("key", "idx", "name"):
        if hasattr(key, field):
            return getattr(key, field)
    return str(key)


# ---- names ----------------------------------------------------------------------------------------------------------


def _plain_names(program: torch.export.ExportedProgram) -> tuple[list[str], list[str]]:
    """PyTorch's names of the user's inputs, and ours."""
    own = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return own, _input_names(own, _input_paths(program))


def _input_names(own: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Names of inputs; PyTorch's `own` where the places are not known or do not tell them apart."""
    if len(paths) != len(own):
        return list(own)
    names = [_input_name(name, path) for name, path in zip(own, paths, strict=True)]
    return names if len(set(names)) == len(names) else list(own)


def _input_name(own: str, path: Path) -> str:
    """The argument's name and the places behind it. PyTorch's name of a leaf begins with that of its argument."""
    by_keyword, inside = path[0] == 1, path[2:]
    if by_keyword:
        return ".".join(map(str, path[1:]))
    if not inside:
        return own
    tail = "_" + "_".join(re.sub(r"[^a-zA-Z0-9]+", "_", str(key)) for key in inside)
    for name in (own, re.sub(r"_\d+$", "", own)):  # PyTorch counts names that would be equal
        if name.lower().endswith(tail.lower()):
            return ".".join([name[: -len(tail)], *map(str, inside)])
    return own


def _output_names(own: Sequence[str], paths: Sequence[Path]) -> list[str]:
    if len(paths) != len(own):
        return list(own)
    names = [
        ".".join(map(str, path)) if any(isinstance(key, str) for key in path) else name
        for name, path in zip(own, paths, strict=True)
    ]
    return names if len(set(names)) == len(names) else list(own)
