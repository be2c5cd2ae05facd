"""Branches of an ONNX graph that are decided before the run: the one that is taken stands in place of its If."""

from __future__ import annotations

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
    prefix = next(name for k in count() if not _is_used(graph, name := f"branch_{k}_"))
    own = {tensor.name for tensor in branch.initializer} | {name for inner in branch.node for name in inner.output}
    for tensor in branch.initializer:
        graph.graph.initializer.append(tensor)
        graph.graph.initializer[-1].name = prefix + tensor.name
    nodes = []
    for inner in branch.node:
        copy = onnx.NodeProto.FromString(inner.SerializeToString())
        _rename(copy, own, prefix)
        nodes.append(copy)
    for result, name in zip(branch.output, node.output, strict=True):
        source = prefix + result.name if result.name in own else result.name
        nodes.append(onnx.helper.make_node("Identity", [source], [name], name=f"{prefix}{name}"))
    return nodes


def _is_used(graph: OnnxGraph, prefix: str) -> bool:
    nodes = (name.startswith(prefix) for node in graph.graph.node for name in node.output)
    return any(nodes) or any(tensor.name.startswith(prefix) for tensor in graph.graph.initializer)


def _rename(node: onnx.NodeProto, own: set[str], prefix: str) -> None:
    """Put `prefix` before the names of `own`, in graphs that the node holds too."""
    for names in (node.input, node.output):
        for place, name in enumerate(names):
            if name in own:
                names[place] = prefix + name
    for entry in node.attribute:
        for held in [*([entry.g] if entry.HasField("g") else []), *entry.graphs]:
            hidden = {tensor.name for tensor in held.initializer} | {value.name for value in held.input}
            hidden |= {name for inner in held.node for name in inner.output}
            for inner in held.node:
                _rename(inner, own - hidden, prefix)
            for value in held.output:
                if value.name in own - hidden:
                    value.name = prefix + value.name
