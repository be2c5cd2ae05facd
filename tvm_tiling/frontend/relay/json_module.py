"""Conversion of Relay modules from JSON to the tree of tree.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import ModelFormatError, UnsupportedOperator
from .attributes import from_json
from .nodes import Nodes
from .tree import Call, Constant, Expr, Function, Get, GlobalRef, If, MakeTuple, Module, TensorType, Var

_REFUSED = {
    "relay.Match": "match on algebraic data types",
    "relay.Constructor": "an algebraic data type",
    "relay.RefCreate": "a reference",
    "relay.RefRead": "a reference",
    "relay.RefWrite": "a reference",
}
_MODULES = ("IRModule", "relay.Module")


def module_of(nodes: Nodes) -> Module:
    """The functions of a module, or of a single function or expression. Raises ModelFormatError,
    UnsupportedOperator."""
    decoder = _Decoder(nodes)
    root = nodes.root
    if nodes.kind(root) not in _MODULES:
        body = decoder.expression(root)
        function = body if isinstance(body, Function) else Function(root, None, tuple(decoder.free), body, {})
        return Module({"main": function}, nodes.release, "node", tuple(decoder.free))
    functions: dict[str, Function] = {}
    for key, value in nodes.pairs(nodes.link(root, "functions")):
        if nodes.kind(value) != "relay.Function":
            continue  # already compiled, and unreachable from Relay functions
        decoded = decoder.expression(value)
        assert isinstance(decoded, Function)
        functions[key if isinstance(key, str) else nodes.name(key, "name_hint")] = decoded
    if not functions:
        raise ModelFormatError(f"{nodes.where}: the module has no functions; expected one with @main")
    return Module(functions, nodes.release, "node", tuple(decoder.free))


class _Decoder:
    """Converts nodes to expressions, each node once. Uses an explicit stack, because models are deep."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.made: dict[int, Expr] = {}
        self.free: list[Var] = []
        self.bound: set[int] = set()

    def expression(self, root: int) -> Expr:
        stack: list[tuple[int, int]] = [(root, 0)]
        open_nodes: set[int] = set()
        while stack:
            number, step = stack.pop()
            if number in self.made:
                continue
            stages = self.stages(number)
            if step == 0:
                if number in open_nodes:
                    raise self.nodes.fail(number, "it contains itself; recursion is not supported")
                open_nodes.add(number)
            if step < len(stages):
                stack.append((number, step + 1))
                if self.nodes.kind(number) == "relay.Let" and step == 1:
                    self.made[self.nodes.link(number, "var")] = self.made[stages[0][0]]
                stack.extend((child, 0) for child in reversed(stages[step]) if child not in self.made)
                continue
            self.made[number] = self.build(number)
            open_nodes.discard(number)
        return self.made[root]

    def stages(self, number: int) -> list[list[int]]:
        """The nodes to convert before this one, in stages."""
        nodes, kind = self.nodes, self.nodes.kind(number)
        if kind == "relay.Call":
            op = nodes.link(number, "op")
            called = [] if nodes.kind(op) == "Op" else [op]
            return [[*nodes.items(nodes.link(number, "args")), *called]]
        if kind == "relay.Tuple":
            return [nodes.items(nodes.link(number, "fields"))]
        if kind == "relay.TupleGetItem":
            return [[nodes.link(number, "tuple_value")]]
        if kind == "relay.Let":
            return [[nodes.link(number, "value")], [nodes.link(number, "body")]]
        if kind == "relay.If":
            return [[nodes.link(number, name) for name in ("cond", "true_branch", "false_branch")]]
        if kind == "relay.Function":
            params = nodes.items(nodes.link(number, "params"))
            self.bound.update(params)
            return [params, [nodes.link(number, "body")]]
        return []

    def build(self, number: int) -> Expr:
        """The expression of a node whose operands are converted."""
        nodes, kind = self.nodes, self.nodes.kind(number)
        stated = nodes.type(nodes.link(number, "_checked_type_"))
        if kind == "relay.Var":
            stated = nodes.type(nodes.link(number, "type_annotation")) or stated
            name = nodes.name(nodes.link(number, "vid"), "name_hint")
            variable = Var(number, stated, name)
            if number not in self.bound:
                self.free.append(variable)
            return variable
        if kind == "relay.Constant":
            value = nodes.array(number)
            return Constant(number, stated or TensorType(value.shape, value.dtype.name), value)
        if kind == "relay.Call":
            return self.call(number)
        if kind == "relay.Tuple":
            fields = tuple(self.made[item] for item in nodes.items(nodes.link(number, "fields")))
            return MakeTuple(number, stated, fields)
        if kind == "relay.TupleGetItem":
            index = nodes.number_of(number, nodes.fields(number).get("index", ""))
            return Get(number, stated, self.made[nodes.link(number, "tuple_value")], index)
        if kind == "relay.Let":
            return self.made[nodes.link(number, "body")]
        if kind == "relay.If":
            condition, then, other = (
                self.made[nodes.link(number, name)] for name in ("cond", "true_branch", "false_branch")
            )
            return If(number, stated, condition, then, other)
        if kind == "relay.Function":
            return self.function(number)
        if kind == "GlobalVar":
            return GlobalRef(number, stated, nodes.name(number, "name_hint"))
        if kind in _REFUSED:
            raise UnsupportedOperator(
                f"{nodes.where}: node {number}: {_REFUSED[kind]} is not supported; expected tensors"
            )
        raise nodes.fail(number, f"{kind!r} is not a Relay expression")

    def call(self, number: int) -> Expr:
        nodes = self.nodes
        op = nodes.link(number, "op")
        args = tuple(self.made[item] for item in nodes.items(nodes.link(number, "args")))
        stated = nodes.type(nodes.link(number, "_checked_type_"))
        if nodes.kind(op) != "Op":
            return Call(number, stated, self.made[op], args, {}, self.node_name(number))
        held = nodes.node(op)
        name = str(held.get("repr_str") or held.get("global_key") or "")
        attrs = nodes.link(number, "attrs")
        return Call(number, stated, name, args, from_json(name, nodes, attrs), self.node_name(number))

    def node_name(self, number: int) -> str:
        """The source that the importer of a call's model noted: a name on line 0. Relay's own parser notes line numbers
        of its text instead."""
        nodes = self.nodes
        span = nodes.link(number, "span")
        if nodes.kind(span) != "Span" or nodes.fields(span).get("line") != "0":
            return ""
        source = nodes.node(nodes.link(span, "source_name")).get("repr_str")
        return source if isinstance(source, str) else ""

    def function(self, number: int) -> Function:
        nodes = self.nodes
        params = []
        for item in nodes.items(nodes.link(number, "params")):
            made = self.made[item]
            if not isinstance(made, Var):
                raise nodes.fail(number, "a parameter is not a variable")
            params.append(made)
        return Function(number, None, tuple(params), self.made[nodes.link(number, "body")], self.function_attrs(number))

    def function_attrs(self, number: int) -> Mapping[str, Any]:
        attrs = self.nodes.link(number, "attrs")
        held = self.nodes.fields(attrs).get("__dict__")
        if held is None:
            return {}
        found = self.nodes.value(self.nodes.number_of(attrs, held))
        return found if isinstance(found, dict) else {}
