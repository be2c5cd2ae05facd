"""Translation of a Relay module to the body of one Relax function; every call of a function is inlined.

Unsupported operators do not stop the translation: they are recorded, everything that depends on them is skipped, and
all of them are reported in one error.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from ...errors import LimitError, ModelFormatError, UnsupportedOperator
from ...limits import Limits
from ...sizes import names_of
from ..imported import first_line
from ..node_names import NamingBuilder, NodeNames
from ..open_shapes import OpenShapes
from ..size_tensors import as_tensor
from ..size_values import SizeValue
from ..written_out import NestedTooDeeply, count_written_out
from .attributes import with_defaults
from .open_supported import ANY_SHAPE
from .operands import OpenOperand, Operands, Value, dtype_of, extents_of, shape_of, shape_text
from .operators import OPERATORS
from .size_rules import evaluated
from .tree import (
    Call,
    Constant,
    Expr,
    Function,
    Get,
    GlobalRef,
    If,
    MakeTuple,
    Missing,
    Module,
    OtherType,
    TupleType,
    Type,
    Var,
    in_order,
)

MAX_CALLS = 100  # nesting of function calls
MAX_TUPLES = 100  # nesting of tuples
LISTED = 12  # locations listed per operator


@dataclass(frozen=True)
class _Closure:
    """A function with the scope in which it was created."""

    function: Function
    scope: ChainMap[int, Value]


class _Unsupported:
    """Placeholder for an expression that could not be translated."""


_UNSUPPORTED = _Unsupported()


class Translator:
    """Traverses a module and emits Relax.

    `supplied`: values for constants that the file lacks, by name. `shapes`: the known facts about dynamic dimensions.
    `mapped`: for each operator, how often it was converted to which Relax operators. `weights`: bytes of the constants
    so far.
    """

    def __init__(
        self,
        module: Module,
        builder: NamingBuilder,
        where: str,
        supplied: Mapping[str, np.ndarray],
        limits: Limits,
        shapes: OpenShapes,
    ) -> None:
        self.module = module
        self.supplied = supplied
        self.builder = builder
        self.where = where
        self.limits = limits
        self.shapes = shapes
        self.names = NodeNames()
        self.problems: dict[str, list[int]] = {}
        self.mapped: dict[str, dict[str, int]] = {}
        self.written = 0
        self.depth = 0
        self._constants: dict[int, relax.Expr] = {}
        self.weights = 0
        # Number of tensors and nesting depth of tuples, by id; the tuples are kept alive so that ids remain valid.
        self._tuples: dict[int, tuple[Value, int, int]] = {}

    def run(self, function: Function, inputs: Mapping[int, Value]) -> Value:
        """The result of `function` for inputs by parameter id. UnsupportedOperator lists all unsupported operators."""
        self.refuse_unknown(function)
        self.refuse_growth(function)
        result = self.evaluate(function.body, ChainMap(dict(inputs)))
        if self.problems:
            raise UnsupportedOperator(f"{self.where}: {self.listed()}")
        return result

    def fail(self, expr: Expr, what: str) -> ModelFormatError:
        return ModelFormatError(f"{self.where}: {self.module.at(expr)}: {what}")

    def listed(self) -> str:
        parts = []
        for what, places in self.problems.items():
            unit = self.module.unit if len(places) == 1 else f"{self.module.unit}s"
            more = f" and {len(places) - LISTED} more" if len(places) > LISTED else ""
            parts.append(f"{what} ({unit} {', '.join(map(str, places[:LISTED]))}{more})")
        return f"unsupported operators: {'; '.join(parts)}"

    def note(self, expr: Expr, what: str) -> None:
        places = self.problems.setdefault(what, [])
        if expr.place not in places:
            places.append(expr.place)

    def refuse_unknown(self, root: Function) -> None:
        """Record every operator without a translation, in every function reachable from `root`."""
        left: list[Function] = [root]
        seen: set[int] = set()
        while left:
            function = left.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            for expr in in_order(function.body):
                if isinstance(expr, Call) and isinstance(expr.op, str) and expr.op not in OPERATORS:
                    self.note(expr, expr.op)
                elif isinstance(expr, Function):
                    left.append(expr)
                elif isinstance(expr, GlobalRef) and expr.name in self.module.functions:
                    left.append(self.module.functions[expr.name])

    def refuse_growth(self, root: Function) -> None:
        """Raise LimitError if inlining produces too many expressions: each level of functions may double them."""
        functions = {id(root): root}

        def parts(key: int) -> tuple[int, list[int]]:
            own, called = 0, []
            for expr in in_order(functions[key].body):
                op = expr.op if isinstance(expr, Call) else None
                op = self.module.functions.get(op.name) if isinstance(op, GlobalRef) else op
                if isinstance(op, Function):
                    functions[id(op)] = op
                    called.append(id(op))
                else:
                    own += 1
            return own, called

        try:
            count = count_written_out(id(root), parts, {}, MAX_CALLS)
        except NestedTooDeeply as error:
            raise self.fail(root, str(error)) from None
        self.limits.require_nodes(f"{self.where}: expressions after inlining functions", count)

    # Expressions.

    def evaluate(self, root: Expr, scope: ChainMap[int, Value]) -> Value:
        for expr in in_order(root, scope):
            scope[id(expr)] = self.value(expr, scope)
        return scope[id(root)]

    def value(self, expr: Expr, scope: ChainMap[int, Value]) -> Value:
        """The value of an expression whose operands are in `scope`."""
        self.more(expr, 1)
        if isinstance(expr, Call):
            return self.call(expr, scope)
        if isinstance(expr, Constant):
            return self.constant(expr)
        if isinstance(expr, MakeTuple):
            fields = tuple(scope[id(field)] for field in expr.fields)
            return _UNSUPPORTED if any(field is _UNSUPPORTED for field in fields) else self.tuple_of(expr, fields)
        if isinstance(expr, Get):
            return self.field(expr, scope[id(expr.value)])
        if isinstance(expr, If):
            return self.branch(expr, scope)
        if isinstance(expr, Function):
            return _Closure(expr, scope)
        if isinstance(expr, GlobalRef):
            if expr.name not in self.module.functions:
                raise self.fail(
                    expr, f"@{expr.name} is not defined; the module defines {', '.join(self.module.functions)}"
                )
            return _Closure(self.module.functions[expr.name], ChainMap())
        if isinstance(expr, Missing):
            if expr.name in self.supplied:
                return self.constant(Constant(expr.place, expr.type, self.supplied[expr.name]))
            raise self.fail(
                expr,
                f"{expr.name} is not in the file, which has no metadata; expected text with its metadata, or "
                f"params={{{expr.name!r}: value}}",
            )
        assert isinstance(expr, Var)
        raise self.fail(expr, f"%{expr.name} is not declared; recursion is not supported")

    def more(self, expr: Expr, count: int) -> None:
        """Count `count` more expressions for `expr`. Raises LimitError if there are too many."""
        self.written += count
        what = f"{self.where}: {self.module.at(expr)}: expressions after inlining functions"
        self.limits.require_nodes(what, self.written)

    def tuple_of(self, expr: Expr, fields: tuple[Value, ...]) -> Value:
        """Create a tuple. Raises LimitError if it holds too many tensors, including those of nested tuples."""
        sizes = [self.size(field) for field in fields]
        count, depth = sum(count for count, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)
        self.limits.require_nodes(f"{self.where}: {self.module.at(expr)}: tensors within a tuple", count)
        if depth > MAX_TUPLES:
            raise self.fail(expr, f"tuples are nested more than {MAX_TUPLES} deep")
        self._tuples[id(fields)] = fields, count, depth
        return fields

    def size(self, value: Value) -> tuple[int, int]:
        """Number of tensors and tuple depth of a value."""
        if not isinstance(value, tuple):
            return 1, 0
        return self._tuples[id(value)][1:] if id(value) in self._tuples else (len(value), 1)

    def constant(self, expr: Constant) -> relax.Expr:
        if id(expr.value) not in self._constants:
            self.weights += expr.value.nbytes
            self._constants[id(expr.value)] = relax.const(tvm.runtime.tensor(expr.value), expr.value.dtype.name)
        made = self._constants[id(expr.value)]
        self.check(expr, made)
        return made

    def field(self, expr: Get, held: Value) -> Value:
        if held is _UNSUPPORTED:
            return held
        if not isinstance(held, tuple) or expr.index >= len(held):
            what = f"a tuple of {len(held)}" if isinstance(held, tuple) else "a value that is not a tuple"
            raise self.fail(expr, f"field {expr.index} does not exist in {what}")
        return held[expr.index]

    def branch(self, expr: If, scope: ChainMap[int, Value]) -> Value:
        """Evaluate both branches and select: Relay expressions have no side effects, so this is equivalent."""
        condition, then, other = (scope[id(part)] for part in (expr.condition, expr.then, expr.other))
        self.shapes.why = f"{self.module.at(expr)} (if)"
        if any(part is _UNSUPPORTED for part in (condition, then, other)):
            return _UNSUPPORTED
        self.more(expr, self.size(then)[0])
        return self.chosen(expr, condition, then, other)

    def chosen(self, expr: Expr, condition: Value, then: Value, other: Value) -> Value:
        if isinstance(then, tuple) and isinstance(other, tuple) and len(then) == len(other):
            return tuple(self.chosen(expr, condition, *pair) for pair in zip(then, other, strict=True))
        if isinstance(condition, SizeValue) and condition.is_known and condition.values.size == 1:
            return then if condition.values.item() else other
        condition, then, other = (
            as_tensor(self.builder, part) if isinstance(part, SizeValue) else part for part in (condition, then, other)
        )
        if not all(isinstance(part, relax.Expr) for part in (condition, then, other)):
            raise self.fail(expr, "if selects between functions or tuples of different lengths; expected tensors")
        try:
            return self.builder.emit(relax.op.where(condition, then, other))
        except Exception as error:
            raise self.fail(expr, f"if: {first_line(error)}") from None

    # Calls.

    def call(self, expr: Call, scope: ChainMap[int, Value]) -> Value:
        args = tuple(scope[id(arg)] for arg in expr.args)
        if isinstance(expr.op, str):
            return self.operator(expr, expr.op, args)
        called = scope[id(expr.op)]
        if called is _UNSUPPORTED:
            return called
        if not isinstance(called, _Closure):
            raise self.fail(expr, "it calls a value that is not a function")
        function = called.function
        if len(function.params) != len(args):
            raise self.fail(expr, f"{len(args)} operands are passed to a function of {len(function.params)}")
        self.depth += 1
        if self.depth > MAX_CALLS:
            raise self.fail(expr, f"function calls are nested more than {MAX_CALLS} deep; recursion is not supported")
        inner = called.scope.new_child({id(param): arg for param, arg in zip(function.params, args, strict=True)})
        result = self.evaluate(function.body, inner)
        self.depth -= 1
        return result

    def operator(self, expr: Call, name: str, args: tuple[Value, ...]) -> Value:
        if name not in OPERATORS or any(arg is _UNSUPPORTED for arg in args):
            return _UNSUPPORTED
        made: list[str] = []
        self.builder.called = self.names.variable(expr.node)
        self.shapes.why = f"{self.module.at(expr)} ({name})"
        opened = self.open_sizes(args)
        try:
            attrs = with_defaults(name, expr.attrs)
            known = evaluated(name, args, attrs, self.shapes)
            if known is not None:
                self.count(name, made)
                return known
            if opened and name not in ANY_SHAPE:
                raise OpenOperand
            operands = Operands(name, args, attrs, self.builder, self.module.release, expr.type, made, self.shapes)
            result = self.normal(OPERATORS[name](operands), operands)
            if self.shapes.sizes() and not all(map(_has_shape, _tensors(result))):
                raise OpenOperand("the shape of its result depends on values that are not known at compile time")
        except (MemoryError, LimitError):
            raise
        except Exception as error:
            what = first_line(error)
            if opened and (isinstance(error, OpenOperand) or not isinstance(error, ValueError)):
                named = f"not supported for the dynamic dimensions {', '.join(map(repr, opened))}"
                detail = f" ({what.partition(';')[0]})" if isinstance(error, OpenOperand) and str(error) else ""
                what = f"{named}{detail}; expected numbers for them, by batch, dims or shapes"
            self.note(expr, f"{name}: {what}")
            return _UNSUPPORTED
        self.check(expr, result)
        self.count(name, made)
        return result

    def open_sizes(self, values: tuple[Value, ...]) -> list[str]:
        """The names of dynamic dimensions in the shapes of operands, in order."""
        extents = [
            self.shapes.extent(extent)
            for tensor in _tensors(values)
            if _has_shape(tensor)
            for extent in tensor.ty.shape.values
            if not isinstance(extent, tirx.IntImm)
        ]
        return list(dict.fromkeys(names_of(extent for extent in extents if extent is not None)))

    def normal(self, result: Value, operands: Operands) -> Value:
        """Bind expressions to variables, and convert Relax tuples to Python tuples."""
        if isinstance(result, tuple | list):
            return tuple(self.normal(field, operands) for field in result)
        if isinstance(result, tvm.ir.GenericConst | SizeValue):
            return result
        emitted = result if isinstance(result, relax.Var) else operands.emit(result)
        if isinstance(emitted.ty, relax.TupleType):
            return tuple(
                self.builder.emit(relax.TupleGetItem(emitted, place)) for place in range(len(emitted.ty.fields))
            )
        return emitted

    def count(self, name: str, made: list[str]) -> None:
        counts = self.mapped.setdefault(name, {})
        became = " + ".join(dict.fromkeys(made)) or "nothing"
        counts[became] = counts.get(became, 0) + 1

    # Types.

    def check(self, expr: Expr, value: Value) -> None:
        """Check that a value matches the stated type and that its size is within the limits."""
        self.limit(expr, value)
        if expr.type is not None and not self.agrees(value, expr.type):
            what = expr.op if isinstance(expr, Call) and isinstance(expr.op, str) else "it"
            raise self.fail(expr, f"{what} returns {_described(value)}, but the file states {expr.type}")

    def agrees(self, value: Value, stated: Type) -> bool:
        """Return whether a value may have a type, adding guards where that depends on dynamic dimensions."""
        if isinstance(stated, OtherType):
            return True
        if isinstance(stated, TupleType):
            return (
                isinstance(value, tuple)
                and len(value) == len(stated.fields)
                and all(self.agrees(*pair) for pair in zip(value, stated.fields, strict=True))
            )
        if not isinstance(value, relax.Expr) or dtype_of(value) != stated.dtype:
            return False
        try:
            shape = extents_of(value)
        except OpenOperand:
            return True
        if len(shape) != len(stated.shape):
            return False
        try:
            for has, wanted in zip(shape, stated.shape, strict=True):
                if wanted is not None:
                    self.shapes.agreed(has, wanted)
        except ValueError:
            return False
        return True

    def limit(self, expr: Expr, value: Value) -> None:
        name = f" {expr.op}" if isinstance(expr, Call) and isinstance(expr.op, str) else ""
        for tensor in _tensors(value):
            try:
                shape = shape_of(tensor)
            except ValueError:
                continue
            size = math.prod(shape) * -(-tvm.DataType(dtype_of(tensor)).bits // 8)
            self.limits.require_tensor(f"{self.where}: {self.module.at(expr)}{name}", size, self.weights)


def _tensors(value: Value) -> list[relax.Expr]:
    if isinstance(value, tuple):
        return [tensor for field in value for tensor in _tensors(field)]
    return [value] if isinstance(value, relax.Expr) else []


def _has_shape(tensor: relax.Expr) -> bool:
    return isinstance(tensor.ty, relax.TensorType) and isinstance(tensor.ty.shape, relax.ShapeExpr)


def _described(value: Value) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_described, value))})"
    if not isinstance(value, relax.Expr):
        return "a function"
    try:
        return f"{shape_text(extents_of(value))} {dtype_of(value)}"
    except ValueError:
        return f"(of dynamic shape) {dtype_of(value)}"
