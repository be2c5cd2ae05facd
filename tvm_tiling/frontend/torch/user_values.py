"""The inputs and outputs of an exported program from the caller's view: named tensors within nested arguments.

A tensor that is itself an argument has the argument's name. One inside a tuple, list, dict, dataclass or another
container that PyTorch knows has the path within the container appended, such as past_key_values.key_cache.0. An output
is named by its path if its container has names, such as logits, otherwise by PyTorch's name of the result.
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
    """A tensor that a caller passes. `value`: without content; its dimensions may be dynamic."""

    name: str
    node: torch.fx.Node
    value: torch.Tensor


@dataclass(frozen=True)
class UserOutput:
    """A tensor that the program returns."""

    name: str
    node: torch.fx.Node


def user_inputs(program: torch.export.ExportedProgram, where: str) -> list[UserInput]:
    """The tensors that a caller passes, in graph order. Raises ModelFormatError for numbers of dynamic value."""
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
                f"{where}: input {name!r} is a {type(value).__name__} of dynamic value; expected tensors, "
                "and numbers of fixed value"
            )
        found.append(UserInput(name, nodes[spec.arg.name], value))
    return found


def user_outputs(program: torch.export.ExportedProgram) -> list[UserOutput]:
    """The tensors that the program returns, in order, followed by the new values of mutated inputs, such as
    x.updated."""
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
    """The indices, among all user inputs, of those that the program mutates, in the order of user_outputs()."""
    own, _ = _plain_names(program)
    specs = program.graph_signature.output_specs
    return [own.index(str(spec.target)) for spec in specs if spec.kind is OutputKind.USER_INPUT_MUTATION]


def changed_state(program: torch.export.ExportedProgram) -> list[str]:
    """The names of buffers and parameters that the program mutates, except those assigned to themselves, as in
    `self.table = self.table.to(x.device)`."""
    signature = program.graph_signature
    own = {**signature.inputs_to_buffers, **signature.inputs_to_parameters}
    return [
        str(spec.target)
        for spec in signature.output_specs
        if spec.kind in CHANGES and spec.kind is not OutputKind.USER_INPUT_MUTATION
        if own.get(getattr(spec.arg, "name", "")) != spec.target
    ]


def arguments(program: torch.export.ExportedProgram, tensors: Mapping[str, torch.Tensor]) -> tuple[Any, Any]:
    """Positional and keyword arguments of the program with these tensors, by PyTorch's input names."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves = [spec.arg.value if isinstance(spec.arg, ConstantArgument) else tensors[spec.arg.name] for spec in specs]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


# ---- paths ----------------------------------------------------------------------------------------------------------


def _input_paths(program: torch.export.ExportedProgram) -> list[Path]:
    """The path of each leaf of the arguments: 0 and its index, or 1 and its keyword, then its path within."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    tensors = {name: node.meta.get("val") for name, node in nodes.items()}
    try:
        return [path for path, _ in _leaves((), arguments(program, tensors))]
    except Exception:  # the container cannot be built from tensors without content: use PyTorch's names
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
    """The leaves of a nested value, in PyTorch's order, with their paths."""
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
    """The names of a container's parts: from PyTorch's registration, from its own keys, or indices."""
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
    """PyTorch's names of the user inputs, and ours."""
    own = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return own, _input_names(own, _input_paths(program))


def _input_names(own: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Names of inputs; PyTorch's names `own` if the paths are unknown or ambiguous."""
    if len(paths) != len(own):
        return list(own)
    names = [_input_name(name, path) for name, path in zip(own, paths, strict=True)]
    return names if len(set(names)) == len(names) else list(own)


def _input_name(own: str, path: Path) -> str:
    """The name of the argument followed by the path. PyTorch's name of a leaf begins with the name of its argument."""
    by_keyword, inside = path[0] == 1, path[2:]
    if by_keyword:
        return ".".join(map(str, path[1:]))
    if not inside:
        return own
    tail = "_" + "_".join(re.sub(r"[^a-zA-Z0-9]+", "_", str(key)) for key in inside)
    for name in (own, re.sub(r"_\d+$", "", own)):  # PyTorch appends numbers to duplicate names
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
