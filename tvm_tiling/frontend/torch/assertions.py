"""What a program asserts of numbers that only the run knows, as in `assert lengths.max().item() <= 8`: checked in the
run. A number that anything else reads is none of these."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from tvm import relax

from ...lowering.positions import checked_positions
from .refusals import full_name, source_line
from .translation import Translation, Unserved, Value, dtype_of
from .types import is_float

_ITEM = torch.ops.aten._local_scalar_dense.default
_ASSERTION = torch.ops.aten._assert_scalar.default
_OPERATORS: dict[Any, Any] = {  # of Python, which PyTorch writes assertions with
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
    """The nodes that read a number out of a tensor, compute with it or assert what was found, and nothing else."""
    found = {node for node in nodes if node.target in (_ITEM, _ASSERTION, *_OPERATORS)}
    while True:
        fit = {n for n in found if found.issuperset(n.users) and (n.target is _ITEM or found >= {*n.all_input_nodes})}
        if fit == found:
            return found
        found = fit


def asserted(t: Translation, node: torch.fx.Node, arguments: list[Value]) -> Value:
    """The value of such a node: a tensor without axes; of an assertion none."""
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
            raise Unserved(f"it fails: {said}")
        return None
    truth = t.emit(relax.op.reshape(t.cast(holds, "int64"), relax.ShapeExpr((1,))))
    where = source_line(node)
    named = full_name(node.target) + (f" at {where}" if where else "")
    called = f"the truth of {said!r}"
    t.checks.append(checked_positions(t.builder, truth, 2, named, wraps=False, first=1, called=called))
    return None
