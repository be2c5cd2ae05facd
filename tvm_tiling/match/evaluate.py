"""Evaluation of index expressions over whole axes at once, independent of how they are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Call
from tvm.ir.prim.expr import BitwiseXor

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
    # Truncated towards zero, as in C.
    tirx.Div: lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)),
    tirx.Mod: np.fmod,
}


def evaluate(expr: tirx.Expr, values: Mapping[tirx.Var, np.ndarray]) -> np.ndarray | None:
    """Integer or truth values of `expr` for the given values of its variables; None if it contains anything else."""
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
    """(condition, value if true, value if false) if `expr` selects between two values."""
    if isinstance(expr, tirx.Select):
        return expr.condition, expr.true_value, expr.false_value
    if isinstance(expr, Call) and getattr(expr.op, "name", "").endswith(".if_then_else"):
        return expr.args[0], expr.args[1], expr.args[2]
    return None


def shortest(expr: tirx.Expr, analyzer: sym.Analyzer | None = None) -> tirx.Expr:
    """`expr` simplified by TVM, or unchanged if that fails: constants must not exceed their type there."""
    try:
        value = (analyzer or sym.Analyzer()).simplify(expr)
        folded = tvm_ffi.structural_map(value, ((Call, tirx.Cast), _converted_constant))
    except (RuntimeError, ValueError):
        return expr
    return value if folded.same_as(value) else shortest(folded, analyzer)


def _converted_constant(expr: Call | tirx.Cast) -> tirx.Expr:
    """The constant resulting from casts and bit casts of another one, which TVM does not fold."""
    value = _bits_of_constant(expr)
    return tirx.const(value, str(expr.ty)) if value is not None and value < 1 << 63 else expr


def _bits_of_constant(expr: tirx.Expr) -> int | None:
    """The value of `expr` on a constant, modulo its type's range; None if it is not constant, or a vector."""
    kind = str(expr.ty)
    if "x" in kind or not (kind == "bool" or "int" in kind):
        return None
    if isinstance(expr, tirx.IntImm):
        return int(expr)
    if isinstance(expr, BitwiseXor) and isinstance(expr.b, tirx.IntImm) and int(expr.b) == 0:
        return _bits_of_constant(expr.a)
    changes = isinstance(expr, tirx.Cast) or getattr(getattr(expr, "op", None), "name", "") == "tirx.reinterpret"
    if not changes or kind == "bool":
        return None
    source = expr.value if isinstance(expr, tirx.Cast) else expr.args[0]
    value = _bits_of_constant(source)
    return None if value is None else _within(value, kind)


def _within(value: int, kind: str) -> int:
    """`value` modulo the range of an integer type."""
    bits = int(kind.removeprefix("u").removeprefix("int"))
    value %= 1 << bits
    return value - (1 << bits) if not kind.startswith("u") and value >= 1 << bits - 1 else value


def assuming(expr: tirx.Expr, condition: tirx.Expr, holds: bool) -> tirx.Expr:
    """`expr` under the assumption that `condition` is true or false."""

    def choose(node: tirx.Expr) -> tirx.Expr:
        branches = conditional(node)
        if branches is None or not tvm_ffi.structural_equal(branches[0], condition):
            return node
        return branches[1 if holds else 2]

    return tvm_ffi.structural_map(expr, (tirx.Expr, choose))
