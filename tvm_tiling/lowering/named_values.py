"""Named values of expressions in one-element local buffers, which LLVM keeps in registers.

TVM's code generator inlines the value of a name and simplifies it again for each name that refers to others: exp of an
expression with exp takes seconds, a tile of GELUs eight. It does not look into values read from memory.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad

Expr: TypeAlias = tirx.Expr

# The most stores whose statements alternate. A function of one vector is a chain of some 25 dependent instructions, and
# a core's scheduler holds only three or four such chains: executed one after the other, they leave most cycles idle.
# Eight are 2 to 8 percent faster by themselves, but in the epilogue of a tile they leave the registers: the GELU of a
# layer of ViT took the time of its multiplications.
TOGETHER = 4


def without_names(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func`, in the form for code generation, with stores in place of the names in stored values. Names in
    operands that are not always evaluated remain."""
    names: list[tirx.Let] = []
    tvm_ffi.structural_walk(func.body, (tirx.Let, names.append))
    if not names:
        return func
    return tvm_ffi.structural_map(
        tvm_ffi.structural_map(func, (tirx.SeqStmt, _alternating)), (tirx.BufferStore, _alone)
    )


def _alternating(sequence: tirx.SeqStmt) -> tirx.Stmt:
    """Return a sequence in which adjacent stores of values of the same form alternate."""
    statements: list[tirx.Stmt] = []
    run: list[list[tirx.Stmt]] = []
    targets: list[Expr] = []

    def end_run() -> None:
        groups = -(-len(run) // TOGETHER)
        for group in range(groups):
            part = run[len(run) * group // groups : len(run) * (group + 1) // groups]
            statements.extend(statement for step in zip(*part, strict=True) for statement in step)
        run.clear()
        targets.clear()

    for statement in sequence.seq:
        if isinstance(statement, tirx.Bind) and _is_plain(statement.value):
            statements.append(statement)  # a part of an address, emitted before the pending stores
            continue
        parts = _separate(statement) if isinstance(statement, tirx.BufferStore) else [statement]
        joins = len(parts) > 1 and run and len(parts) == len(run[0]) and not _reads(statement, targets)
        if run and not joins:
            end_run()
        if len(parts) > 1:
            run.append(parts)
            targets.append(statement.buffer.data)
        else:
            statements.extend(parts)
    end_run()
    return tirx.SeqStmt(statements)


def _reads(store: tirx.BufferStore, targets: list[Expr]) -> bool:
    """Return whether a store's value depends on memory of one of these buffers. The memory of an allocated buffer is an
    expression, which is a new object whenever it is asked for."""
    sources = [load.source.data for load in _loads(store.value)]
    return any(tvm_ffi.structural_equal(source, target) for source in sources for target in targets)


def _is_plain(expr: Expr) -> bool:
    """Return whether `expr` neither reads memory nor calls anything."""
    calls: list[Call] = []
    tvm_ffi.structural_walk(expr, (Call, calls.append))
    return not calls and not _loads(expr)


def _loads(expr: Expr) -> list[TensorLoad]:
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return found


def _alone(store: tirx.BufferStore) -> tirx.Stmt:
    parts = _separate(store)
    return store if len(parts) == 1 else tirx.SeqStmt(parts)


def _separate(store: tirx.BufferStore) -> list[tirx.Stmt]:
    """Return the statements of a store: those of its names and its own; the store alone if it has none."""
    values: dict[tirx.Var, Expr] = {}

    def take(let: tirx.Let) -> Expr:
        values[let.var] = let.value
        return let.body

    if _holds_conditional_names(store.value):
        return [store]
    value = tvm_ffi.structural_map(store.value, (tirx.Let, take))
    if not values:
        return [store]

    def name_sum(total: Expr) -> Expr:
        """Name every step of a polynomial, so that those of several vectors alternate."""
        if not str(total.ty).startswith("float32x"):
            return total
        name = tirx.Var("x", str(total.ty))
        values[name] = total
        return name

    for name in list(values):
        values[name] = tvm_ffi.structural_map(values[name], (tirx.Add, name_sum))
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
    return [*statements, tirx.BufferStore(store.buffer, read(value), list(store.indices))]


def _holds_conditional_names(expr: Expr) -> bool:
    found: list[tirx.Let] = []

    def note(call: Call) -> None:
        if getattr(call.op, "name", "") == "prim.if_then_else":
            tvm_ffi.structural_walk(call, (tirx.Let, found.append))

    tvm_ffi.structural_walk(expr, (Call, note))
    return bool(found)
