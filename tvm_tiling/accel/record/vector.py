"""Blocks of the vector engine as ALU instructions: the expression is evaluated operation by operation through scratch
space.

Every operation is one instruction over all elements of the instance. Intermediate results go to scratch space after the
buffers of the memory that the block writes to; the last result is the block's own. The scratch space of a block has one
version, because the vector engine executes its instructions in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.ir.prim.expr import LShift, RShift

from ...hardware.machine import Machine
from ...hardware.vector_functions import INTEGERS, Function, VectorFunction
from ..instructions.table import Opcode
from ..program.isa import ElementType, Flag
from ..program.tables import STORAGE
from .buffers import EXTERNAL, Places
from .engines import COPY_LOOPS, constant
from .instances import Coupled, Instances
from .rows import Rows, StridedAccess, access, grouped

Operand: TypeAlias = StridedAccess | float
Target: TypeAlias = StridedAccess | ElementType  # a place, or any scratch space of a type

_BINARY = {
    tirx.Add: Function.ADD,
    tirx.Sub: Function.SUB,
    tirx.Mul: Function.MUL,
    tirx.Div: Function.DIV,
    tirx.Max: Function.MAX,
    tirx.Min: Function.MIN,
}
_EITHER_WAY = (Function.ADD, Function.MUL, Function.MAX, Function.MIN)
_ROUNDING = ("round", "nearbyint")


class VectorBlock:
    """Records the instructions of one block for the vector engine of a machine."""

    def __init__(self, found: Instances, places: Places, rows: Rows, queue: str, machine: Machine) -> None:
        self.found, self.places, self.rows, self.queue, self.machine = found, places, rows, queue, machine
        self.number = 0
        self.scratch: dict[tuple[int, ElementType], StridedAccess] = {}
        self.loans: dict[int, tuple[int, ElementType]] = {}
        self.lent: set[tuple[int, ElementType]] = set()
        store = found.leaf.block.body
        if not isinstance(store, tirx.BufferStore) or found.leaf.block.init is not None:
            raise found.nest.refuse(f"block {found.leaf.name!r} is not element-wise; expected one store without init")
        self.store = store
        self.target = self.access(TensorLoadOf(store))
        self.size = int(np.prod([loop.most for loop in found.inner], dtype=np.int64))

    def record(self) -> None:
        self.into(self.store.value, self.target)

    # ---- operands -------------------------------------------------------------------------------------------------

    def access(self, load: TensorLoad | TensorLoadOf) -> StridedAccess:
        found = access(self.found, self.places, load.source, load.indices)
        if found.memory == EXTERNAL:
            raise self.found.nest.refuse(
                f"block {self.found.leaf.name!r}: the vector engine uses {load.source.name} in external "
                "memory; expected on-chip buffers (cache_read, cache_write)"
            )
        return found

    def temporary(self, kind: ElementType) -> StridedAccess:
        """Return free scratch space for a result of the given type."""
        number = next(i for i in range(len(self.lent) + 1) if (i, kind) not in self.lent)
        key = (number, kind)
        if key not in self.scratch:
            steps, size = [], 1
            for loop in reversed(self.found.inner):
                steps.append(size)
                size *= loop.most
            what = f"scratch space of block {self.found.leaf.name!r}"
            address = self.places.reserve(self.target.memory, size * kind.bytes, what)
            start = np.full(len(self.found), address, dtype=np.int64)
            self.scratch[key] = StridedAccess(self.target.memory, start, tuple(reversed(steps)), kind)
        self.lent.add(key)
        self.loans[id(self.scratch[key])] = key
        return self.scratch[key]

    def release(self, *operands: Operand) -> None:
        for operand in operands:
            self.lent.discard(self.loans.get(id(operand), (-1, ElementType.INT8)))

    def landing(self, target: Target, *operands: Operand) -> StridedAccess:
        """Return where a result of `operands`, which are not needed afterwards, is stored: `target`, or, if that is any
        scratch space of a type, in place of an operand there. An instruction reads everything before it writes."""
        self.release(*operands)
        if isinstance(target, StridedAccess):
            return target
        for operand in operands:
            key = self.loans.get(id(operand))
            if isinstance(operand, StridedAccess) and key is not None and operand.kind is target:
                self.lent.add(key)
                return operand
        return self.temporary(target)

    # ---- instructions ---------------------------------------------------------------------------------------------

    def alu(
        self,
        function: VectorFunction,
        target: StridedAccess,
        a: StridedAccess,
        b: Operand | None = None,
        second: float = 0.0,
    ) -> None:
        """Record target = function(a, b); a scalar b becomes the immediate."""
        if not self.has(function):
            raise self.refuse_function(function)
        accesses = [target, a, *([b] if isinstance(b, StridedAccess) else [])]
        for operand in accesses:
            self.refuse_type(operand)
        immediate = (b if isinstance(b, float) else 0.0, second)
        flags = int(Flag.IMMEDIATE) if isinstance(b, float) else 0
        self.rows.add(
            self.found,
            Opcode.ALU,
            self.queue,
            self.loops(accesses),
            number=self.number,
            a=a,
            b=b if isinstance(b, StridedAccess) else None,
            c=target,
            function=function,
            flags=flags,
            immediate=immediate,
        )
        self.number += 1

    def fill(self, target: StridedAccess, value: float) -> None:
        loops = self.loops([target])
        self.rows.add(self.found, Opcode.FILL, self.queue, loops, number=self.number, c=target, immediate=(value, 0.0))
        self.number += 1

    def loops(self, accesses: Sequence[StridedAccess]) -> list[list[int]]:
        loops = grouped(self.found, accesses, COPY_LOOPS)
        if loops is None:
            raise Coupled
        return loops

    def has(self, function: VectorFunction) -> bool:
        return function.name in self.machine.vector.functions

    def refuse_type(self, operand: StridedAccess) -> None:
        known = self.machine.vector.dtypes
        if known and operand.kind.name.lower() not in known:
            raise self.found.nest.refuse(
                f"block {self.found.leaf.name!r} computes with {operand.kind.name.lower()}, which the "
                f"machine's vector engine does not support; expected {', '.join(known)}"
            )

    def refuse_function(self, function: VectorFunction) -> Exception:
        known = ", ".join(sorted(self.machine.vector.functions))
        return self.found.nest.refuse(
            f"block {self.found.leaf.name!r} needs {function.name}, which the machine's vector engine does "
            f"not support; expected {known}"
        )

    # ---- expressions ----------------------------------------------------------------------------------------------

    def operand(self, expr: tirx.Expr) -> Operand:
        """Return the value of an expression: a constant, the elements of a buffer in place, or a result in scratch
        space."""
        value = constant(expr)
        if value is not None:
            return value
        if isinstance(expr, TensorLoad):
            return self.access(expr)
        return self.into(expr, self.kind(expr))

    def kind(self, expr: tirx.Expr) -> ElementType:
        dtype = str(expr.ty)
        if dtype not in STORAGE:
            raise self.refuse(expr, f"has type {dtype}; expected {', '.join(STORAGE)}")
        return ElementType[dtype.upper()]

    def refuse(self, expr: tirx.Expr, why: str) -> Exception:
        return self.found.nest.refuse(f"block {self.found.leaf.name!r}: {expr} {why}")

    def into(self, expr: tirx.Expr, target: Target) -> StridedAccess:
        """Evaluate an expression into `target`, converted to its type, and return where the result is."""
        value = constant(expr)
        if value is not None:
            place = self.landing(target)
            self.fill(place, value)
            return place
        if isinstance(expr, tirx.Cast):
            return self.cast(expr, target)
        if isinstance(expr, TensorLoad):
            return self.apply(Function.COPY, self.access(expr), target)
        if (bounds := _clipped(expr)) is not None and self.has(Function.CLIP):
            return self.unary(Function.CLIP, bounds[0], target, bounds[1], bounds[2])
        if type(expr) in _BINARY:
            return self.binary(expr, target)
        if isinstance(expr, tirx.FloorDiv):
            return self.floor_division(expr, target)
        if isinstance(expr, (RShift, LShift)) and constant(expr.b) is not None:
            bits = int(constant(expr.b) or 0)
            if isinstance(expr, LShift):
                return self.unary(Function.SHIFT, expr.a, target, -bits)
            return self.shifted(expr.a, bits, target)
        if isinstance(expr, Call):
            return self.call(expr, target)
        raise self.refuse(expr, f"is a {type(expr).__name__}; expected arithmetic, min, max, shifts and functions")

    def apply(
        self, function: VectorFunction, a: StridedAccess, target: Target, b: Operand | None = None, second: float = 0.0
    ) -> StridedAccess:
        """Record one instruction whose result goes to `target`."""
        place = self.landing(target, a, *([] if b is None else [b]))
        self.alu(function, place, a, b, second)
        return place

    def cast(self, expr: tirx.Cast, target: Target) -> StridedAccess:
        # An instruction converts what it computes: a cast needs an instruction of its own only if there is nothing to
        # compute and it is not the last step.
        inner = expr.value
        kind = target.kind if isinstance(target, StridedAccess) else target
        if isinstance(inner, TensorLoad):
            return self.apply(Function.COPY, self.access(inner), target)
        if self.kind(expr) is kind and not isinstance(inner, tirx.Cast):
            return self.into(inner, target)
        value = self.operand(inner)
        assert isinstance(value, StridedAccess)
        return self.apply(Function.COPY, value, target)

    def unary(
        self, function: VectorFunction, expr: tirx.Expr, target: Target, first: float = 0.0, second: float = 0.0
    ) -> StridedAccess:
        value = self.operand(expr)
        if not isinstance(value, StridedAccess):
            raise self.refuse(expr, "is a constant; expected it to be folded")
        with_numbers = function.operands == 2 or bool(function.immediates)
        return self.apply(function, value, target, float(first) if with_numbers else None, second)

    def binary(self, expr: tirx.Expr, target: Target) -> StridedAccess:
        function = _BINARY[type(expr)]
        left, right = expr.a, expr.b
        if constant(left) is not None and function in _EITHER_WAY:
            left, right = right, left
        value = constant(right)
        if function is Function.MAX and value == 0 and self.has(Function.RELU):
            return self.unary(Function.RELU, left, target)
        if function is Function.SUB and not self.has(Function.SUB) and value is not None:
            function, value = Function.ADD, -value
        a = self.operand(left)
        if not isinstance(a, StridedAccess):  # a constant divided by something, or minus something
            number, a = a, self.temporary(self.kind(expr))
            self.fill(a, number)
        b = value if value is not None else self.operand(right)
        if function is Function.SUB and not self.has(Function.SUB) and isinstance(b, StridedAccess):
            function, b = Function.ADD, self.apply(Function.MUL, b, self.kind(expr), -1.0)
        return self.apply(function, a, target, b)

    def floor_division(self, expr: tirx.FloorDiv, target: Target) -> StridedAccess:
        by = constant(expr.b)
        if by is None or by < 1 or int(by) & (int(by) - 1):
            raise self.refuse(expr, "divides by a number that is not a power of two; expected shifts")
        return self.shifted(expr.a, int(by).bit_length() - 1, target)

    def call(self, expr: Call, target: Target) -> StridedAccess:
        name = str(getattr(expr.op, "name", "")).rpartition(".")[2]
        # A unary float function is TVM's intrinsic of the same name.
        calls = [row.name for row in Function if row.operands == 1 and INTEGERS not in row.types]
        if name in calls:
            return self.unary(Function[name], expr.args[0], target)
        if name in _ROUNDING:
            return self.unary(Function.SCALE, expr.args[0], target, 1.0)
        known = ", ".join(sorted((*calls, *_ROUNDING)))
        raise self.refuse(expr, f"calls {name}; expected {known}")

    def shifted(self, expr: tirx.Expr, bits: int, target: Target) -> StridedAccess:
        """Record floor(expr / 2^bits). The instruction rounds, so half of the divisor is subtracted first, or not
        added."""
        half = float(1 << (bits - 1)) if bits else 0.0
        if not bits:
            return self.into(expr, target)
        if isinstance(expr, tirx.Add) and constant(expr.b) == half:
            return self.unary(Function.SHIFT, expr.a, target, bits)
        value = self.operand(expr)
        assert isinstance(value, StridedAccess)
        return self.apply(Function.SHIFT, self.apply(Function.ADD, value, value.kind, -half), target, float(bits))


class TensorLoadOf:
    """The target of a store with the attributes of a load."""

    def __init__(self, store: tirx.BufferStore) -> None:
        self.source, self.indices = store.buffer, list(store.indices)


def _clipped(expr: tirx.Expr) -> tuple[tirx.Expr, float, float] | None:
    """Return (value, low, high) of min(max(value, low), high) or max(min(value, high), low) with low <= high."""
    for outer, inner in ((tirx.Min, tirx.Max), (tirx.Max, tirx.Min)):
        if not isinstance(expr, outer) or not isinstance(expr.a, inner):
            continue
        bounds = (constant(expr.b), constant(expr.a.b))
        if bounds[0] is None or bounds[1] is None:
            continue
        low, high = (bounds[1], bounds[0]) if outer is tirx.Min else (bounds[0], bounds[1])
        return (expr.a.a, low, high) if low <= high else None
    return None
