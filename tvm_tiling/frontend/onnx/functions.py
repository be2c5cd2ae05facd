"""Functions of an ONNX model written out: its own, and standard operators that the standard defines by others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import onnx
from onnx import inliner

from ...errors import ModelFormatError
from ...limits import Limits
from ..imported import first_line
from ..written_out import NestedTooDeeply, count_written_out
from .folding import CHEAP
from .graph import OnnxGraph, graphs_of, node_name, nodes_in
from .shapes import inferred_types

# Written out although TVM has a converter, which is for a contributed operator of the same name.
ALWAYS = frozenset(["Attention"])
MAX_NESTING = 100  # of functions in functions
_DOMAIN = "written.out"
_Key = tuple[str, str, str]  # domain, name and overload of a function


def write_out_functions(graph: OnnxGraph, supported: Collection[str], limits: Limits) -> bool:
    """Put their definitions in place of the model's functions, and of standard operators not in `supported`; whether
    there was any. LimitError where that gives too many nodes, ModelFormatError where functions call themselves."""
    found = bool(graph.proto.functions)
    if graph.proto.functions:
        _refuse_growth(graph, limits)
        try:
            graph.proto = inliner.inline_local_functions(graph.proto)
        except Exception as error:
            raise ModelFormatError(
                f"{graph.where}: the functions of the model cannot be inlined: {first_line(error)}"
            ) from None
    # A definition may use operators that are themselves defined by others.
    while functions := _definitions(graph, supported):
        found = True
        graph.proto.functions.extend(functions)
        graph.proto.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
        graph.proto = inliner.inline_local_functions(graph.proto)
    return found


def _refuse_growth(graph: OnnxGraph, limits: Limits) -> None:
    """The nodes that functions become are counted before any is written out: each level may double them."""
    functions = {_called(function): function for function in graph.proto.functions}
    held = sum(1 for _ in nodes_in(graph.proto))
    counts: dict[_Key, int] = {}

    def parts(key: _Key) -> tuple[int, list[_Key]]:
        keys = [_key(node) for node in _inner_nodes(functions[key].node)]
        called = [key for key in keys if key in functions]
        return len(keys) - len(called), called

    total = 0
    for node in _inner_nodes(graph.graph.node):
        try:
            total += count_written_out(_key(node), parts, counts, MAX_NESTING) if _key(node) in functions else 1
        except NestedTooDeeply as error:
            raise ModelFormatError(f"{graph.where}: node {node_name(node)} ({node.op_type}): {error}") from None
        what = f"{graph.where}: node {node_name(node)} ({node.op_type}): operators when functions are written out"
        limits.require_nodes(what, total, held)


def _inner_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes with those of the graphs that they hold."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from graph.node


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, getattr(node, "overload", "")


def _called(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, getattr(function, "overload", "")


def _definitions(graph: OnnxGraph, supported: Collection[str]) -> list[onnx.FunctionProto]:
    """A function for each node that is to be written out; the nodes call them from now on."""
    chosen = [
        node
        for node in graph.graph.node
        if node.domain in ("", "ai.onnx")
        and (node.op_type in ALWAYS or (node.op_type not in supported and node.op_type not in CHEAP))
    ]
    types = _types(graph) if any(_depends_on_types(node, graph.opset) for node in chosen) else {}
    functions = []
    for place, (node, function) in enumerate([(node, _definition(node, graph.opset, types)) for node in chosen]):
        if function is not None:
            function.domain, function.name = _DOMAIN, f"{node.op_type}_{place}"
            functions.append(function)
            node.domain, node.op_type = function.domain, function.name
    return functions


def _types(graph: OnnxGraph) -> dict[str, onnx.ValueInfoProto]:
    return inferred_types(graph, inferred_types(graph))


def _schema(node: onnx.NodeProto, opset: int) -> Any:
    """The standard's entry for a node's operator, or None."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return None


def _depends_on_types(node: onnx.NodeProto, opset: int) -> bool:
    schema = _schema(node, opset)
    return schema is not None and schema.has_context_dependent_function


def _definition(node: onnx.NodeProto, opset: int, types: dict[str, onnx.ValueInfoProto]) -> onnx.FunctionProto | None:
    """The standard's definition of a node's operator, for its attributes and types."""
    schema = _schema(node, opset)
    if schema is None:
        return None
    named = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in named and attribute.default_value.name:
            node.attribute.append(attribute.default_value)
    if schema.has_function:
        function = onnx.FunctionProto()
        function.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:
        given = [types[name].type if name in types else onnx.TypeProto() for name in node.input]
        text = schema.get_context_dependent_function(
            node.SerializeToString(), [value.SerializeToString() for value in given]
        )
        if not text:
            return None
        function = onnx.FunctionProto.FromString(text)
    else:
        return None
    # A definition holds until the standard replaces it, so it is read as one of the model's version.
    del function.opset_import[:]
    function.opset_import.append(onnx.helper.make_opsetid("", opset))
    return function
