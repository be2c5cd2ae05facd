"""Elementary functions in the types that TVM generates no code for.

Of float16 they are computed in float32; of float64 they are the C library's where TVM has those of float32 alone.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

_FLOAT16 = frozenset(["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh"])
_FLOAT64 = frozenset(["cosh", "sinh"])


def with_known_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with functions in its PrimFuncs that LLVM gets code for."""
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            updated.update_func(variable, tvm_ffi.structural_map(func, (tvm.ir.Call, _known)))
    return updated


def erf(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    """relax.erf as a PrimFunc; TVM's polynomial has the digits of float32."""
    exact = str(call.ty.dtype) == "float64"
    return builder.call_te(_whole_erf if exact else topi.erf, call.args[0], primfunc_name_hint="erf")


def _whole_erf(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: tirx.call_pure_extern("float64", "erf", x[at]), name="erf")


def _known(call: Any) -> Any:
    name = getattr(call.op, "name", "").removeprefix("tirx.")
    dtype = str(call.ty)
    if dtype == "float16" and name in _FLOAT16:
        return tirx.Cast("float16", getattr(tirx, name)(tirx.Cast("float32", call.args[0])))
    if dtype == "float64" and name in _FLOAT64:
        return tirx.call_pure_extern("float64", name, call.args[0])
    return call


LEGALISED = {"relax.erf": erf}
