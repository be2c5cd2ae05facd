"""Limits on what a Relax model requests: tensor sizes, constants to be computed, work, tuple fields.

Sizes are those of the types that TVM inferred, so nothing is computed to determine them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
from tvm import relax, sym, tirx

from ..errors import ModelFormatError
from ..limits import Limits
from ..match.access import substitute, variables
from .node_names import names_in, nodes_named, numbers_of

# Operators without tensor operands: TVM constant-folds those of up to 1,024 elements, and no others.
_FOLDED_ELEMENTS = 1024
_DEPTH = 100  # of nested tuples: TVM's passes recurse
_Type: TypeAlias = tvm.ir.Type


def refuse_tuples(module: tvm.IRModule, limits: Limits, where: str) -> None:
    """Raise LimitError if a tuple holds too many tensors, including nested tuples, and ModelFormatError if tuples are
    nested too deeply. Must run before any TVM pass, since these visit every field of ((x, x), (x, x)) and so on."""
    for function in _functions(module):
        sizes = _Sizes()
        for variable in (*function.params, *(binding.var for binding in _bindings(function))):
            _refuse_tuple(f"{where}: tensors within tuple {variable.name!r}", sizes.of(variable.ty), limits)


def refuse_excess(module: tvm.IRModule, limits: Limits, where: str) -> None:
    """Raise LimitError, naming the operator, the size and the limit, if the model exceeds its limits."""
    for function in _functions(module):
        _Bounds(function, names_in(module), limits, where).check()


def _refuse_tuple(what: str, size: _Size, limits: Limits) -> None:
    limits.require_nodes(what, size.tensors)
    if size.depth > _DEPTH:
        raise ModelFormatError(f"{what} are nested more than {_DEPTH} deep; expected flat tuples")


@dataclass(frozen=True)
class _Size:
    """Size of a type: its number of tensors, tuple nesting depth, total bytes, and bytes of the largest tensor."""

    tensors: int
    depth: int
    total: int
    largest: int


class _Sizes:
    """Sizes of types. A type object is measured once, however often tuples contain it."""

    def __init__(self) -> None:
        self._known: dict[int, _Size] = {}
        self._kept: list[_Type] = []  # keeps types alive, so that addresses are not reused

    def of(self, kind: _Type) -> _Size:
        stack = [kind]
        while stack:
            found = stack[-1]
            fields = list(found.fields) if isinstance(found, relax.TupleType) else []
            left = [field for field in fields if field.__chandle__() not in self._known]
            if left:
                stack += left
                continue
            stack.pop()
            self._kept.append(found)
            self._known[found.__chandle__()] = self._joined(found, fields)
        return self._known[kind.__chandle__()]

    def _joined(self, kind: _Type, fields: list[_Type]) -> _Size:
        if not isinstance(kind, relax.TupleType):
            size = _bytes(kind)
            return _Size(1, 0, size, size)
        parts = [self._known[field.__chandle__()] for field in fields]
        return _Size(
            sum(part.tensors for part in parts),
            1 + max((part.depth for part in parts), default=0),
            sum(part.total for part in parts),
            max((part.largest for part in parts), default=0),
        )


class _Bounds:
    """One pass over the bindings of a function."""

    def __init__(self, function: relax.Function, nodes: Sequence[str], limits: Limits, where: str) -> None:
        self.nodes = nodes
        self.function, self.limits, self.where = function, limits, where
        self.weights = sum(_constant_bytes(function))
        self.computed = self.operations = 0
        self.sizes = _Sizes()
        self.known: set[int] = set()  # variables that depend only on constants, by object address

    def check(self) -> None:
        for variable in self.function.params:
            size = self.sizes.of(variable.ty)
            self.limits.require_tensor(f"{self.where}: input {variable.name!r}", size.largest, self.weights)
        for binding in _bindings(self.function):
            value, kind = binding.value, binding.var.ty
            name, size = _name(value), self.sizes.of(kind)
            what = f"{self.where}: {f'{name} -> ' if name else ''}{self.called(binding.var)!r}"
            _refuse_tuple(what, size, self.limits)
            self.limits.require_tensor(what, size.largest, self.weights)
            if isinstance(value, relax.Call):
                self.operations += _operations(name, value, kind)
                self.limits.require_operations(what, self.operations)
            if self.depends_on_constants(value, kind):
                self.known.add(binding.var.__chandle__())
                self.computed += size.total
                self.limits.require_constants(what, self.computed, self.weights)

    def called(self, variable: relax.Var) -> str:
        """Return the node of the model that produces a variable, or the name of the variable."""
        nodes = nodes_named(self.nodes, numbers_of(variable.name))
        return nodes[0] if nodes else str(variable.name)

    def depends_on_constants(self, value: relax.Expr, kind: _Type) -> bool:
        if isinstance(value, relax.Call):
            operands = [*_tensors(value.args)]
            if not operands:
                return _elements(kind) <= _FOLDED_ELEMENTS
        elif isinstance(value, relax.Tuple | relax.TupleGetItem):
            operands = [*_tensors(value.fields if isinstance(value, relax.Tuple) else [value.tuple_value])]
        else:
            return False
        return all(
            isinstance(operand, tvm.ir.GenericConst) or operand.__chandle__() in self.known for operand in operands
        )


def _functions(module: tvm.IRModule) -> list[relax.Function]:
    return [function for function in module.functions.values() if isinstance(function, relax.Function)]


def _bindings(function: relax.Function) -> Iterator[relax.Binding]:
    """Yield the bindings of a function, including those in branches."""
    bodies = [function.body]
    while bodies:
        body = bodies.pop()
        for block in getattr(body, "blocks", ()):
            for binding in block.bindings:
                yield binding
                value = getattr(binding, "value", None)
                if isinstance(value, relax.If):
                    bodies += [value.true_branch, value.false_branch]


def _tensors(args: Iterable[relax.Expr]) -> Iterator[relax.Expr]:
    """Yield operands that are tensors, including those in tuples."""
    for arg in args:
        if isinstance(arg, relax.Tuple):
            yield from _tensors(arg.fields)
        elif isinstance(arg, relax.Var | tvm.ir.GenericConst) and not isinstance(arg.ty, relax.ShapeType):
            yield arg


def _name(value: relax.Expr) -> str:
    op = getattr(value, "op", None)
    if not isinstance(op, tvm.ir.Op):
        return ""
    if op.name == "relax.call_tir":
        return str(value.args[0].name_hint)
    return str(op.name).removeprefix("relax.")


def _constant_bytes(function: relax.Function) -> list[int]:
    """Return the bytes of every constant, each counted once."""
    found: dict[int, int] = {}

    def constant(expr: object) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            found[expr.__chandle__()] = _bytes(expr.ty)

    relax.analysis.post_order_visit(function, constant)
    return list(found.values())


def _shape(kind: _Type) -> list[int] | None:
    """Return the shape of a tensor with symbolic extents at their minimum; None if it is data-dependent, and for values
    that are not tensors."""
    shape = kind.shape if isinstance(kind, relax.TensorType) else None
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(value) if isinstance(value, tirx.IntImm) else _least(value) for value in shape.values]


def _least(extent: tirx.Expr) -> int:
    """Return an extent with every symbolic size set to 1."""
    ones = {variable: tirx.const(1, str(variable.ty)) for variable in variables(extent)}
    found = sym.Analyzer().simplify(substitute(extent, ones))
    return max(int(found), 0) if isinstance(found, tirx.IntImm) else 0


def _elements(kind: _Type) -> int:
    shape = _shape(kind)
    return 0 if shape is None else math.prod(shape)


def _bytes(kind: _Type) -> int:
    count = _elements(kind)
    return count * -(-tvm.DataType(str(kind.dtype)).bits // 8) if count else 0


def _operations(name: str, call: relax.Call, kind: _Type) -> int:
    """Return the multiply-accumulates of a call that multiplies, 0 for any other."""
    shapes = [_shape(arg.ty) for arg in call.args]
    if len(shapes) < 2 or shapes[1] is None:
        return 0
    if name == "matmul":
        return _elements(kind) * (shapes[0][-1] if shapes[0] else 1)
    layout = str(getattr(call.attrs, "kernel_layout", "")) if name.startswith("nn.conv") else ""
    if len(layout) != len(shapes[1]) or "O" not in layout:
        return 0
    transposed = "transpose" in name
    each = math.prod(extent for axis, extent in zip(layout, shapes[1], strict=True) if axis != "IO"[not transposed])
    return (math.prod(shapes[0] or ()) if transposed else _elements(kind)) * each
