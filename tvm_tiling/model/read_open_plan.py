"""The execution plan of a model with dynamic dimensions, from the calls of its function "main".

Read where operators are scheduled and constants are arguments: calls of PrimFuncs, reshapes and the result, with shapes
that are expressions of the dynamic dimensions of the inputs. A model with any other operation at run time has no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, tirx

from ..lowering.plain_extents import plain_extent
from ..runtime.open_plan import OpenPlan, OpenTensor, OpenType, Piece
from ..runtime.plan import ARENA, CONSTANT, INPUT, OUTPUT, Step, is_known
from ..sizes import Extent, Named, Shape
from .extract_plan import NoPlan, written_by
from .passes.dataflow import is_op
from .passes.lift import INPUTS


@dataclass
class _Memory:
    """Memory shared by tensors: that of an input, output or constant, or a piece of the arena."""

    place: int
    number: int
    kind: OpenType
    first: int = -1  # steps that use it
    last: int = -1


@dataclass(frozen=True)
class _Tensor:
    memory: _Memory
    kind: OpenType


def read_open_plan(mod: tvm.IRModule, shapes: Sequence[Shape]) -> OpenPlan:
    """The plan of "main" as returned by lift_constants(), with inputs of `shapes`. Raises NoPlan with the reason if
    there is none."""
    return _Reading(mod, shapes).plan()


class _Reading:
    """The function, binding by binding."""

    def __init__(self, mod: tvm.IRModule, shapes: Sequence[Shape]) -> None:
        self._mod, self._main = mod, mod["main"]
        self._values: dict[relax.Var, Any] = {}  # _Tensor, or a tuple of values
        self._steps: list[Step] = []
        self._memories: list[_Memory] = []
        self._tensors: dict[tuple[int, OpenType], int] = {}  # by memory and type
        self._held: list[_Tensor] = []
        self._scalars: dict[Extent, int] = {}
        self._written: dict[tvm.ir.GlobalVar, set[int]] = {}  # parameters that a kernel stores to
        self._names: dict[tirx.Var, str] = {}
        self._writes: dict[str, tuple[int, ...]] = {}  # the same by the names in steps
        self._inputs: list[OpenType] = []
        parameters = list(self._main.params)
        inputs = int((self._main.attrs or {}).get(INPUTS, len(parameters)))
        for parameter, shape in zip(parameters[:inputs], shapes, strict=True):
            for variable, extent in zip(parameter.ty.shape or (), shape, strict=True):
                if isinstance(extent, Named) and isinstance(variable, tirx.Var):
                    self._names[variable] = extent.name
        for number, parameter in enumerate(parameters):
            place, own = (INPUT, number) if number < inputs else (CONSTANT, number - inputs)
            kind = self._type(parameter.ty, parameter.name)
            if place == INPUT:
                kind = OpenType(tuple(shapes[number]), kind.dtype)
                self._inputs.append(kind)
            self._values[parameter] = _Tensor(_Memory(place, own, kind), kind)

    def plan(self) -> OpenPlan:
        body = self._main.body
        if not isinstance(body, relax.SeqExpr):
            raise NoPlan("function 'main' is not a sequence of calls")
        for block in body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise NoPlan(f"operator {binding.var.name!r} has a data-dependent shape")
                self._values[binding.var] = self._value(binding.value, binding.var)
        found = self._value(body.body, None)
        outputs = list(found) if isinstance(found, tuple) else [found]
        if not all(isinstance(each, _Tensor) for each in outputs):
            raise NoPlan("an output of the model is not a tensor")
        return self._placed(outputs)

    def _value(self, expr: Any, variable: relax.Var | None) -> Any:
        name = variable.name if variable is not None else "main"
        if isinstance(expr, relax.Var):
            return self._values[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(field, None) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            value = self._value(expr.tuple_value, None)
            if not isinstance(value, tuple):
                raise NoPlan(f"operator {name!r} takes an element of a value that is not a tuple")
            return value[expr.index]
        if is_op(expr, "call_tir"):
            return self._kernel(expr, name)
        if is_op(expr, "reshape"):
            source = self._tensor(expr.args[0], name)
            return _Tensor(source.memory, self._type(expr.ty, name))
        called = getattr(getattr(expr, "op", None), "name", type(expr).__name__)
        raise NoPlan(f"operator {name!r} calls {called}")

    def _kernel(self, call: relax.Call, name: str) -> Any:
        function = call.args[0]
        func = self._mod[function]
        if not isinstance(func, tirx.PrimFunc):
            raise NoPlan(f"operator {name!r} is not a kernel")
        if function not in self._written:
            self._written[function] = written_by(function.name_hint, func)
        written = self._written[function]
        given = list(call.args[1].fields)
        if len(call.args) > 2:
            given += list(call.args[2].values)
        kinds = call.ty.fields if isinstance(call.ty, relax.TupleType) else [call.ty]
        results = []
        for kind in kinds:
            own = self._type(kind, name)
            self._memories.append(_Memory(ARENA, len(self._memories), own))
            results.append(_Tensor(self._memories[-1], own))
        if any(number < len(given) for number in written):
            raise NoPlan(f"operator {name!r} writes to an argument")
        arguments = [self._argument(value, name) for value in given]
        symbol = _symbol(func, function.name_hint)
        self._writes[symbol] = tuple(range(len(arguments), len(arguments) + len(results)))
        self._steps.append(Step(symbol, (*arguments, *map(self._use, results))))
        return tuple(results) if isinstance(call.ty, relax.TupleType) else results[0]

    def _argument(self, value: Any, name: str) -> int:
        if isinstance(value, tirx.Expr) and tvm.ir.is_prim_expr(value):
            return -1 - self._scalars.setdefault(self._extent(value), len(self._scalars))
        return self._use(self._tensor(value, name))

    def _use(self, tensor: _Tensor) -> int:
        """The number of a tensor used by the next step."""
        memory = tensor.memory
        memory.first = len(self._steps) if memory.first < 0 else memory.first
        memory.last = len(self._steps)
        return self._number(tensor)

    def _number(self, tensor: _Tensor) -> int:
        key = id(tensor.memory), tensor.kind
        if key not in self._tensors:
            self._tensors[key] = len(self._held)
            self._held.append(tensor)
        return self._tensors[key]

    def _tensor(self, expr: Any, name: str) -> _Tensor:
        found = self._value(expr, None)
        if not isinstance(found, _Tensor):
            raise NoPlan(f"operator {name!r} has an argument that is not a tensor")
        return found

    def _placed(self, outputs: list[_Tensor]) -> OpenPlan:
        results = tuple(map(self._number, outputs))
        for number, output in enumerate(outputs):
            if output.memory.place == ARENA:
                # It has the same number of elements, whatever the shape: a reshape preserves it.
                output.memory.place, output.memory.number = OUTPUT, number
        pieces = [memory for memory in self._memories if memory.place == ARENA]
        for number, memory in enumerate(pieces):
            memory.number = number
        return OpenPlan(
            inputs=tuple(self._inputs),
            outputs=tuple(output.kind for output in outputs),
            tensors=tuple(
                OpenTensor(each.kind.shape, each.kind.dtype, each.memory.place, each.memory.number)
                for each in self._held
            ),
            pieces=tuple(Piece(memory.kind.shape, memory.kind.dtype, memory.first, memory.last) for memory in pieces),
            steps=tuple(self._steps),
            scalars=tuple(self._scalars),
            results=results,
            writes=tuple(self._writes.items()),
        )

    def _type(self, kind: Any, name: str) -> OpenType:
        shape, dtype = getattr(kind, "shape", None), str(getattr(kind, "dtype", ""))
        if not isinstance(shape, relax.ShapeExpr):
            raise NoPlan(f"operator {name!r} has a data-dependent shape")
        if not is_known(dtype):
            raise NoPlan(f"operator {name!r} has type {dtype}")
        return OpenType(tuple(map(self._extent, shape.values)), dtype)

    def _extent(self, expr: Any) -> Extent:
        """An extent in terms of the dynamic dimensions of the inputs."""
        found = plain_extent(expr, self._names)
        if found is None:
            raise NoPlan(f"extent {expr} does not follow from the shape of an input")
        return found


def _symbol(func: tirx.PrimFunc, name: str) -> str:
    attrs: Mapping[str, Any] = func.attrs or {}
    return str(attrs.get("global_symbol", name))
