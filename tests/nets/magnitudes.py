"""How large intermediate values of a function may become: the scale of its rounding errors, and overflow.

Every value is replaced by a bound of its magnitude, in float64: sums and differences by sums, whatever the signs. An
infinite bound means that the value may be undefined: integers of 32 and more bits that overflow, which LLVM considers
impossible, and floats that overflow, which depends on the order of summation. No bound is 0, whose product with
infinity is NaN, and none occurs twice in an expression, which would grow exponentially.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx
from tvm.ir import Call

from tvm_tiling.match.access import substitute
from tvm_tiling.match.evaluate import conditional

Expr = tirx.Expr

KIND = "float64"
LARGEST = {"float16": 65504.0, "float32": 3.4e38, "bfloat16": 3.3e38}
LEAST = 1e-30
NARROW = ("bool", "int8", "uint8", "int16", "uint16")  # integers that wrap


def magnitudes(inputs: Sequence[te.Tensor], outputs: Sequence[te.Tensor]) -> tuple[list[te.Tensor], list[te.Tensor]]:
    """Return inputs and outputs of the function that computes the bounds; it reads magnitudes of the inputs, as
    float64."""
    given = [te.placeholder(tuple(t.shape), KIND, t.op.name) for t in inputs]
    known = list(zip(inputs, given, strict=True))

    def of(tensor: te.Tensor) -> te.Tensor:
        found = next((bound for original, bound in known if original.same_as(tensor)), None)
        if found is None:
            found = _stage(tensor, [(source, of(source)) for source in tensor.op.input_tensors])
            known.append((tensor, found))
        return found

    return given, [of(tensor) for tensor in outputs]


def magnitude_of(array: np.ndarray) -> np.ndarray:
    """Return what the function of bounds reads for an input; infinities and NaN do not count."""
    return np.maximum(np.nan_to_num(np.abs(array.astype(np.float64)), nan=0.0, posinf=0.0), LEAST)


def _stage(tensor: te.Tensor, sources: list[tuple[te.Tensor, te.Tensor]]) -> te.Tensor:
    body, axes = tensor.op.body[0], [axis.var for axis in tensor.op.axis]

    def value(*at: Expr) -> Expr:
        place = dict(zip(axes, at, strict=True))
        if not isinstance(body, tirx.Reduce):
            return _bound(substitute(body, place), sources)
        summed = [te.reduce_axis((0, int(r.dom.extent)), r.var.name) for r in body.axis]
        place.update((old.var, new.var) for old, new in zip(body.axis, summed, strict=True))
        term = _bound(substitute(body.source[0], place), sources)
        total = te.sum if isinstance(body.combiner.result[0], tirx.Add) else te.max
        return total(term, axis=summed)

    bound = te.compute(tuple(tensor.shape), value, tensor.op.name)
    if not isinstance(body, tirx.Reduce):
        return bound
    kind = str(tensor.dtype)
    return te.compute(tuple(tensor.shape), lambda *at: _within(bound(*at), kind), tensor.op.name)


def _bound(expr: Expr, sources: list[tuple[te.Tensor, te.Tensor]]) -> Expr:
    """Return a bound of the magnitude of `expr`."""

    def of(part: Expr) -> Expr:
        return _bound(part, sources)

    kind = str(expr.ty)
    branches = conditional(expr)
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return _real(max(abs(float(expr.value)), LEAST))
    if isinstance(expr, Call) and expr.op.name == "te.tensor_load":
        tensor, *at = expr.args
        return next(bound for source, bound in sources if tensor.same_as(source))(*at)
    if isinstance(expr, tirx.Select) and branches is not None:
        return tirx.Max(of(branches[1]), of(branches[2]))
    if branches is not None:
        return tirx.if_then_else(branches[0], of(branches[1]), of(branches[2]))
    if isinstance(expr, tirx.Cast):
        may_wrap = kind in NARROW or (kind.startswith("uint") and str(expr.value.ty).startswith("int"))
        return _any(of(expr.value), kind) if may_wrap else _within(of(expr.value), kind)
    if isinstance(expr, (tirx.Add, tirx.Sub)):
        total = of(expr.a) + of(expr.b)
        below = isinstance(expr, tirx.Sub) and kind.startswith("uint")  # perhaps below 0
        return _within(total + _real(2.0**64 if below else LEAST), kind)
    if isinstance(expr, tirx.Mul):
        return _within(of(expr.a) * of(expr.b), kind)
    if isinstance(expr, (tirx.Max, tirx.Min)):
        return tirx.Max(of(expr.a), of(expr.b))
    # Divisions by constants, functions that grow no faster than their argument, booleans.
    total = _real(1.0)
    for part in expr.args if isinstance(expr, Call) else [getattr(expr, name) for name in "ab" if hasattr(expr, name)]:
        total = total + of(part)
    return _within(total, kind)


def _within(bound: Expr, kind: str) -> Expr:
    """Return `bound` for a computed value of a type: infinite if it may overflow, the type's maximum if it wraps."""
    if kind in NARROW:
        return _any(bound, kind)
    if kind == "float64":
        return bound
    scale = _real(1.7e308 / (LARGEST[kind] if kind in LARGEST else _most(kind)))
    return bound * scale / scale


def _any(bound: Expr, kind: str) -> Expr:
    """Return the largest magnitude of an integer type; infinite where `bound` is."""
    return _real(_most(kind)) + bound * _real(1e-305)


def _most(kind: str) -> float:
    if kind == "bool":
        return 1.0
    bits = int(kind.removeprefix("u").removeprefix("int"))
    return 2.0 ** (bits if kind.startswith("u") else bits - 1)


def _real(value: float) -> Expr:
    return tirx.const(value, KIND)


def holds(array: np.ndarray) -> np.ndarray:
    """Return where the bounds imply that the value is defined."""
    return np.isfinite(array)
