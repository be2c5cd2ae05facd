"""Reference implementation of a layer's recurrence as scalar loops. It defines the semantics and runs where no schedule
applies."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TypeAlias

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.rnn.recurrence import Recurrence
from ..match.recurrent import ATTRIBUTE
from ..operand_types import held_as
from .arithmetic import clamped

Expr: TypeAlias = tirx.Expr
_OPAQUE = 8  # TVM's op_pattern of operators that are never fused


def recurrent_function(recurrence: Recurrence, name: str = "recurrence") -> tirx.PrimFunc:
    """Return a function of the recurrence's inputs and outputs in order. Dynamic numbers of steps and sequences are
    variables of the function, bound by the shapes of its tensors."""
    own = {part: _own(part, getattr(recurrence, part)) for part in ("steps", "batch")}
    r = dataclasses.replace(recurrence, **own)
    description = {**r.to_dict(), **{part: size if isinstance(size, int) else None for part, size in own.items()}}
    attributes: dict[str, Any] = {"global_symbol": name, "tirx.noalias": True, "op_pattern": _OPAQUE}
    attributes[ATTRIBUTE] = json.dumps(description, sort_keys=True)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr(attributes)
        buffers = declare(r)
        with T.sblock("root"):
            _Loops(r, buffers).emit()
    return builder.get()


def _own(part: str, size: Any) -> Any:
    """Return a number of steps or sequences for the function; a variable keeps its name, by which samples identify
    it."""
    if isinstance(size, int):
        return size
    return tirx.Var(size.name if isinstance(size, tirx.Var) else part, "int64")


def declare(recurrence: Recurrence, packed: tuple[int, ...] | None = None) -> dict[str, tirx.Var]:
    """Declare the function's parameters by name; "weights" in packed form if its shape is given."""
    found = {}
    for name, shape in {**recurrence.inputs, **recurrence.outputs}.items():
        dtype = {"lengths": "int32", "weights": recurrence.stored}.get(name, "float32")
        if name == "weights" and packed:
            found[name] = T.arg(f"{name}_packed", T.Buffer(packed, held_as(dtype)))
        else:
            found[name] = T.arg(name, T.Buffer(shape, dtype))
    return found


class _Loops:
    def __init__(self, recurrence: Recurrence, buffers: dict[str, tirx.Var]) -> None:
        self.r, self.buffers = recurrence, buffers

    def emit(self) -> None:
        r, b = self.r, self.buffers
        state = (r.batch, r.hidden)
        self.sums = T.alloc_buffer((r.batch, r.gates * r.hidden), "float32")
        self.reset = T.alloc_buffer(state, "float32")
        with T.grid(*state) as (row, unit):
            T.buffer_store(b["h"], b["h0"][row, unit], [row, unit])
            if r.cell == "lstm":
                T.buffer_store(b["c"], b["c0"][row, unit], [row, unit])
        with T.serial(0, r.steps) as step:
            place = r.steps - 1 - step if r.reverse else step
            for gates in r.phases:
                self.products(gates, gates == "n")
                if len(r.phases) > 1 and gates == "rz":
                    with T.grid(*state) as (row, unit):
                        value = tirx.sigmoid(self.clipped(self.sum(place, row, "r", unit))) * b["h"][row, unit]
                        T.buffer_store(self.reset, value, [row, unit])
            with T.grid(*state) as (row, unit):
                self.unit(place, row, unit)

    def products(self, gates: str, of_reset: bool) -> None:
        """Emit sums[row, gate and unit]: the state, or r * h, multiplied by the weights of `gates`."""
        r, weights = self.r, self.buffers["weights"]
        source = self.reset if of_reset else self.buffers["h"]
        for gate in gates:
            start = r.order.index(gate) * r.hidden
            with T.grid(r.batch, r.hidden) as (row, unit):
                T.buffer_store(self.sums, tirx.const(0.0, "float32"), [row, start + unit])
                with T.serial(0, r.hidden) as k:
                    weight = weights[start + unit, k]
                    if r.stored != "float32":
                        weight = T.Cast("float32", weight)
                    total = self.sums[row, start + unit] + source[row, k] * weight
                    T.buffer_store(self.sums, total, [row, start + unit])

    def sum(self, place: Expr, row: Expr, gate: str, unit: Expr) -> Expr:
        at = self.r.order.index(gate) * self.r.hidden + unit
        return self.buffers["projected"][place, row, at] + self.sums[row, at]

    def clipped(self, total: Expr) -> Expr:
        return total if self.r.clip is None else clamped(total, -self.r.clip, self.r.clip)

    def unit(self, place: Expr, row: Expr, unit: Expr) -> None:
        r, b = self.r, self.buffers
        h = b["h"][row, unit]
        if r.cell == "lstm":
            self.lstm(place, row, unit)
            return
        if r.cell == "rnn":
            total = self.clipped(self.sum(place, row, "h", unit))
            new = tirx.tanh(total) if r.activation == "tanh" else tirx.max(total, tirx.const(0.0, "float32"))
        else:
            z = tirx.sigmoid(self.clipped(self.sum(place, row, "z", unit)))
            at = r.order.index("n") * r.hidden + unit
            product = self.sums[row, at]
            if r.reset_after:
                reset = tirx.sigmoid(self.clipped(self.sum(place, row, "r", unit)))
                product = reset * (product + b["bias"][unit])
            n = tirx.tanh(self.clipped(b["projected"][place, row, at] + product))
            new = n + z * (h - n)
        self.store(place, row, unit, new)

    def lstm(self, place: Expr, row: Expr, unit: Expr) -> None:
        b = self.buffers

        def opened(gate: str, c: Expr) -> Expr:
            total = self.sum(place, row, gate, unit)
            if self.r.peepholes:
                total = total + b["peepholes"]["iof".index(gate) * self.r.hidden + unit] * c
            return tirx.sigmoid(self.clipped(total))

        c = b["c"][row, unit]
        new = opened("f", c) * c + opened("i", c) * tirx.tanh(self.clipped(self.sum(place, row, "g", unit)))
        T.buffer_store(b["c"], self.alive(place, row, new, c), [row, unit])
        # For a finished sequence c is the old value, and what is computed from it is not stored.
        self.store(place, row, unit, opened("o", c) * tirx.tanh(c))

    def store(self, place: Expr, row: Expr, unit: Expr, new: Expr) -> None:
        # The output is stored first: `new` is computed from the state.
        zero, b = tirx.const(0.0, "float32"), self.buffers
        T.buffer_store(b["y"], self.alive(place, row, new, zero), [place, row, unit])
        kept = self.alive(place, row, b["y"][place, row, unit], b["h"][row, unit])
        T.buffer_store(b["h"], kept, [row, unit])

    def alive(self, place: Expr, row: Expr, value: Expr, otherwise: Expr) -> Expr:
        if not self.r.lengths:
            return value
        return tirx.Select(place < self.buffers["lengths"][row], value, otherwise)
