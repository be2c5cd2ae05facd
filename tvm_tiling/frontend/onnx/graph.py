"""An ONNX model during preparation: the graph, with large constants kept separately as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from ...plain_text import printable

# Constants of up to this many bytes stay in the graph, where shape inference reads their values.
SMALL_BYTES = 1024


@dataclass
class OnnxGraph:
    """A model during preparation.

    `proto` holds the graph. Constants above SMALL_BYTES are in `weights`, and declared as inputs of the graph, so that
    checking, inference and rewriting never copy them. `where` names the model in messages. `relied` has the shapes of
    tensors that constants were computed from. `prefixes`: the number of name prefixes made.
    """

    proto: onnx.ModelProto
    where: str
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    relied: dict[str, tuple[int, ...]] = field(default_factory=dict)
    prefixes: int = 0

    @property
    def graph(self) -> onnx.GraphProto:
        return self.proto.graph

    @property
    def opset(self) -> int:
        """Version of the standard operators; the newest if the file imports only other domains, 1 if it imports
        none."""
        versions = {entry.domain: entry.version for entry in self.proto.opset_import}
        return versions.get("", onnx.defs.onnx_opset_version() if versions else 1)

    def inputs(self) -> list[onnx.ValueInfoProto]:
        """Return the inputs that a caller passes: those of the graph without the constants."""
        return [value for value in self.graph.input if value.name not in self.weights]

    def constants(self) -> dict[str, np.ndarray]:
        """Return all constants by name."""
        small = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer}
        return {**small, **self.weights}

    def take_constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield every used constant by name. Large ones are released when yielded and lose their value. Unused ones may
        have types without tensors here, such as 4-bit weights that were dequantised."""
        used = {name for node in nodes_in(self.proto) for name in node.input}
        used |= {value.name for graph in all_graphs(self.proto) for value in graph.output}
        small = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer}
        yield from ((name, value) for name, value in small.items() if name in used and name not in self.weights)
        for name in self.weights:
            held, self.weights[name] = [self.weights[name]], np.empty(0)
            if name in used:
                yield name, held.pop()

    def add_constant(self, name: str, value: np.ndarray) -> None:
        """Store `value` as the constant `name`: in the graph if it is small, otherwise separately."""
        if value.nbytes <= SMALL_BYTES or value.dtype.kind in "OSU":
            self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
            return
        self.weights[name] = value
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        self.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))

    def inputs_behind(self, names: Iterable[str], beyond: Callable[[onnx.NodeProto], bool] | None = None) -> list[str]:
        """Return the inputs of the model that tensors are computed from; with `beyond`, only through nodes for which it
        is true."""
        makers = {name: node for node in self.graph.node for name in node.output}
        left, seen = list(names), set[str]()
        while left:
            name = left.pop()
            if name not in seen:
                seen.add(name)
                if name in makers and (beyond is None or beyond(makers[name])):
                    left += makers[name].input
        return [value.name for value in self.inputs() if value.name in seen]

    def replace_nodes(self, nodes: list[onnx.NodeProto]) -> None:
        """Replace the nodes of the graph by `nodes`."""
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del self.graph.node[:]
        self.graph.node.extend(kept)

    def fresh_name(self, base: str) -> str:
        """Return a name based on `base` that is unique in the graph."""
        taken = {name for node in self.graph.node for name in (*node.input, *node.output)}
        taken |= {value.name for value in self.graph.input} | {tensor.name for tensor in self.graph.initializer}
        name, count = base, 0
        while name in taken:
            name, count = f"{base}_{count}", count + 1
        return name


def graphs_in(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield `graph` and all graphs nested in its nodes."""
    yield graph
    for node in graph.node:
        yield from graphs_of(node)


def all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield all graphs of a model: its own, those nested in nodes, and those nested in nodes of its functions."""
    yield from graphs_in(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from graphs_of(node)


def nodes_in(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a model at any depth."""
    for graph in all_graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def tensors_in(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors of a model, initializers and attributes, at any depth."""
    for graph in all_graphs(model):
        yield from graph.initializer
    for node in nodes_in(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield all graphs nested in a node, at any depth."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from graphs_in(attribute.g)
        for graph in attribute.graphs:
            yield from graphs_in(graph)


def static_shape(value: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return the declared shape of a tensor, or None if any of it is unknown."""
    kind = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    if any(not dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return tuple(dim.dim_value for dim in kind.shape.dim)


def node_name(node: onnx.NodeProto) -> str:
    """Return the name of a node in messages: its own, that of the node it is a part of, or its outputs."""
    kept = node.doc_string if node.doc_string not in node.output else ""  # by keep_names
    return repr(node.name or kept or f"-> {', '.join(node.output)}")


def keep_names(model: onnx.ModelProto) -> None:
    """Write the reported name of each node, its own or that of its first output, to its doc_string: copies of a node
    keep it, however they and their tensors are renamed when functions, branches and loops are inlined."""
    for node in nodes_in(model):
        node.doc_string = node.name or next((name for name in node.output if name), "")


def reported_name(node: onnx.NodeProto) -> str:
    """Return the name of a node in reports."""
    return node.doc_string or node.name or next((name for name in node.output if name), "")


def name_within(outer: onnx.NodeProto, inner: onnx.NodeProto) -> str:
    """Return the reported name of a node of a function that `outer` calls."""
    return printable(f"{reported_name(outer)}/{reported_name(inner)}")


def operator_name(node: onnx.NodeProto) -> str:
    """Return the operator of a node: its type, prefixed by its domain if that is not the standard one."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def attributes(node: onnx.NodeProto) -> dict:
    """Return the attributes of a node as Python values, with strings decoded."""
    values = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}
