"""Dimensions that are quotients: of sizes that are known in the run, the divisor among them, which may then be 0.

The functions that compute the sizes of a graph refuse such a divisor. A kernel meets those sizes again, as extents of
its loops and shapes of its buffers, some of which it computes before anything is checked; there a divisor of 0 is 1.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..refusal import REFUSE_ZERO

Expr: TypeAlias = tirx.Expr

_DIVISIONS = (tirx.Div, tirx.FloorDiv, tirx.Mod, tirx.FloorMod)
NAMED = "a size in the model"  # in the error


def with_safe_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func`, a kernel, which divides sizes by none that is 0."""
    if not any(_is_by_size(expr) for expr in _divisions(func)):
        return func

    def safe(expr: Any) -> Expr:
        if not _is_by_size(expr):
            return expr
        zero, one = (tirx.const(value, str(expr.b.ty)) for value in (0, 1))
        return type(expr)(expr.a, tirx.Select(tirx.EQ(expr.b, zero), one, expr.b))

    return tvm_ffi.structural_map(func, (_DIVISIONS, safe))


def with_checked_sizes(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func`, which computes sizes, with an end of the run ahead of a division by 0."""
    checks: list[tirx.Stmt] = []
    divisors: list[Expr] = []
    for expr in _divisions(func.body):
        divisor = expr.b
        if isinstance(divisor, tirx.IntImm) or any(tvm_ffi.structural_equal(divisor, other) for other in divisors):
            continue
        divisors.append(divisor)
        is_zero = tirx.EQ(divisor, tirx.const(0, str(divisor.ty)))
        checks.append(tirx.IfThenElse(is_zero, tirx.Evaluate(T.call_packed(REFUSE_ZERO, NAMED)), None))
    return func.with_body(tirx.SeqStmt([*checks, func.body])) if checks else func


def _divisions(part: Any) -> list[Any]:
    """The divisions of whole numbers in `part`, those within another's divisor ahead of it."""
    found: list[Any] = []

    def note(expr: Any) -> None:
        if str(expr.ty) in ("int32", "int64"):
            found.append(expr)

    tvm_ffi.structural_walk(part, (_DIVISIONS, note))
    return found


def _is_by_size(division: Any) -> bool:
    """Whether the divisor is made of variables, and no tensor is read for it."""
    loads: list[TensorLoad] = []
    names: list[tirx.Var] = []
    tvm_ffi.structural_walk(division.b, ((TensorLoad, loads.append), (tirx.Var, names.append)))
    return bool(names) and not loads
