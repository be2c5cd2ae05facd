"""Branches of an ONNX graph: an If with a condition known at compile time is replaced by the branch taken.

Otherwise both branches are computed: their nodes are moved into the graph, and the If selects between the results.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from .graph import OnnxGraph, attributes, graphs_of, reported_name


def take_branches(graph: OnnxGraph) -> bool:
    """Replace every If with a known condition by the branch taken. Return whether there was any."""
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
    """Return the nodes of a branch under unique names."""
    prefix = fresh_prefix(graph, "branch")
    names = add_own_names(graph, branch, prefix)
    nodes = [renamed(inner, names) for inner in branch.node]
    for result, name in zip(branch.output, node.output, strict=True):
        source = names.get(result.name, result.name)
        made = onnx.helper.make_node("Identity", [source], [name], f"{prefix}{name}", reported_name(node))
        nodes.append(made)
    return nodes


def lift_branches(graph: OnnxGraph) -> bool:
    """Move the nodes of the branches of every If in front of it, where they are folded, unrolled and converted like
    others. Return whether there was any. The branches keep an Identity for each result."""
    kept, found = [], False
    for node in graph.graph.node:
        if node.op_type != "If" or node.domain or all(map(_is_lifted, graphs_of(node))):
            kept.append(node)
            continue
        found = True
        chosen = onnx.NodeProto.FromString(node.SerializeToString())
        for entry in chosen.attribute:
            prefix = fresh_prefix(graph, "branch")
            names = add_own_names(graph, entry.g, prefix)
            kept += [renamed(inner, names) for inner in entry.g.node]
            results = [(names.get(result.name, result.name), result.name) for result in entry.g.output]
            del entry.g.node[:], entry.g.initializer[:], entry.g.value_info[:], entry.g.output[:]
            for place, (source, name) in enumerate(results):
                made = f"{prefix}{place}_{name}"
                entry.g.node.append(onnx.helper.make_node("Identity", [source], [made], name=made))
                entry.g.output.append(onnx.ValueInfoProto(name=made))
        kept.append(chosen)
    if found:
        graph.replace_nodes(kept)
    return found


def _is_lifted(branch: onnx.GraphProto) -> bool:
    """Return whether a branch consists of the Identity of each result, in order."""
    made = [(node.op_type, *node.output) for node in branch.node]
    return made == [("Identity", value.name) for value in branch.output]


def fresh_prefix(graph: OnnxGraph, base: str) -> str:
    """Return a unique name prefix, a different one at each call."""
    used = {name for node in graph.graph.node for name in node.output}
    used |= {tensor.name for tensor in graph.graph.initializer}
    while True:
        graph.prefixes += 1
        prefix = f"{base}_{graph.prefixes}_"
        if not any(name.startswith(prefix) for name in used):
            return prefix


def add_own_names(graph: OnnxGraph, inner: onnx.GraphProto, prefix: str) -> dict[str, str]:
    """Add the constants of an inner graph to the graph. Return the new names of its tensors."""
    for tensor in inner.initializer:
        graph.graph.initializer.append(tensor)
        graph.graph.initializer[-1].name = prefix + tensor.name
    own = {tensor.name for tensor in inner.initializer} | own_results(inner)
    return {name: prefix + name for name in own}


def own_results(inner: onnx.GraphProto) -> set[str]:
    """Return the names of the outputs of a graph's nodes."""
    return {name for node in inner.node for name in node.output if name}


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of a node with the tensors in `names` renamed, including in its nested graphs."""
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
