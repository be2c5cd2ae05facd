"""Inlining of functions in an ONNX model: its own, and standard operators that are defined by others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import inliner

from ...errors import ModelFormatError, UnsupportedOperator
from ...limits import Limits
from ..imported import first_line
from ..written_out import NestedTooDeeply, count_written_out
from .folding import CHEAP
from .graph import OnnxGraph, attributes, graphs_of, name_within, node_name, nodes_in, operator_name, reported_name
from .operand_checks import Operands, check_operands
from .shapes import inferred_types

# Inlined although TVM has a converter, which is for a contributed operator of the same name.
ALWAYS = frozenset(["Attention"])
MAX_NESTING = 100  # of nested functions
_DOMAIN = "written.out"
_Key = tuple[str, str, str]  # domain, name and overload of a function


def write_out_functions(graph: OnnxGraph, supported: Collection[str], limits: Limits) -> bool:
    """Inline the model's functions, and standard operators not in `supported`. Return whether there was any.

    LimitError if that produces too many nodes; ModelFormatError if functions are recursive, or use an operator version
    that differs from the model's.
    """
    own = {_called(function): function for function in graph.proto.functions}
    if own:
        _refuse_growth(graph, limits)
    del graph.proto.functions[:]
    found = False
    # Inlined bodies may call other functions, and use operators that are themselves defined by others, some of them
    # depending on the types of tensors that the model's functions return.
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
    """Return a copy of the function for each node (including nested ones) that calls one of the model's; the nodes now
    call the copies, with attributes filled from the function's defaults."""
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
    """Set the operator versions in a function to the model's, which may differ if its operators are the same in both.
    ModelFormatError if they are not."""
    versions, models = _versions(function.opset_import), _versions(graph.proto.opset_import)
    for node in _inner_nodes(function.node):
        wanted, there = versions.get(node.domain), models.get(node.domain)
        if wanted is None or there is None or wanted == there or _key(node) in own:
            continue
        if _since(node, wanted) != _since(node, there):
            raise ModelFormatError(
                f"{graph.where}: function {function.name!r} uses {node.op_type} of operator set {wanted}, "
                f"which differs from that of operator set {there} of the model; expected an operator that is "
                "the same in both"
            )
    graph.proto.opset_import.extend(entry for entry in function.opset_import if entry.domain not in models)
    del function.opset_import[:]
    function.opset_import.extend(graph.proto.opset_import)


def _versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {entry.domain: entry.version for entry in imports}


def _since(node: onnx.NodeProto, version: int) -> int | None:
    """Return the version since which an operator is as in `version`; None if no definition is known."""
    schema = _schema(node, version)
    return None if schema is None else schema.since_version


def _refuse_growth(graph: OnnxGraph, limits: Limits) -> None:
    """Check the number of nodes before inlining anything: each level may double it."""
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
        what = f"{graph.where}: node {node_name(node)} ({node.op_type}): operators after inlining functions"
        limits.require_nodes(what, total, held)


def _inner_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes with those of their nested graphs."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from graph.node


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type, getattr(node, "overload", "")


def _called(function: onnx.FunctionProto) -> _Key:
    return function.domain, function.name, getattr(function, "overload", "")


def _definitions(graph: OnnxGraph, supported: Collection[str]) -> list[onnx.FunctionProto]:
    """Return a function for each node that is to be inlined; the nodes now call them."""
    versions = {**_versions(graph.proto.opset_import), "": graph.opset}
    chosen = [
        (node, schema)
        for node in graph.graph.node
        if _is_defined(node, supported) and (schema := _schema(node, versions.get(node.domain, 0))) is not None
    ]
    types = _types(graph) if any(schema.has_context_dependent_function for _, schema in chosen) else {}
    for node, _ in chosen:
        _check(graph, node, types)
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


def _check(graph: OnnxGraph, node: onnx.NodeProto, types: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Raise UnsupportedOperator if the operands of a node are known not to match: its parts would broadcast them, or
    refuse them in other words."""

    def shape_of(place: int) -> list[int | None] | None:
        name = node.input[place] if place < len(node.input) else ""
        if name not in types or not types[name].type.tensor_type.HasField("shape"):
            return None
        dims = types[name].type.tensor_type.shape.dim
        return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]

    try:
        check_operands(operator_name(node), Operands(attributes(node), shape_of, lambda _: None))
    except ValueError as error:
        raise UnsupportedOperator(
            f"{graph.where}: node {node_name(node)} ({node.op_type}) is not supported in this form: {error}"
        ) from None


def _is_defined(node: onnx.NodeProto, supported: Collection[str]) -> bool:
    """Return whether an operator should be replaced by its definition because it has no better converter."""
    name = operator_name(node)
    return name in ALWAYS or (name not in supported and name not in CHEAP)


def _types(graph: OnnxGraph) -> dict[str, onnx.ValueInfoProto]:
    return inferred_types(graph, inferred_types(graph))


def _schema(node: onnx.NodeProto, opset: int) -> Any:
    """Return the onnx package's schema for a node's operator, or None."""
    try:
        return onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None


def _definition(
    node: onnx.NodeProto, schema: Any, opset: int, types: dict[str, onnx.ValueInfoProto]
) -> onnx.FunctionProto | None:
    """Return the definition of a node's operator from its `schema`, for its attributes and types."""
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
    # A definition applies until the standard replaces it, so it is read as one of the model's version.
    del function.opset_import[:]
    function.opset_import.append(onnx.helper.make_opsetid("", opset))
    return function
