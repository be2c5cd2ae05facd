"""Buffers of one axis: TVM's FlattenBuffer, kept from what it gets wrong.

FlattenBuffer simplifies the index of an element as an iteration map (IterMapSimplify). Where a dividend has an offset
or a falling variable, what comes out may be another map: (v + 15) // 4 % 2 becomes (v + 4) // 4, and for v up to 21
(20 - v) // 7 * 7 + (6 - v) % 7 becomes 14 - v. Quotients and remainders of sums of variables times positive numbers
stay right: none of 18,000 random maps was wrong. So any other dividend is hidden in a call that the simplifier does
not see through, and is shown again afterwards.
"""

from __future__ import annotations

from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import Call

Expr: TypeAlias = tirx.Expr
Quotient: TypeAlias = "tirx.FloorDiv | tirx.FloorMod"

_HIDDEN = tvm.ir.Op.get("tirx.reinterpret")  # of a value as its own type: nobody else writes that


def flatten_buffers(mod: tvm.IRModule) -> tvm.IRModule:
    """The functions of `mod`, whose indices are numbers of elements from each buffer's first one on."""
    hidden = False

    def hide(quotient: Quotient) -> Quotient:
        nonlocal hidden
        if _is_plain(quotient.a) and isinstance(quotient.b, tirx.IntImm):
            return quotient
        hidden = True
        return type(quotient)(Call(_HIDDEN, [quotient.a], ret_ty=quotient.a.ty), quotient.b)

    guarded = {
        variable: tvm_ffi.structural_map(func, ((tirx.FloorDiv, tirx.FloorMod), hide))
        for variable, func in mod.functions.items()
    }
    flat = tirx.transform.FlattenBuffer()(tvm.IRModule(guarded, mod.attrs) if hidden else mod)
    if not hidden:
        return flat
    shown = {variable: tvm_ffi.structural_map(func, (Call, _show)) for variable, func in flat.functions.items()}
    return tvm.IRModule(shown, flat.attrs)


def _is_plain(value: Expr) -> bool:
    """Whether a value is a sum of variables, quotients and remainders of such sums, each times a positive number."""
    if isinstance(value, tirx.Var):
        return True
    if isinstance(value, tirx.Add):
        return _is_plain(value.a) and _is_plain(value.b)
    if isinstance(value, tirx.Mul | tirx.FloorDiv | tirx.FloorMod):
        return isinstance(value.b, tirx.IntImm) and int(value.b) > 0 and _is_plain(value.a)
    return False


def _show(call: Call) -> Expr:
    return call.args[0] if call.op == _HIDDEN and call.ty == call.args[0].ty else call
