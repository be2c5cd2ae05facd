"""The JSON form of Relay programs given as text, as tvm.ir.save_json wrote the same module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from relay_files import JsonWriter

from tvm_tiling.frontend.relay.attributes import OPERATORS, with_defaults
from tvm_tiling.frontend.relay.parser import parse_program
from tvm_tiling.frontend.relay.tree import (
    Call,
    Constant,
    Expr,
    Function,
    Get,
    GlobalRef,
    If,
    MakeTuple,
    TensorType,
    TupleType,
    Var,
    in_order,
)


def json_of(text: str, release: str = "0.14.0") -> bytes:
    """Return the module of `text`, which has no metadata, as a JSON file of that release, with all attributes."""
    module = parse_program(text, lambda kind, number: None, None)
    return AttributeWriter(release).module_of(module.functions)


class AttributeWriter(JsonWriter):
    """Writes expressions, each once, operands first."""

    def __init__(self, release: str) -> None:
        super().__init__(release)
        self.made: dict[int, str] = {}
        self.operators: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.minor = int(release.split(".")[1])

    def module_of(self, functions: Mapping[str, Function]) -> bytes:
        for name in functions:
            self.globals[name] = self.add("GlobalVar", _checked_type_=0, name_hint=self.string(name), span=0)
        pairs: list[int] = []
        for name, function in functions.items():
            pairs += [int(self.globals[name]), int(self.expression(function))]
        held = self.put({"type_key": "Map", "data": pairs})
        root = self.add("IRModule", attrs=0, functions=held, global_type_var_map_=0, global_var_map_=0, source_map=0)
        return self.file(root)

    def string(self, value: str) -> str:
        """Return a string: a literal until 0.6, a node later."""
        return value if self.minor < 7 else self.text(value)

    def type(self, kind: Any) -> str:
        if isinstance(kind, TensorType):
            extents = [self.add("tir.Any", dtype="int32", span=0) if e is None else self.number(e) for e in kind.shape]
            return self.add("relay.TensorType", dtype=kind.dtype, shape=self.array(extents), span=0)
        if isinstance(kind, TupleType):
            return self.add("TupleType", fields=self.array([self.type(field) for field in kind.fields]), span=0)
        return "0"

    def expression(self, root: Expr) -> str:
        for expr in in_order(root):
            if id(expr) not in self.made:
                self.made[id(expr)] = self.node_of(expr)
        return self.made[id(root)]

    def node_of(self, expr: Expr) -> str:
        of = {"_checked_type_": self.type(expr.type), "span": 0, "virtual_device_": 0}
        if isinstance(expr, Var):
            named = self.add("relay.Id", name_hint=self.string(expr.name))
            return self.add("relay.Var", **of, type_annotation=of["_checked_type_"], vid=named)
        if isinstance(expr, Constant):
            return self.constant(np.asarray(expr.value))
        if isinstance(expr, Call):
            args = self.array([self.made[id(arg)] for arg in expr.args])
            op = expr.op if isinstance(expr.op, str) else self.made[id(expr.op)]
            if isinstance(expr.op, str):
                op = self.operators.setdefault(expr.op, "") or self.op(expr.op)
                self.operators[expr.op] = op
            attrs = self.attributes(expr.op, expr.attrs) if isinstance(expr.op, str) else "0"
            return self.add("relay.Call", **of, args=args, attrs=attrs, op=op, type_args=0)
        if isinstance(expr, MakeTuple):
            return self.add("relay.Tuple", **of, fields=self.array([self.made[id(field)] for field in expr.fields]))
        if isinstance(expr, Get):
            return self.add("relay.TupleGetItem", **of, index=expr.index, tuple_value=self.made[id(expr.value)])
        if isinstance(expr, If):
            cond, then, other = (self.made[id(part)] for part in (expr.condition, expr.then, expr.other))
            return self.add("relay.If", **of, cond=cond, true_branch=then, false_branch=other)
        if isinstance(expr, GlobalRef):
            return self.globals[expr.name]
        assert isinstance(expr, Function)
        params = self.array([self.expression(param) for param in expr.params])
        body, attrs = self.expression(expr.body), "0"
        if expr.attrs:
            values = [int(self.value(value)) for value in expr.attrs.values()]
            attrs = self.add("DictAttrs", __dict__=self.put({"type_key": "Map", "keys": [*expr.attrs], "data": values}))
        return self.add("relay.Function", **of, attrs=attrs, body=body, params=params, ret_type=0, type_params=0)

    def attributes(self, op: str, stated: Mapping[str, Any]) -> str:
        """Return the node of an operator's attributes. Attributes without a common default of all releases are stated
        or absent."""
        if op not in OPERATORS or not OPERATORS[op]:
            return "0"
        fields: dict[str, object] = {}
        for name, value in with_defaults(op, stated).items():
            attribute = OPERATORS[op][name]
            is_node = attribute.node_from is not None and self.minor >= attribute.node_from
            if is_node:
                fields[name] = self.value(value)
            elif attribute.kind == "s":
                fields[name] = "" if value is None else self.string(value) if "layout" in name else value
            elif attribute.kind == "x":
                fields[name] = 0
            elif value is not None:
                fields[name] = int(value) if isinstance(value, bool) else value
        return self.add("relay.attrs.Attrs", **fields)

    def value(self, value: Any) -> str:
        """Return a plain value as a node."""
        if value is None:
            return "0"
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return self.array([self.value(item) for item in value])
        if isinstance(value, bool):
            return self.number(int(value), "bool")
        return self.number(value, "int32" if isinstance(value, int) else "float32")
