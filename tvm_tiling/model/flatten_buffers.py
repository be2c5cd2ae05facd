"""Flattening of buffers to one axis by TVM's FlattenBuffer, with protection against its errors.

FlattenBuffer simplifies the index of an element as an iteration map (IterMapSimplify). If a dividend has an offset or a
decreasing variable, the result may be wrong: (v + 15) // 4 % 2 becomes (v + 4) // 4, and for v up to 21 (20 - v) // 7 *
7 + (6 - v) % 7 becomes 14 - v. Quotients and remainders of sums of variables times positive numbers are handled
correctly: none of 18,000 random maps was wrong. So any other dividend is hidden in an opaque call, which is removed
afterwards. What is left to simplify then are quotients and remainders that add up to their dividend, as the indices
of fused axes do: without that, neighbouring elements would not be seen to be adjacent, and vectors would be loaded
element by element.

FlattenBuffer keeps the variable of every loop that it has seen, and considers all of them for each element: its time
grows with the product of both. So loops whose buffers all have one axis already, such as those of microkernels, are
hidden too, and innermost loops of equal bounds share one variable meanwhile.
"""

from __future__ import annotations

import functools
import operator
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call, TensorLoad

Expr: TypeAlias = tirx.Expr
Quotient: TypeAlias = "tirx.FloorDiv | tirx.FloorMod"

_HIDDEN = tvm.ir.Op.get("tirx.reinterpret")  # of a value as its own type, which occurs nowhere else
_LOOP = "tvm_tiling.hidden_loop"
_FOUND = tvm_ffi.VisitInterrupt(None)  # ends a traversal
_LEAVES = (tirx.BufferStore, tirx.Evaluate, tirx.Bind, tirx.AllocBuffer)


def flatten_buffers(mod: tvm.IRModule) -> tvm.IRModule:
    """The functions of `mod`, with indices as element offsets from the start of each buffer."""
    flat = _flattened(mod, _Hidden(loops_too=True))
    # The pass may have replaced a buffer used by hidden loops.
    whole = all(_is_declared(func) for func in flat.functions.values() if isinstance(func, tirx.PrimFunc))
    return flat if whole else _flattened(mod, _Hidden(loops_too=False))


def _flattened(mod: tvm.IRModule, hidden: _Hidden) -> tvm.IRModule:
    guarded = {variable: hidden.without(func) for variable, func in mod.functions.items()}
    flat = tirx.transform.FlattenBuffer()(tvm.IRModule(guarded, mod.attrs))
    return tvm.IRModule({variable: hidden.shown(func) for variable, func in flat.functions.items()}, flat.attrs)


def _is_declared(func: tirx.PrimFunc) -> bool:
    """Return whether every buffer used by the function is one of its parameters, or allocated in it."""
    known, used = set(func.params), set[tirx.Var]()
    visits = [
        (TensorLoad, lambda load: used.add(load.source)),
        (tirx.BufferStore, lambda store: used.add(store.buffer)),
        (tirx.AllocBuffer, lambda made: known.add(made.buffer)),
        (tirx.DeclBuffer, lambda made: known.add(made.buffer)),
    ]
    tvm_ffi.structural_walk(func.body, visits)
    return used <= known


class _Hidden:
    """The parts hidden from FlattenBuffer: dividends, the statements in `loops`, by index, and the variables of
    innermost loops, by type and bounds."""

    def __init__(self, *, loops_too: bool) -> None:
        self.dividends, self.loops_too = False, loops_too
        self.loops: list[tirx.Stmt] = []
        self._shared: dict[tuple[str, int, int], tirx.Var] = {}
        self._known: dict[tirx.Var, bool] = {}  # by variable
        self._visits = (
            (TensorLoad, lambda load: self._visit(load.source)),
            (tirx.BufferStore, lambda store: self._visit(store.buffer)),
            (tirx.Var, self._visit),
        )

    def without(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """The function with these parts hidden."""
        body = self._without_flat_loops(func.body)[0] if self.loops_too else func.body
        visits = [((tirx.FloorDiv, tirx.FloorMod), self._hide), (tirx.For, self._with_shared_variable)]
        return tvm_ffi.structural_map(func.with_body(body), visits)

    def shown(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """The function with the hidden parts restored."""
        if self.dividends:
            func = tvm_ffi.structural_map(tvm_ffi.structural_map(func, (Call, _show)), (tirx.Add, joined))
        if self._shared:
            func = tvm_ffi.structural_map(func, (tirx.For, self._with_own_variable))
        return tvm_ffi.structural_map(func, (tirx.Evaluate, self._loop)) if self.loops else func

    def _hide(self, quotient: Quotient) -> Quotient:
        if _is_plain(quotient.a) and isinstance(quotient.b, tirx.IntImm):
            return quotient
        self.dividends = True
        return type(quotient)(Call(_HIDDEN, [quotient.a], ret_ty=quotient.a.ty), quotient.b)

    def _with_shared_variable(self, loop: tirx.For) -> tirx.For:
        """A loop over the variable that innermost loops of its bounds share."""
        if not isinstance(loop.min, tirx.IntImm) or not isinstance(loop.extent, tirx.IntImm):
            return loop
        inner = ((tirx.For, lambda _: _FOUND), (tirx.Evaluate, lambda stmt: _FOUND if _is_placeholder(stmt) else None))
        if tvm_ffi.structural_walk(loop.body, inner) is not None:
            return loop
        kind = str(loop.loop_var.ty)
        key = kind, int(loop.min), int(loop.extent)
        return _over(loop, self._shared.setdefault(key, tirx.Var(loop.loop_var.name, kind)))

    def _with_own_variable(self, loop: tirx.For) -> tirx.For:
        if not any(loop.loop_var.same_as(shared) for shared in self._shared.values()):
            return loop
        return _over(loop, tirx.Var(loop.loop_var.name, str(loop.loop_var.ty)))

    def _without_flat_loops(self, stmt: tirx.Stmt) -> tuple[tirx.Stmt, bool]:
        """(the statement with flat loops replaced by placeholder calls, whether it is flat itself)."""
        if isinstance(stmt, tirx.SeqStmt):
            parts = [self._without_flat_loops(part) for part in stmt.seq]
            if all(flat for _, flat in parts):
                return stmt, True
            return tirx.SeqStmt([self._put_away(*part) for part in parts]), False
        if isinstance(stmt, tirx.For):
            body, flat = self._without_flat_loops(stmt.body)
            flat = flat and self._is_flat(stmt.extent) and self._is_flat(stmt.min)
            if flat or body.same_as(stmt.body):
                return stmt, flat
            made = tirx.For(
                *(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, stmt.thread_binding, stmt.annotations)
            )
            return made, False
        if isinstance(stmt, tirx.IfThenElse):
            then = self._without_flat_loops(stmt.then_case)
            other = (None, True) if stmt.else_case is None else self._without_flat_loops(stmt.else_case)
            if then[1] and other[1] and self._is_flat(stmt.condition):
                return stmt, True
            otherwise = None if other[0] is None else self._put_away(other[0], other[1])
            return tirx.IfThenElse(stmt.condition, self._put_away(*then), otherwise), False
        if isinstance(stmt, tirx.AttrStmt):
            body, flat = self._without_flat_loops(stmt.body)
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self._put_away(body, flat)), False
        return stmt, isinstance(stmt, _LEAVES) and self._is_flat(stmt)

    def _put_away(self, stmt: tirx.Stmt, flat: bool) -> tirx.Stmt:
        """The statement, or its placeholder if it is a flat loop or condition."""
        if not flat or not isinstance(stmt, tirx.For | tirx.IfThenElse):
            return stmt
        self.loops.append(stmt)
        return tirx.Evaluate(tirx.call_extern("int32", _LOOP, len(self.loops) - 1))

    def _loop(self, stmt: tirx.Evaluate) -> tirx.Stmt:
        return self.loops[int(stmt.value.args[1])] if _is_placeholder(stmt) else stmt

    def _is_flat(self, part: tirx.Stmt | Expr) -> bool:
        """Return whether all buffers in a leaf or expression have one contiguous axis of static length. Excludes
        buffers of truth values, whose type changes, and of dynamic length, which may be expressed differently."""
        if isinstance(part, tirx.IntImm):
            return True
        if isinstance(part, tirx.AllocBuffer) and self._visit(part.buffer) is not None:
            return False
        return tvm_ffi.structural_walk(part, self._visits) is None

    def _visit(self, variable: tirx.Var) -> tvm_ffi.VisitInterrupt | None:
        """End the traversal at a buffer that is not flat."""
        flat = self._known.get(variable)
        if flat is None:
            flat = self._known[variable] = not tirx.is_buffer_var(variable) or _stays(variable)
        return None if flat else _FOUND


def _is_placeholder(stmt: tirx.Evaluate) -> bool:
    call = stmt.value
    return isinstance(call, Call) and len(call.args) == 2 and getattr(call.args[0], "value", None) == _LOOP


def _over(loop: tirx.For, variable: tirx.Var) -> tirx.For:
    """The same loop over another variable."""
    body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda var: variable if var.same_as(loop.loop_var) else var))
    return tirx.For(variable, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step)


def _stays(buffer: tirx.Var) -> bool:
    one_axis = len(buffer.shape) == 1 and isinstance(buffer.shape[0], tirx.IntImm) and not len(buffer.strides)
    return one_axis and str(buffer.dtype) != "bool"


def _is_plain(value: Expr) -> bool:
    """Return whether a value is a sum of variables, quotients and remainders of such sums, each times a positive
    number."""
    if isinstance(value, tirx.Var):
        return True
    if isinstance(value, tirx.Add):
        return _is_plain(value.a) and _is_plain(value.b)
    if isinstance(value, tirx.Mul | tirx.FloorDiv | tirx.FloorMod):
        return isinstance(value.b, tirx.IntImm) and int(value.b) > 0 and _is_plain(value.a)
    return False


def _show(call: Call) -> Expr:
    return call.args[0] if call.op == _HIDDEN and call.ty == call.args[0].ty else call


def joined(total: tirx.Add) -> Expr:
    """A sum in which a // c * c + b % c is a, if a and b differ by a multiple of c."""
    terms = _terms(total)
    for place, rest in enumerate(terms):
        if not isinstance(rest, tirx.FloorMod) or not isinstance(rest.b, tirx.IntImm):
            continue
        for other, term in enumerate(terms):
            whole = term.a if isinstance(term, tirx.Mul) and isinstance(term.a, tirx.FloorDiv) else None
            if whole is None or not all(tvm_ffi.structural_equal(size, rest.b) for size in (term.b, whole.b)):
                continue
            if _differ_by_multiple(whole.a, rest.a, int(rest.b)):
                left = [each for number, each in enumerate(terms) if number not in (place, other)]
                return functools.reduce(operator.add, left, whole.a)
    return total


def _differ_by_multiple(first: Expr, second: Expr, size: int) -> bool:
    if isinstance(first, tirx.Cast) and isinstance(second, tirx.Cast):
        first, second = first.value, second.value
    if first.ty != second.ty:
        return False
    apart = sym.Analyzer().simplify(first - second)
    return isinstance(apart, tirx.IntImm) and int(apart) % size == 0


def _terms(value: Expr) -> list[Expr]:
    """The terms of a sum."""
    return [*_terms(value.a), *_terms(value.b)] if isinstance(value, tirx.Add) else [value]
