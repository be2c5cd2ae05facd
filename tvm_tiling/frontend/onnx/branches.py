"""Branches of an ONNX graph that are decided before the run: the one that is taken stands in place of its If."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
import onnx

from .graph import OnnxGraph, attributes


def take_branches(graph: OnnxGraph) -> bool:
    """Replace every If of known condition by the branch it takes; whether there was any."""
    constants, kept, found = graph.constants(), [], False
    for node in graph.graph.node:
        if node.op_type != "If" or node.domain or node.input[0] not in constants:
            kept.append(node)
            continue
        found = True
        taken = bool(np.all(constants[node.input[0]]))
        kept += _written_out(graph, node, attributes(node)["then_branch" if taken else "else_branch"])
    if found:
        graph.replace_nodes(kept)
    return found


def _written_out(graph: OnnxGraph, node: onnx.NodeProto, branch: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a branch, under names that nothing else in the graph has."""
    prefix = fresh_prefix(graph, "branch")
    names = add_own_names(graph, branch, prefix)
    nodes = [renamed(inner, names) for inner in branch.node]
    for result, name in zip(branch.output, node.output, strict=True):
        source = names.get(result.name, result.name)
        nodes.append(onnx.helper.make_node("Identity", [source], [name], name=f"{prefix}{name}"))
    return nodes


def fresh_prefix(graph: OnnxGraph, base: str) -> str:
    """A beginning of names that no tensor of the graph has."""
    used = {name for node in graph.graph.node for name in node.output}
    used |= {tensor.name for tensor in graph.graph.initializer}
    prefixes = (f"{base}_{k}_" for k in count())
    return next(prefix for prefix in prefixes if not any(name.startswith(prefix) for name in used))


def add_own_names(graph: OnnxGraph, inner: onnx.GraphProto, prefix: str) -> dict[str, str]:
    """What the tensors of a graph within are called in the graph itself, to which its constants are added."""
    for tensor in inner.initializer:
        graph.graph.initializer.append(tensor)
        graph.graph.initializer[-1].name = prefix + tensor.name
    own = {tensor.name for tensor in inner.initializer} | own_results(inner)
    return {name: prefix + name for name in own}


def own_results(inner: onnx.GraphProto) -> set[str]:
    """The names of what a graph's nodes give."""
    return {name for node in inner.node for name in node.output if name}


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A node with other names for the tensors in `names`, in graphs that the node holds too."""
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    _rename(copy, names)
    return copy


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for held in (node.input, node.output):
        for place, name in enumerate(held):
            held[place] = names.get(name, name)
    for entry in node.attribute:
        for inner in [*([entry.g] if entry.HasField("g") else []), *entry.graphs]:
            hidden = {tensor.name for tensor in inner.initializer} | {value.name for value in inner.input}
            hidden |= own_results(inner)
            seen = {old: new for old, new in names.items() if old not in hidden}
            for node_within in inner.node:
                _rename(node_within, seen)
            for value in inner.output:
                value.name = seen.get(value.name, value.name)
