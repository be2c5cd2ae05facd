"""Named values of expressions in one-element local buffers, which LLVM keeps in registers.

TVM's code generator inlines the value of a name and simplifies it again for each name that refers to others: exp of an
expression with exp takes seconds, a tile of GELUs eight. It does not look into values read from memory.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call

Expr: TypeAlias = tirx.Expr


def without_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func`, in the form for code generation, with stores in place of the names in stored values. Names in
    operands that are not always evaluated remain."""
    names: list[tirx.Let] = []
    tvm_ffi.structural_walk(func.body, (tirx.Let, names.append))
    return tvm_ffi.structural_map(func, (tirx.BufferStore, _without_names)) if names else func


def _without_names(store: tirx.BufferStore) -> tirx.Stmt:
    values: dict[tirx.Var, Expr] = {}

    def take(let: tirx.Let) -> Expr:
        values[let.var] = let.value
        return let.body

    if _holds_conditional_names(store.value):
        return store
    value = tvm_ffi.structural_map(store.value, (tirx.Let, take))
    if not values:
        return store
    memory = {name: tirx.decl_buffer((1,), str(name.ty), "x", scope="local") for name in values}
    first = tirx.const(0, "int32")

    def read(expr: Expr) -> Expr:
        return tvm_ffi.structural_map(
            expr, (tirx.Var, lambda name: tirx.BufferLoad(memory[name], [first]) if name in memory else name)
        )

    statements: list[tirx.Stmt] = []
    written: set[tirx.Var] = set()

    def write(name: Any) -> None:
        """Emit the store of a name's value after those on which it depends."""
        if name in written or name not in values:
            return
        written.add(name)
        tvm_ffi.structural_walk(values[name], (tirx.Var, write))
        statements.append(tirx.AllocBuffer(memory[name]))
        statements.append(tirx.BufferStore(memory[name], read(values[name]), [first]))

    for name in values:
        write(name)
    return tirx.SeqStmt([*statements, tirx.BufferStore(store.buffer, read(value), list(store.indices))])


def _holds_conditional_names(expr: Expr) -> bool:
    found: list[tirx.Let] = []

    def note(call: Call) -> None:
        if getattr(call.op, "name", "") == "prim.if_then_else":
            tvm_ffi.structural_walk(call, (tirx.Let, found.append))

    tvm_ffi.structural_walk(expr, (Call, note))
    return bool(found)
