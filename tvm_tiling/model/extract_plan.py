"""Extraction of the execution plan of a compiled model: the kernels called by its function "main", and the memory of
its tensors.

The plan is read from the module passed to code generation for the virtual machine: calls of PrimFuncs, allocations,
reshapes and the result. A model with anything else has no plan: branches, data-dependent shapes, functions of TVM or
Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..refusal import REFUSE, REFUSE_SIZE, REFUSE_ZERO
from ..runtime.plan import (
    ARENA,
    CONSTANT,
    INPUT,
    OUTPUT,
    ExecutionPlan,
    Lifetime,
    PlannedTensor,
    Step,
    TensorType,
    is_known,
    packed,
)
from .passes.lift import INPUTS

# Virtual machine functions that do nothing if all shapes are static: kernels check their arguments.
_CHECKS = ("vm.builtin.check_tensor_info", "vm.builtin.match_shape", "vm.builtin.check_shape_info")
_CALLS_PACKED = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked")


class NoPlan(Exception):
    """The model has no plan; the text names the operator that is the reason."""


@dataclass
class _Memory:
    """Memory shared by tensors: that of an input or constant, or an allocation."""

    place: int
    number: int  # of the input or constant
    bytes: int
    first: int = -1  # steps that use it
    last: int = -1


@dataclass(frozen=True)
class _Tensor:
    memory: _Memory
    kind: TensorType


def extract_plan(mod: tvm.IRModule) -> ExecutionPlan:
    """The plan of "main" after lift_constants(). Raises NoPlan with the reason if there is none."""
    main = mod["main"]
    inputs = int((main.attrs or {}).get(INPUTS, len(main.params)))
    return _Reading(mod, main, inputs).plan()


class _Reading:
    """Processes the bindings of the function in order."""

    def __init__(self, mod: tvm.IRModule, main: relax.Function, inputs: int) -> None:
        self._mod, self._main = mod, main
        self._values: dict[relax.Var, Any] = {}  # _Tensor, or a tuple of values; None for bindings without a tensor
        self._steps: list[tuple[str, list[_Tensor]]] = []
        self._allocated: list[_Memory] = []
        self._written: dict[str, set[int]] = {}  # kernel name to the indices of the tensors that it writes
        self._writes: dict[str, tuple[int, ...]] = {}  # the same by the names in steps
        self._inputs = []
        for number, parameter in enumerate(main.params):
            kind = _type_of(parameter, parameter.name)
            place, number = (INPUT, number) if number < inputs else (CONSTANT, number - inputs)
            self._values[parameter] = _Tensor(_Memory(place, number, kind.bytes), kind)
            if place == INPUT:
                self._inputs.append(kind)

    def plan(self) -> ExecutionPlan:
        body = self._main.body
        if not isinstance(body, relax.SeqExpr):
            raise NoPlan("function 'main' is not a sequence of calls")
        for block in body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise NoPlan(f"operator {binding.var.name!r} has a shape computed at run time")
                self._values[binding.var] = self._value(binding.value, binding.var.name)
        return self._placed(self._outputs(self._value(body.body, "main")))

    def _value(self, expr: Any, name: str) -> Any:
        if isinstance(expr, relax.Var):
            return self._values[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(field, name) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            value = self._value(expr.tuple_value, name)
            if not isinstance(value, tuple):
                raise NoPlan(f"operator {name!r} takes a field of a value that is not a tuple")
            return value[expr.index]
        if isinstance(expr, relax.If):
            raise NoPlan(f"operator {name!r} is a branch")
        if isinstance(expr, relax.Call):
            return self._call(expr, name)
        return None  # shapes and numbers: rejected as call arguments

    def _call(self, call: relax.Call, name: str) -> Any:
        if isinstance(call.op, tvm.ir.GlobalVar):
            self._kernel(call)
            return None
        if isinstance(call.op, tvm.ir.Op):
            if call.op.name == "relax.vm.alloc_tensor":
                return self._allocate(call, name)
            if call.op.name in ("relax.vm.alloc_storage", "relax.vm.kill_object", "relax.null_value"):
                return None
            raise NoPlan(f"operator {name!r} calls {call.op.name}")
        called = str(getattr(call.op, "global_symbol", call.op))
        if called in _CHECKS:
            return None
        if called == "vm.builtin.make_tuple":
            return tuple(self._value(argument, name) for argument in call.args)
        if called == "vm.builtin.reshape":
            source = self._tensor(call.args[0], name)
            kind = TensorType(_extents(call.args[1], name), source.kind.dtype)
            if kind.bytes != source.kind.bytes:
                raise NoPlan(f"operator {name!r} reshapes to a different size")
            return _Tensor(source.memory, kind)
        raise NoPlan(f"operator {name!r} calls {called}")

    def _allocate(self, call: relax.Call, name: str) -> _Tensor:
        shape, dtype = _extents(call.args[2], name), str(call.args[3].value)
        if not is_known(dtype):
            raise NoPlan(f"operator {name!r} has type {dtype}")
        kind = TensorType(shape, dtype)
        memory = _Memory(ARENA, len(self._allocated), kind.bytes)
        self._allocated.append(memory)
        return _Tensor(memory, kind)

    def _kernel(self, call: relax.Call) -> None:
        name = call.op.name_hint
        func = self._mod[call.op]
        if not isinstance(func, tirx.PrimFunc):
            raise NoPlan(f"operator {name!r} is not a kernel")
        if name not in self._written:
            self._written[name] = written_by(name, func)
        tensors = [self._tensor(argument, name) for argument in call.args]
        if any(tensors[number].memory.place in (INPUT, CONSTANT) for number in self._written[name]):
            raise NoPlan(f"operator {name!r} writes to an input or constant")
        # Memory that was not used before is written here, even if the kernel does so by intrinsics.
        new = {n for n, tensor in enumerate(tensors) if tensor.memory.place == ARENA and tensor.memory.first < 0}
        for tensor in tensors:
            memory = tensor.memory
            memory.first = len(self._steps) if memory.first < 0 else memory.first
            memory.last = len(self._steps)
        symbol = str(func.attrs["global_symbol"]) if "global_symbol" in func.attrs else name
        self._writes[symbol] = tuple(sorted({*self._writes.get(symbol, ()), *self._written[name], *new}))
        self._steps.append((symbol, tensors))

    def _tensor(self, expr: Any, name: str) -> _Tensor:
        found = self._value(expr, name)
        if not isinstance(found, _Tensor):
            raise NoPlan(f"operator {name!r} takes an argument that is not a tensor")
        return found

    def _outputs(self, value: Any) -> list[_Tensor]:
        values = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(each, _Tensor) for each in values):
            raise NoPlan("an output of the model is not a tensor")
        return list(values)

    def _placed(self, outputs: list[_Tensor]) -> ExecutionPlan:
        for number, output in enumerate(outputs):
            if output.memory.place == ARENA and output.kind.bytes == output.memory.bytes:
                output.memory.place, output.memory.number = OUTPUT, number
            elif output.memory.place == ARENA:
                output.memory.last = len(self._steps)
        pieces = [memory for memory in self._allocated if memory.place == ARENA and memory.first >= 0]
        lifetimes = [Lifetime(piece.bytes, piece.first, piece.last) for piece in pieces]
        size, offsets = packed(lifetimes)
        for piece, offset in zip(pieces, offsets, strict=True):
            piece.number = offset
        numbers: dict[PlannedTensor, int] = {}

        def number_of(tensor: _Tensor) -> int:
            memory = tensor.memory
            planned = PlannedTensor(tensor.kind.shape, tensor.kind.dtype, memory.place, memory.number)
            return numbers.setdefault(planned, len(numbers))

        steps = tuple(Step(name, tuple(map(number_of, tensors))) for name, tensors in self._steps)
        results = tuple(map(number_of, outputs))
        kinds = tuple(output.kind for output in outputs)
        writes = tuple(self._writes.items())
        return ExecutionPlan(size, tuple(self._inputs), kinds, tuple(numbers), steps, results, writes=writes)


def _type_of(variable: relax.Var, name: str) -> TensorType:
    kind = variable.ty
    shape, dtype = getattr(kind, "shape", None), str(getattr(kind, "dtype", ""))
    if shape is None:
        raise NoPlan(f"input {name!r} has no static shape")
    if not is_known(dtype):
        raise NoPlan(f"input {name!r} has type {dtype}")
    return TensorType(_extents(shape, name), dtype)


def _extents(shape: Any, name: str) -> tuple[int, ...]:
    values = getattr(shape, "values", None)
    if values is None or not all(isinstance(value, tirx.IntImm) for value in values):
        raise NoPlan(f"operator {name!r} has a shape computed at run time")
    return tuple(int(value) for value in values)


def written_by(name: str, func: tirx.PrimFunc) -> set[int]:
    """The parameters to which a kernel stores. Raises NoPlan if it calls a function of TVM or Python, except those that
    report errors, which plan.c defines."""
    called: list[str] = []
    stored: list[Any] = []

    def note(call: tvm.ir.Call) -> None:
        if isinstance(call.op, tvm.ir.Op) and call.op.name in _CALLS_PACKED:
            called.append(str(getattr(call.args[0], "value", call.args[0])))

    def note_store(store: tirx.BufferStore) -> None:
        stored.append(store.buffer)

    tvm_ffi.structural_walk(func.body, [(tvm.ir.Call, note), (tirx.BufferStore, note_store)])
    if others := [each for each in called if each not in (REFUSE, REFUSE_SIZE, REFUSE_ZERO)]:
        raise NoPlan(f"operator {name!r} calls {others[0]}, a function of TVM")
    return {number for number, buffer in enumerate(func.params) if any(buffer.same_as(each) for each in stored)}
