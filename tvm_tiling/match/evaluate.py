"""Index expressions evaluated over whole axes at once, so that what they compute is known however it is spelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    # Truncated towards zero, as C divides.
    tirx.Div: lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)),
    tirx.Mod: np.fmod,
}


def evaluate(expr: tirx.Expr, values: Mapping[tirx.Var, np.ndarray]) -> np.ndarray | None:
    """Whole numbers or truth values of `expr` where its variables take `values`; None if it holds anything else."""
    if isinstance(expr, tirx.IntImm):
        return np.asarray(int(expr))
    if isinstance(expr, tirx.Var):
        return values.get(expr)
    if isinstance(expr, tirx.Cast) and str(expr.ty).startswith("int"):
        return evaluate(expr.value, values)
    if isinstance(expr, tirx.Not):
        return _applied(np.logical_not, (expr.a,), values)
    if type(expr) in _BINARY:
        return _applied(_BINARY[type(expr)], (expr.a, expr.b), values)
    if (branches := conditional(expr)) is not None:
        return _applied(np.where, branches, values)
    if isinstance(expr, Call) and getattr(expr.op, "name", "").endswith(".likely"):
        return evaluate(expr.args[0], values)
    return None


def _applied(
    function: Callable[..., Any], parts: Sequence[tirx.Expr], values: Mapping[tirx.Var, np.ndarray]
) -> np.ndarray | None:
    known = [v for v in (evaluate(part, values) for part in parts) if v is not None]
    return np.asarray(function(*known)) if len(known) == len(parts) else None


def conditional(expr: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr] | None:
    """(condition, value if true, value if false) where `expr` chooses between two values."""
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, Call) and getattr(expr.op, "name", "").endswith(".if_then_else"):
        return expr.args[0], expr.args[1], expr.args[2]
    return None


def shortest(expr: tirx.Expr, analyzer: sym.Analyzer | None = None) -> tirx.Expr:
    """`expr` simplified by TVM, itself where that fails: constants of unsigned types must not fall below 0 there."""
    try:
        value = (analyzer or sym.Analyzer()).simplify(expr)
        folded = tvm_ffi.structural_map(value, (Call, _bits_of_constant))
    except RuntimeError:
        return expr
    return value if folded.same_as(value) else shortest(folded, analyzer)


def _bits_of_constant(call: Call) -> tirx.Expr:
    """The constant that a whole number is whose type is changed, of which TVM's code generator knows no 0."""
    if getattr(call.op, "name", "") != "tirx.reinterpret" or not isinstance(call.args[0], tirx.IntImm):
        return call
    kind = str(call.ty)
    if "int" not in kind or "x" in kind:
        return call
    bits = int(kind.removeprefix("u").removeprefix("int"))
    value = int(call.args[0]) % (1 << bits)
    if not kind.startswith("u") and value >= 1 << bits - 1:
        value -= 1 << bits
    return tirx.const(value, kind) if value < 1 << 63 else call


def assuming(expr: tirx.Expr, condition: tirx.Expr, holds: bool) -> tirx.Expr:
    """`expr` where `condition` is known to hold or not to."""

    def choose(node: tirx.Expr) -> tirx.Expr:
        branches = conditional(node)
        if branches is None or not tvm_ffi.structural_equal(branches[0], condition):
            return node
        return branches[1 if holds else 2]

    return tvm_ffi.structural_map(expr, (tirx.Expr, choose))
