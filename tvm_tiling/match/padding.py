"""Zero padding of an operand: the conditions under which its elements are read."""

from __future__ import annotations

from collections.abc import Container
from itertools import product

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from .access import loads, variables
from .evaluate import assuming, conditional, shortest
from .function import refuse

_MOST_CONDITIONS = 4


def without_padding(name: str, expr: tirx.Expr, among: Container[tirx.Var]) -> tuple[tirx.Expr, tuple[tirx.Expr, ...]]:
    """`expr` inside its image, and the conditions on the axes `among` for being inside; outside it has to be zero.

    A selection by the value of an element (as in a leaky ReLU) is part of the expression.
    """
    conditions: list[tirx.Expr] = []

    def note(node: tirx.Expr) -> tvm_ffi.WalkResult | None:
        if isinstance(node, TensorLoad):
            # A selection between indices is a property of the index.
            return tvm_ffi.WalkResult.SKIP
        branches = conditional(node)
        if branches is None or not variables(branches[0], among) or loads(branches[0]):
            return None
        if not any(tvm_ffi.structural_equal(branches[0], c) for c in conditions):
            conditions.append(branches[0])
        return None

    tvm_ffi.structural_walk(expr, (tirx.Expr, note), order="pre")
    if len(conditions) > _MOST_CONDITIONS:
        raise refuse(
            name, f"an operand is selected by {len(conditions)} conditions; at most {_MOST_CONDITIONS} are supported"
        )
    values = {}
    for holds in product((True, False), repeat=len(conditions)):
        value = expr
        for condition, held in zip(conditions, holds, strict=True):
            value = assuming(value, condition, held)
        values[holds] = value
    inside = [holds for holds, value in values.items() if not _is_zero(value)]
    if len(inside) != 1:
        raise refuse(
            name, f"an operand is padded with {_padding([values[h] for h in inside])}; only zeros are supported"
        )
    required = [part for c, held in zip(conditions, inside[0], strict=True) for part in _conjuncts(c, held)]
    return values[inside[0]], tuple(required)


def _padding(values: list[tirx.Expr]) -> str:
    simplified = [shortest(value) for value in values]
    constant = [v.value for v in simplified if isinstance(v, (tirx.IntImm, tirx.FloatImm))]
    return f"{constant[0]:g}" if constant else "elements"


def _is_zero(expr: tirx.Expr) -> bool:
    value = shortest(expr)
    return isinstance(value, (tirx.IntImm, tirx.FloatImm)) and value.value == 0


def _conjuncts(condition: tirx.Expr, holds: bool) -> list[tirx.Expr]:
    """The individual conditions that are equivalent to `condition` being true or false."""
    if isinstance(condition, tirx.Not):
        return _conjuncts(condition.a, not holds)
    if isinstance(condition, tirx.And if holds else tirx.Or):
        return _conjuncts(condition.a, holds) + _conjuncts(condition.b, holds)
    return [condition if holds else tirx.Not(condition)]
