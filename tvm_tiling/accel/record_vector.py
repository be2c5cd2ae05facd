"""A block of the vector engine as ALU instructions: its expression operation by operation, through scratch space.

Every operation is one instruction over all elements of the instance. What it gives lies in scratch space behind the
buffers of the memory that the block writes to, but the last one's, which is the block's own result. The scratch space
of a block has one version: the vector engine takes its instructions in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.ir.prim.expr import LShift, RShift

from .isa import ElementType, Flag, Function, Opcode
from .program import STORAGE
from .record_buffers import EXTERNAL, Places
from .record_engines import COPY_LOOPS, constant
from .record_instances import Coupled, Instances
from .record_rows import Rows, Walk, grouped, walk

Operand: TypeAlias = Walk | float

_BINARY = {
    tirx.Add: Function.ADD,
    tirx.Sub: Function.SUB,
    tirx.Mul: Function.MUL,
    tirx.Div: Function.DIV,
    tirx.Max: Function.MAX,
    tirx.Min: Function.MIN,
}
_EITHER_WAY = (Function.ADD, Function.MUL, Function.MAX, Function.MIN)
_CALLS = {"exp": Function.EXP, "sqrt": Function.SQRT, "sigmoid": Function.SIGMOID, "tanh": Function.TANH}
_ROUNDING = ("round", "nearbyint")


class VectorBlock:
    """Writes the instructions of one block; `functions` are those the machine has."""

    def __init__(self, found: Instances, places: Places, rows: Rows, queue: str, functions: frozenset[str]) -> None:
        self.found, self.places, self.rows, self.queue, self.functions = found, places, rows, queue, functions
        self.number = 0
        self.scratch: dict[tuple[int, ElementType], Walk] = {}
        self.loans: dict[int, tuple[int, ElementType]] = {}
        self.lent: set[tuple[int, ElementType]] = set()
        store = found.leaf.block.body
        if not isinstance(store, tirx.BufferStore) or found.leaf.block.init is not None:
            raise found.nest.refuse(
                f"block {found.leaf.name!r} is no element-wise one; accepted: one store without init"
            )
        self.store = store
        self.target = self.walk(TensorLoadOf(store))
        self.size = int(np.prod([loop.most for loop in found.inner], dtype=np.int64))

    def record(self) -> None:
        self.into(self.store.value, self.target)

    # ---- operands -------------------------------------------------------------------------------------------------

    def walk(self, load: TensorLoad | TensorLoadOf) -> Walk:
        found = walk(self.found, self.places, load.source, load.indices)
        if found.memory == EXTERNAL:
            raise self.found.nest.refuse(
                f"block {self.found.leaf.name!r}: the vector engine uses {load.source.name} in external memory; "
                "accepted: buffers on the chip (cache_read, cache_write)"
            )
        return found

    def temporary(self, kind: ElementType) -> Walk:
        """Scratch space for a result of that type, not lent to another one now."""
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
            self.scratch[key] = Walk(self.target.memory, start, tuple(reversed(steps)), kind)
        self.lent.add(key)
        self.loans[id(self.scratch[key])] = key
        return self.scratch[key]

    def release(self, *operands: Operand) -> None:
        for operand in operands:
            self.lent.discard(self.loans.get(id(operand), (-1, ElementType.INT8)))

    # ---- instructions ---------------------------------------------------------------------------------------------

    def alu(self, function: Function, target: Walk, a: Walk, b: Operand | None = None, second: float = 0.0) -> None:
        """target = function(a, b); a number b is the immediate."""
        if not self.has(function):
            raise self.refuse_function(function)
        walks = [target, a, *([b] if isinstance(b, Walk) else [])]
        immediate = (b if isinstance(b, float) else 0.0, second)
        flags = int(Flag.IMMEDIATE) if isinstance(b, float) else 0
        self.rows.add(
            self.found,
            Opcode.ALU,
            self.queue,
            self.loops(walks),
            number=self.number,
            a=a,
            b=b if isinstance(b, Walk) else None,
            c=target,
            function=function,
            flags=flags,
            immediate=immediate,
        )
        self.number += 1

    def fill(self, target: Walk, value: float) -> None:
        loops = self.loops([target])
        self.rows.add(self.found, Opcode.FILL, self.queue, loops, number=self.number, c=target, immediate=(value, 0.0))
        self.number += 1

    def loops(self, walks: Sequence[Walk]) -> list[list[int]]:
        loops = grouped(self.found, walks, COPY_LOOPS)
        if loops is None:
            raise Coupled
        return loops

    def has(self, function: Function) -> bool:
        return function.name.lower() in self.functions

    def refuse_function(self, function: Function) -> Exception:
        known = ", ".join(sorted(self.functions))
        return self.found.nest.refuse(
            f"block {self.found.leaf.name!r} needs {function.name.lower()}, which the machine's vector engine has not; "
            f"accepted: {known}"
        )

    # ---- expressions ----------------------------------------------------------------------------------------------

    def operand(self, expr: tirx.Expr) -> Operand:
        """The value of an expression: a number, a buffer's elements where they lie, or a result in scratch space."""
        value = constant(expr)
        if value is not None:
            return value
        if isinstance(expr, TensorLoad):
            return self.walk(expr)
        target = self.temporary(self.kind(expr))
        self.into(expr, target)
        return target

    def kind(self, expr: tirx.Expr) -> ElementType:
        dtype = str(expr.ty)
        if dtype not in STORAGE:
            raise self.refuse(expr, f"is of {dtype}; accepted: {', '.join(STORAGE)}")
        return ElementType[dtype.upper()]

    def refuse(self, expr: tirx.Expr, why: str) -> Exception:
        return self.found.nest.refuse(f"block {self.found.leaf.name!r}: {expr} {why}")

    def into(self, expr: tirx.Expr, target: Walk) -> None:
        """Put the value of an expression into `target`, converted to its type."""
        if constant(expr) is not None:
            self.fill(target, constant(expr) or 0.0)
        elif isinstance(expr, tirx.Cast):
            self.cast(expr, target)
        elif isinstance(expr, TensorLoad):
            self.alu(Function.COPY, target, self.walk(expr))
        elif (bounds := _clipped(expr)) is not None and self.has(Function.CLIP):
            self.unary(Function.CLIP, bounds[0], target, bounds[1], bounds[2])
        elif type(expr) in _BINARY:
            self.binary(expr, target)
        elif isinstance(expr, tirx.FloorDiv):
            self.floor_division(expr, target)
        elif isinstance(expr, (RShift, LShift)) and constant(expr.b) is not None:
            bits = int(constant(expr.b) or 0)
            if isinstance(expr, LShift):
                self.unary_shift(expr.a, -bits, target)
            else:
                self.shifted(expr.a, bits, target)
        elif isinstance(expr, Call):
            self.call(expr, target)
        else:
            raise self.refuse(expr, f"is a {type(expr).__name__}; accepted: arithmetic, min, max, shifts and functions")

    def cast(self, expr: tirx.Cast, target: Walk) -> None:
        # An instruction converts what it computes: a cast costs one of its own only where there is nothing to compute,
        # and where it is not the last step of all.
        inner = expr.value
        if isinstance(inner, TensorLoad):
            self.alu(Function.COPY, target, self.walk(inner))
        elif self.kind(expr) == target.kind and not isinstance(inner, tirx.Cast):
            self.into(inner, target)
        else:
            value = self.operand(inner)
            assert isinstance(value, Walk)
            self.alu(Function.COPY, target, value)
            self.release(value)

    def unary(self, function: Function, expr: tirx.Expr, target: Walk, first: float = 0.0, second: float = 0.0) -> None:
        value = self.operand(expr)
        if not isinstance(value, Walk):
            raise self.refuse(expr, "is a constant; accepted: fold it first")
        with_numbers = function in (Function.CLIP, Function.SCALE)
        self.alu(function, target, value, first if with_numbers else None, second)
        self.release(value)

    def binary(self, expr: tirx.Expr, target: Walk) -> None:
        function = _BINARY[type(expr)]
        left, right = expr.a, expr.b
        if constant(left) is not None and function in _EITHER_WAY:
            left, right = right, left
        value = constant(right)
        if function is Function.MAX and value == 0 and self.has(Function.RELU):
            self.unary(Function.RELU, left, target)
            return
        if function is Function.SUB and not self.has(Function.SUB) and value is not None:
            function, value = Function.ADD, -value
        a = self.operand(left)
        if not isinstance(a, Walk):  # a number over or minus something
            a = self.temporary(self.kind(expr))
            self.fill(a, constant(left) or 0.0)
        b = value if value is not None else self.operand(right)
        if function is Function.SUB and not self.has(Function.SUB) and isinstance(b, Walk):
            negative = self.temporary(self.kind(expr))
            self.alu(Function.MUL, negative, b, -1.0)
            self.release(b)
            function, b = Function.ADD, negative
        self.alu(function, target, a, b)
        self.release(a, b)

    def floor_division(self, expr: tirx.FloorDiv, target: Walk) -> None:
        by = constant(expr.b)
        if by is None or by < 1 or int(by) & (int(by) - 1):
            raise self.refuse(expr, "divides by other than a power of two; accepted: shifts")
        self.shifted(expr.a, int(by).bit_length() - 1, target)

    def call(self, expr: Call, target: Walk) -> None:
        name = str(getattr(expr.op, "name", "")).rpartition(".")[2]
        if name in _CALLS:
            self.unary(_CALLS[name], expr.args[0], target)
        elif name in _ROUNDING:
            self.unary(Function.SCALE, expr.args[0], target, 1.0)
        else:
            known = ", ".join(sorted((*_CALLS, *_ROUNDING)))
            raise self.refuse(expr, f"calls {name}; accepted: {known}")

    def shifted(self, expr: tirx.Expr, bits: int, target: Walk) -> None:
        """floor(expr / 2^bits); the instruction rounds, so half of the divisor is taken off first, or not added."""
        half = float(1 << (bits - 1)) if bits else 0.0
        if bits and isinstance(expr, tirx.Add) and constant(expr.b) == half:
            self.unary_shift(expr.a, bits, target)
        elif not bits:
            self.into(expr, target)
        else:
            value = self.operand(expr)
            assert isinstance(value, Walk)
            lower = self.temporary(value.kind)
            self.alu(Function.ADD, lower, value, -half)
            self.release(value)
            self.alu(Function.SHIFT, target, lower, float(bits))
            self.release(lower)

    def unary_shift(self, expr: tirx.Expr, bits: int, target: Walk) -> None:
        value = self.operand(expr)
        assert isinstance(value, Walk)
        self.alu(Function.SHIFT, target, value, float(bits))
        self.release(value)


class TensorLoadOf:
    """A store's place, as a load would name it."""

    def __init__(self, store: tirx.BufferStore) -> None:
        self.source, self.indices = store.buffer, list(store.indices)


def _clipped(expr: tirx.Expr) -> tuple[tirx.Expr, float, float] | None:
    """(value, low, high) of min(max(value, low), high) or max(min(value, high), low) with low at most high."""
    for outer, inner in ((tirx.Min, tirx.Max), (tirx.Max, tirx.Min)):
        if not isinstance(expr, outer) or not isinstance(expr.a, inner):
            continue
        bounds = (constant(expr.b), constant(expr.a.b))
        if bounds[0] is None or bounds[1] is None:
            continue
        low, high = (bounds[1], bounds[0]) if outer is tirx.Min else (bounds[0], bounds[1])
        return (expr.a.a, low, high) if low <= high else None
    return None
