"""Elementary functions in types for which TVM cannot generate code.

Float16 functions are computed in float32; float64 ones use the C library where TVM only has float32 versions. PRelu is
included for slopes along an axis of dynamic size.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, te, tirx, topi

_FLOAT16 = frozenset(["acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "erf", "sinh"])
_FLOAT64 = frozenset(["cosh", "sinh"])


def with_known_functions(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with functions in its PrimFuncs for which LLVM can generate code."""
    updated = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    for variable, func in mod.functions.items():
        if isinstance(func, tirx.PrimFunc):
            updated.update_func(variable, tvm_ffi.structural_map(func, (tvm.ir.Call, _known)))
    return updated


def erf(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    """relax.erf as a PrimFunc; TVM's polynomial has float32 accuracy."""
    exact = str(call.ty.dtype) == "float64"
    return builder.call_te(_whole_erf if exact else topi.erf, call.args[0], primfunc_name_hint="erf")


def _whole_erf(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: tirx.call_pure_extern("float64", "erf", x[at]), name="erf")


def prelu(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    """relax.nn.prelu as a PrimFunc."""
    return builder.call_te(_sloped, *call.args, int(call.attrs.axis), primfunc_name_hint="prelu")


def _sloped(x: te.Tensor, slopes: te.Tensor, axis: int) -> te.Tensor:
    """Multiply elements below 0 by the slope at their index along `axis`, or by the single slope."""
    one = isinstance(slopes.shape[0], tirx.IntImm) and int(slopes.shape[0]) == 1

    def element(*at: tirx.Expr) -> tirx.Expr:
        slope = slopes[0 if one else at[axis]]
        return tirx.Select(x[at] < tirx.const(0, x.dtype), x[at] * slope, x[at])

    return te.compute(x.shape, element, name="prelu")


def _known(call: Any) -> Any:
    name = getattr(call.op, "name", "").removeprefix("tirx.")
    dtype = str(call.ty)
    if dtype == "float16" and name in _FLOAT16:
        return tirx.Cast("float16", getattr(tirx, name)(tirx.Cast("float32", call.args[0])))
    if dtype == "float64" and name in _FLOAT64:
        return tirx.call_pure_extern("float64", name, call.args[0])
    return call


RESHAPES = "tvm_tiling.reshapes"  # attribute of functions that only reshape


def reshape(builder: relax.BlockBuilder, call: Any) -> relax.Expr:
    """relax.reshape as a PrimFunc with the mark RESHAPES."""
    shape = call.args[1] if isinstance(call.args[1], relax.ShapeExpr) else builder.lookup_binding(call.args[1])
    marked = {RESHAPES: True}
    return builder.call_te(topi.reshape, call.args[0], shape, primfunc_name_hint="reshape", primfunc_attrs=marked)


LEGALISED = {"relax.erf": erf, "relax.nn.prelu": prelu, "relax.reshape": reshape}
