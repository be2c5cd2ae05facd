"""Assertions of a program on numbers known at run time, such as `assert lengths.max().item() <= 8`: checked at run
time. Numbers with any other use are excluded."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from tvm import relax

from ...lowering.positions import checked_positions
from .refusals import full_name, source_line
from .translation import Translation, Unsupported, Value, dtype_of
from .types import is_float

_ITEM = torch.ops.aten._local_scalar_dense.default
_ASSERTION = torch.ops.aten._assert_scalar.default
_OPERATORS: dict[Any, Any] = {  # Python operators in PyTorch's assertions
    operator.add: relax.op.add,
    operator.sub: relax.op.subtract,
    operator.mul: relax.op.multiply,
    operator.le: relax.op.less_equal,
    operator.lt: relax.op.less,
    operator.ge: relax.op.greater_equal,
    operator.gt: relax.op.greater,
    operator.eq: relax.op.equal,
    operator.ne: relax.op.not_equal,
}


def of_assertions(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes that only read a number from a tensor, compute with it, or assert a condition on it."""
    found = {node for node in nodes if node.target in (_ITEM, _ASSERTION, *_OPERATORS)}
    while True:
        fit = {n for n in found if found.issuperset(n.users) and (n.target is _ITEM or found >= {*n.all_input_nodes})}
        if fit == found:
            return found
        found = fit


def asserted(t: Translation, node: torch.fx.Node, arguments: list[Value]) -> Value:
    """The value of such a node: a scalar tensor; None for an assertion."""
    if node.target is _ITEM:
        wide = "float64" if is_float(dtype_of(arguments[0])) else "int64"
        return t.emit(relax.op.reshape(t.cast(arguments[0], wide), relax.ShapeExpr(())))
    if node.target is not _ASSERTION:
        floats = any(isinstance(a, float) or (isinstance(a, relax.Expr) and is_float(dtype_of(a))) for a in arguments)
        left, right = (t.cast(argument, "float64" if floats else "int64") for argument in arguments)
        return t.emit(_OPERATORS[node.target](left, right))
    holds, said = arguments
    if not isinstance(holds, relax.Expr):
        if not holds:
            raise Unsupported(f"it fails: {said}")
        return None
    truth = t.emit(relax.op.reshape(t.cast(holds, "int64"), relax.ShapeExpr((1,))))
    where = source_line(node)
    named = full_name(node.target) + (f" at {where}" if where else "")
    called = f"the condition {said!r}"
    t.checks.append(checked_positions(t.builder, truth, 2, named, wraps=False, first=1, called=called))
    return None
