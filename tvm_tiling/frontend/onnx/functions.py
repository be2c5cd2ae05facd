"""Functions of an ONNX model written out: its own, and standard operators that the standard defines by others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import inliner

from ...errors import ModelFormatError
from ...limits import Limits
from ..imported import first_line
from ..written_out import NestedTooDeeply, count_written_out
from .folding import CHEAP
from .graph import OnnxGraph, graphs_of, name_within, node_name, nodes_in, operator_name, reported_name
from .shapes import inferred_types

# Written out although TVM has a converter, which is for a contributed operator of the same name.
ALWAYS = frozenset(["Attention"])
MAX_NESTING = 100  # of functions in functions
_DOMAIN = "written.out"
_Key = tuple[str, str, str]  # domain, name and overload of a function


def write_out_functions(graph: OnnxGraph, supported: Collection[str], limits: Limits) -> bool:
    """Put their definitions in place of the model's functions, and of standard operators not in `supported`; whether
    there was any. LimitError where that gives too many nodes, ModelFormatError where functions call themselves, or are
    of a version of the operators that differs from the model's."""
    own = {_called(function): function for function in graph.proto.functions}
    if own:
        _refuse_growth(graph, limits)
    del graph.proto.functions[:]
    found = False
    # What is written out may call other functions, and use operators that are themselves defined by others, some of
    # them according to the types of tensors that the model's functions give.
    while functions := _copies(graph, own) or _definitions(graph, supported):
        found = True
        graph.proto.functions.extend(functions)
        if _DOMAIN not in _versions(graph.proto.opset_import):
            graph.proto.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
        try:
            graph.proto = inliner.inline_local_functions(graph.proto)
        except Exception as error:
            raise ModelFormatError(
                f"{graph.where}: the functions of the model cannot be inlined: {first_line(error)}"
            ) from None
    return found


def _copies(graph: OnnxGraph, own: Mapping[_Key, onnx.FunctionProto]) -> list[onnx.FunctionProto]:
    """A copy of its function for each node of the graph, and of those within, that calls one of the model's; the nodes
    call them from now on, with the attributes that they left to the function's defaults."""
    copies = []
    for place, node in enumerate([node for node in _inner_nodes(graph.graph.node) if _key(node) in own]):
        function = onnx.FunctionProto()
        function.CopyFrom(own[_key(node)])
        _settle_versions(graph, function, own)
        for inner in _inner_nodes(function.node):
            inner.doc_string = name_within(node, inner)
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(default for default in function.attribute_proto if default.name not in given)
        function.attribute.extend(default.name for default in function.attribute_proto)
        del function.attribute_proto[:]
        function.domain, function.name, function.overload = _DOMAIN, f"{place}_{function.name}", ""
        node.domain, node.op_type, node.overload = function.domain, function.name, ""
        copies.append(function)
    return copies


def _settle_versions(graph: OnnxGraph, function: onnx.FunctionProto, own: Mapping[_Key, onnx.FunctionProto]) -> None:
    """Make the versions of the operators in a function the model's, which may be others where the operators in it are
    the same in both. ModelFormatError where they are not."""
    versions, models = _versions(function.opset_import), _versions(graph.proto.opset_import)
    for node in _inner_nodes(function.node):
        wanted, there = versions.get(node.domain), models.get(node.domain)
        if wanted is None or there is None or wanted == there or _key(node) in own:
            continue
        if _since(node, wanted) != _since(node, there):
            raise ModelFormatError(
                f"{graph.where}: function {function.name!r} has {node.op_type} of version {wanted} of the operators, "
                f"which differs from that of version {there}, which the model has; expected one form of an operator"
            )
    graph.proto.opset_import.extend(entry for entry in function.opset_import if entry.domain not in models)
    del function.opset_import[:]
    function.opset_import.extend(graph.proto.opset_import)


def _versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {entry.domain: entry.version for entry in imports}


def _since(node: onnx.NodeProto, version: int) -> int | None:
    """The version from which on an operator has been as it is in `version`; None where no definition is known."""
    schema = _schema(node, version)
    return None if schema is None else schema.since_version


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
    versions = {**_versions(graph.proto.opset_import), "": graph.opset}
    chosen = [
        (node, schema)
        for node in graph.graph.node
        if _is_defined(node, supported) and (schema := _schema(node, versions.get(node.domain, 0))) is not None
    ]
    types = _types(graph) if any(schema.has_context_dependent_function for _, schema in chosen) else {}
    functions = []
    made = [(node, _definition(node, schema, graph.opset, types)) for node, schema in chosen]
    for place, (node, function) in enumerate(made):
        if function is not None:
            function.domain, function.name = _DOMAIN, f"{node.op_type}_{place}"
            for inner in _inner_nodes(function.node):
                inner.doc_string = reported_name(node)
            functions.append(function)
            node.domain, node.op_type = function.domain, function.name
    if functions and "" not in _versions(graph.proto.opset_import):
        graph.proto.opset_import.append(onnx.helper.make_opsetid("", graph.opset))
    return functions


def _is_defined(node: onnx.NodeProto, supported: Collection[str]) -> bool:
    """Whether an operator has no converter that is better than a definition by other operators."""
    name = operator_name(node)
    return name in ALWAYS or (name not in supported and name not in CHEAP)


def _types(graph: OnnxGraph) -> dict[str, onnx.ValueInfoProto]:
    return inferred_types(graph, inferred_types(graph))


def _schema(node: onnx.NodeProto, opset: int) -> Any:
    """The onnx package's entry for a node's operator, or None."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None


def _definition(
    node: onnx.NodeProto, schema: Any, opset: int, types: dict[str, onnx.ValueInfoProto]
) -> onnx.FunctionProto | None:
    """The definition of a node's operator by its `schema`, for its attributes and types."""
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
