"""Operators after another one in a quantised graph that are computed with its integers: factors, biases, bounds; and
element-wise functions of one tensor, which become tables of 256 values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import relax

from ..passes.dataflow import Expr, is_op

Lookup = Callable[[Expr], Expr]  # the value bound to a variable, or the expression itself
Known = Callable[[Expr], np.ndarray | None]  # the value of a constant, quantised or not


@dataclass(frozen=True)
class Chain:
    """clip(core * factor + bias, low, high); `bias` broadcasts to the core's shape. `through`: intermediate values."""

    core: Expr
    factor: float = 1.0
    bias: np.ndarray | None = None
    low: float = -math.inf
    high: float = math.inf
    through: tuple[relax.Var, ...] = ()


def chain(value: Expr, lookup: Lookup, known: Known) -> Chain:
    """The longest chain that ends in `value` and consists of bounds, preceded by scalar factors and constant biases."""
    low, high = -math.inf, math.inf
    factor, bias = 1.0, None
    through: list[relax.Var] = []
    while True:
        call = lookup(value)
        step = _step(call, known)
        if step is None or (step.bounds and (factor != 1.0 or bias is not None)):
            return Chain(value, factor, bias, low, high, tuple(through))
        if step.bounds:
            low, high = max(low, step.bounds[0]), min(high, step.bounds[1])
        elif step.bias is not None:
            added = factor * step.bias
            bias = added if bias is None else bias + added
        else:
            factor *= step.factor
        value = step.operand
        if isinstance(value, relax.Var):
            through.append(value)


@dataclass(frozen=True)
class _Step:
    operand: Expr
    factor: float = 1.0
    bias: np.ndarray | None = None
    bounds: tuple[float, float] | None = None


def _step(call: Expr, known: Known) -> _Step | None:
    if is_op(call, "nn.relu"):
        return _Step(call.args[0], bounds=(0.0, math.inf))
    if is_op(call, "clip"):
        low, high = (float(getattr(bound, "value", math.nan)) for bound in call.args[1:3])
        return _Step(call.args[0], bounds=(low, high)) if low <= high else None
    if is_op(call, "add", "subtract"):
        left, right = call.args
        sign = 1.0
        value = known(right)
        if value is None and is_op(call, "add"):
            left, right, value = right, left, known(left)
        if value is None or value.dtype != np.float32 or value.ndim > _rank(left):
            return None
        sign = -1.0 if is_op(call, "subtract") else 1.0
        return _Step(left, bias=sign * value.astype(np.float64))
    if is_op(call, "multiply", "divide"):
        left, right = call.args
        value = known(right)
        if value is None and is_op(call, "multiply"):
            left, right, value = right, left, known(left)
        if value is None or value.size != 1 or value.ndim > _rank(left) or value.dtype != np.float32:
            return None
        factor = float(value.reshape(())) if is_op(call, "multiply") else 1.0 / float(value.reshape(()))
        return _Step(left, factor=factor) if factor > 0 and math.isfinite(factor) else None
    return None


def _rank(expr: Expr) -> int:
    return int(getattr(expr.ty, "ndim", -1))


# ---- functions of one tensor ----------------------------------------------------------------------------------------

_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "nn.relu": lambda x: np.maximum(x, 0),
    "nn.gelu": lambda x: x * 0.5 * (1 + _ERF(x / math.sqrt(2))),
    "nn.gelu_tanh": lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "nn.silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "erf": _ERF,
    "exp": np.exp,
    "abs": np.abs,
    "negative": np.negative,
    "square": np.square,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
"""Element-wise operators, in float64."""


def is_pointwise(call: Expr) -> bool:
    """Return whether a call is one of FUNCTIONS, or a clip."""
    return is_op(call, *FUNCTIONS, "clip")


def pointwise(
    value: Expr, lookup: Lookup, known: Known, is_root: Callable[[Expr], bool]
) -> tuple[Expr, Callable[[np.ndarray], np.ndarray]] | None:
    """(root, function) if `value` is an element-wise function of one tensor, its root; otherwise None."""
    if is_root(value):
        return value, lambda x: x
    constant = known(value)
    if constant is not None:
        return None
    call = lookup(value)
    if not is_pointwise(call):
        return None
    operands = list(call.args[:1]) if is_op(call, "clip") else list(call.args)
    parts: list[Callable[[np.ndarray], np.ndarray]] = []
    root: Expr | None = None
    for operand in operands:
        constant = known(operand)
        if constant is not None:
            if constant.size != 1:
                return None
            parts.append(partial(np.full_like, fill_value=float(constant.reshape(()))))
            continue
        found = pointwise(operand, lookup, known, is_root)
        if found is None or (root is not None and not root.same_as(found[0])):
            return None
        root = found[0]
        parts.append(found[1])
    if root is None:
        return None
    if is_op(call, "clip"):
        low, high = (float(bound.value) for bound in call.args[1:3])
        return root, lambda x: np.clip(parts[0](x), low, high)
    function = FUNCTIONS[call.op.name[6:]]
    return root, lambda x: function(*(part(x) for part in parts))
