"""Matrix multiplications and operators based on them.

16-bit floats are accumulated in float32 and rounded once; integers keep their type and wrap around, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod, sqrt
from typing import Any

import torch
from tvm import relax, te, tirx
from tvm.relax import op

from ..few_bits import FewBits, product_of_few_bits
from ..translation import Translation, Unsupported, Value, converter, dtype_of, shape_of
from ..types import DTYPES, computed_in, is_float
from .views import expanded, permuted, reshaped


def product(t: Translation, left: relax.Expr, right: relax.Expr | FewBits, dtype: str) -> relax.Expr:
    """left @ right for operands of one type, accumulated and returned in `dtype`."""
    if isinstance(right, FewBits):
        made = product_of_few_bits(t, left, right.transposed) if dtype == "float32" and shape_of(left)[-1] else None
        if made is not None:
            return made
        right = t.constant(right.floats())
    if shape_of(left)[-1] == 0:
        shape = relax.op.matmul(left, right)
        return t.emit(op.zeros(t.builder.normalize(shape).ty.shape, dtype))
    narrow = dtype_of(left) != dtype
    return t.emit(op.matmul(left, right, out_dtype=dtype if narrow else None))


def turned(t: Translation, matrix: relax.Expr) -> relax.Expr:
    """Swap the last two axes."""
    rank = len(shape_of(matrix))
    return permuted(t, matrix, [*range(rank - 2), rank - 1, rank - 2])


def _plain(t: Translation, left: relax.Expr, right: relax.Expr) -> relax.Expr:
    return t.cast(product(t, left, right, computed_in(t.dtype)), t.dtype)


@converter("mm.default", "bmm.default", "matmul.default", "mv.default")
def _matmul(t: Translation, self: relax.Expr, **other: relax.Expr) -> relax.Expr:
    (right,) = other.values()  # its name differs between the schemas
    return _plain(t, self, right)


@converter("_int_mm.default")
def _integer_product(t: Translation, self: relax.Expr, mat2: relax.Expr) -> relax.Expr:
    """int8 by int8, accumulated in int32."""
    return product(t, self, mat2, "int32")


@converter("dot.default", "vdot.default")
def _dot(t: Translation, self: relax.Expr, tensor: Value = None, other: Value = None) -> relax.Expr:
    count = shape_of(self)[0]
    left = reshaped(t, self, [1, count])
    right = reshaped(t, other if tensor is None else tensor, [count, 1])
    return reshaped(t, _plain(t, left, right), ())


@converter("linear.default")
def _linear(t: Translation, input: relax.Expr, weight: relax.Expr, bias: Value) -> relax.Expr:
    wide = computed_in(t.dtype)
    if isinstance(weight, FewBits):
        columns = weight.transposed
    else:
        columns = turned(t, weight) if len(shape_of(weight)) > 1 else weight
    result = product(t, input, columns, wide)
    if bias is not None:
        result = t.emit(op.add(result, t.cast(bias, wide)))
    return t.cast(result, t.dtype)


def _added(
    t: Translation, start: relax.Expr, left: relax.Expr, right: relax.Expr, beta: float, alpha: float
) -> relax.Expr:
    """beta * start + alpha * left @ right; if beta is 0, `start` is ignored, even if it is NaN."""
    wide = computed_in(t.dtype)
    if not is_float(wide) and not all(float(factor).is_integer() for factor in (alpha, beta)):
        raise Unsupported(f"alpha={alpha}, beta={beta} with {wide} are not supported; expected whole numbers")
    result = product(t, left, right, wide)
    if alpha != 1:
        result = t.emit(op.multiply(result, t.cast(alpha, wide)))
    if beta != 0:
        start = t.cast(start, wide)
        if beta != 1:
            start = t.emit(op.multiply(start, t.cast(beta, wide)))
        result = t.emit(op.add(result, start))
    return t.cast(result, t.dtype)


@converter("addmm.default", "addmv.default", "baddbmm.default")
def _addmm(t: Translation, self: relax.Expr, beta: float, alpha: float, **factors: relax.Expr) -> relax.Expr:
    left, right = factors.values()  # their names differ between the schemas
    return _added(t, self, left, right, beta, alpha)


@converter("addbmm.default")
def _addbmm(
    t: Translation, self: relax.Expr, batch1: relax.Expr, batch2: relax.Expr, beta: float, alpha: float
) -> relax.Expr:
    # The sum over the batch is one matrix multiplication over batch and K.
    count, rows, depth = shape_of(batch1)
    left = reshaped(t, permuted(t, batch1, [1, 0, 2]), [rows, count * depth])
    right = reshaped(t, batch2, [count * depth, shape_of(batch2)[2]])
    return _added(t, self, left, right, beta, alpha)


@converter("_trilinear.default")
def _trilinear(
    t: Translation,
    i1: relax.Expr,
    i2: relax.Expr,
    i3: relax.Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int,
) -> relax.Expr:
    # `unroll_dim` only affects PyTorch's loops.
    wide = computed_in(t.dtype)
    spread = []
    for operand, places in ((i1, expand1), (i2, expand2), (i3, expand3)):
        axes = iter(shape_of(operand))
        rank = len(shape_of(operand)) + len(places)
        spread.append(reshaped(t, t.cast(operand, wide), [1 if a in places else next(axes) for a in range(rank)]))
    first = t.emit(op.multiply(spread[0], spread[1]))
    result = t.emit(op.multiply(first, spread[2]))
    return t.cast(t.emit(op.sum(result, list(sumdim))) if sumdim else result, t.dtype)


# ---- attention ------------------------------------------------------------------------------------------------------


@converter("scaled_dot_product_attention.default")
def _attention(
    t: Translation,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    attn_mask: Value,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> relax.Expr:
    """softmax(query @ key^T * scale + mask) @ value; fully masked rows give zeros."""
    if enable_gqa:
        key, value = (_heads(t, operand, shape_of(query)[-3]) for operand in (key, value))
    scores = _scores(t, query, key, attn_mask, dropout_p, is_causal, scale)
    return _weighted(t, scores, value, masked=attn_mask is not None and not is_causal)


# PyTorch's decomposition of attention, where it is decomposed.
@converter("_scaled_dot_product_flash_attention_for_cpu.default")
def _attention_and_sums(
    t: Translation,
    query: relax.Expr,
    key: relax.Expr,
    value: relax.Expr,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Value,
    scale: float | None,
) -> tuple[relax.Expr, relax.Expr]:
    scores = _scores(t, query, key, attn_mask, dropout_p, is_causal, scale)
    best = t.emit(op.max(scores, -1, keepdims=True))
    hidden = t.emit(op.equal(best, t.cast(-inf, dtype_of(scores))))  # fully masked rows, whose log-sum is 0 here
    best = t.emit(op.where(hidden, t.cast(0.0, dtype_of(scores)), best))
    powers = t.emit(op.exp(t.emit(op.subtract(scores, best))))
    sums = t.emit(op.add(t.emit(op.log(t.emit(op.sum(powers, -1, keepdims=True)))), best))
    sums = t.emit(op.where(hidden, t.cast(0.0, dtype_of(scores)), sums))
    sums = reshaped(t, sums, shape_of(scores)[:-1])
    return _weighted(t, scores, value, masked=attn_mask is not None and not is_causal), sums


def _scores(
    t: Translation,
    query: relax.Expr,
    key: relax.Expr,
    mask: Value,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> relax.Expr:
    """query @ key^T * scale + mask, in the type of the computation."""
    if dropout_p:
        raise Unsupported(f"dropout_p={dropout_p} is not supported; expected 0")
    wide = computed_in(t.dtype)
    rows, depth = shape_of(query)[-2:]
    keys = shape_of(key)[-2]
    factor = 1 / sqrt(depth) if scale is None else scale
    scores = product(t, t.cast(query, wide), turned(t, t.cast(key, wide)), wide)
    scores = t.emit(op.multiply(scores, t.cast(factor, wide)))
    if is_causal and isinstance(rows, int) and isinstance(keys, int):
        mask = t.constant(torch.ones(rows, keys, dtype=torch.bool).tril())
    elif is_causal:
        mask = t.te(_lower_triangle(rows, keys), primfunc_name_hint="causal")
    return scores if mask is None else t.emit(op.add(scores, _added_mask(t, mask, wide)))


def _lower_triangle(rows: Any, columns: Any) -> Callable[[], te.Tensor]:
    """A causal mask of `rows` x `columns`, either of which may be dynamic."""
    return lambda: te.compute((rows, columns), lambda i, j: j <= i, name="causal")


def _weighted(t: Translation, scores: relax.Expr, value: relax.Expr, *, masked: bool) -> relax.Expr:
    """softmax(scores) @ value; `masked`: fully masked rows may occur, and give zeros."""
    wide = dtype_of(scores)
    weights = t.emit(op.nn.softmax(scores, -1))
    if masked:
        weights = _zero_rows(t, scores, weights)
    return t.cast(product(t, weights, t.cast(value, wide), wide), t.dtype)


def _heads(t: Translation, operand: relax.Expr, count: int) -> relax.Expr:
    """Repeat each head for the query heads that share it."""
    *outer, heads, rows, depth = shape_of(operand)
    if heads == count:
        return operand
    apart = reshaped(t, operand, [*outer, heads, 1, rows, depth])
    copied = expanded(t, apart, [*outer, heads, count // heads, rows, depth])
    return reshaped(t, copied, [*outer, count, rows, depth])


def _added_mask(t: Translation, mask: relax.Expr, dtype: str) -> relax.Expr:
    """A mask as an additive term: 0 where a bool mask is true, minus infinity elsewhere."""
    if dtype_of(mask) != "bool":
        return t.cast(mask, dtype)
    known = t.content(mask)
    if known is not None:
        return t.constant(torch.zeros(known.shape, dtype=DTYPES[dtype]).masked_fill(~known, -inf))
    return t.emit(op.where(mask, t.cast(0.0, dtype), t.cast(-inf, dtype)))


def _zero_rows(t: Translation, scores: relax.Expr, weights: relax.Expr) -> relax.Expr:
    """Set the weights of fully masked rows to 0."""
    dtype = dtype_of(scores)
    best = t.emit(op.max(scores, -1, keepdims=True))
    masked = t.emit(op.equal(best, t.cast(-inf, dtype)))
    return t.emit(op.where(masked, t.cast(0.0, dtype), weights))


# ---- distances ------------------------------------------------------------------------------------------------------


@converter("_cdist_forward.default")
def _cdist(t: Translation, x1: relax.Expr, x2: relax.Expr, p: float, compute_mode: int | None) -> relax.Expr:
    # `compute_mode` selects PyTorch's formula.
    *batch, rows, columns = t.shape
    depth = shape_of(x1)[-1]
    left = reshaped(t, expanded(t, x1, [*batch, rows, depth]), [prod(batch), rows, depth])
    right = reshaped(t, expanded(t, x2, [*batch, columns, depth]), [prod(batch), columns, depth])
    return reshaped(t, _distances(t, left, right, p, (prod(batch), rows, columns), lambda b, i, j: (i, j)), t.shape)


@converter("_pdist_forward.default")
def _pdist(t: Translation, self: relax.Expr, p: float) -> relax.Expr:
    rows, depth = shape_of(self)
    first, second = (t.constant(places.contiguous()) for places in torch.triu_indices(rows, rows, 1))
    left, right = (t.emit(op.take(self, places, axis=0)) for places in (first, second))
    pairs = t.shape[0]
    left, right = (reshaped(t, operand, [1, pairs, depth]) for operand in (left, right))
    return reshaped(t, _distances(t, left, right, p, (1, pairs), lambda b, i: (i, i)), t.shape)


def _distances(
    t: Translation,
    left: relax.Expr,
    right: relax.Expr,
    p: float,
    shape: tuple[int, ...],
    pair: Callable[..., tuple[Any, Any]],
) -> relax.Expr:
    """p-norms of differences between rows of two tensors (batch, rows, depth); `pair` selects the rows."""
    dtype, depth = dtype_of(left), shape_of(left)[-1]
    if dtype not in ("float32", "float64"):
        raise Unsupported(f"distances of {dtype} are not supported; expected float32 or float64")
    if depth == 0:
        return t.emit(op.zeros(shape, dtype))
    number = lambda value: tirx.const(value, dtype)  # noqa: E731

    def term(value: Any, exponent: te.Tensor) -> Any:
        if p == 0:
            return tirx.Select(value == number(0.0), number(0.0), number(1.0))
        if p in (1, inf):
            return value
        return value * value if p == 2 else tirx.power(value, exponent[()])

    def total(x: te.Tensor, y: te.Tensor, exponent: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), name="k")

        def element(*at: Any) -> Any:
            i, j = pair(*at)
            value = term(tirx.abs(x[at[0], i, k] - y[at[0], j, k]), exponent)
            return te.max(value, axis=k) if p == inf else te.sum(value, axis=k)

        return te.compute(shape, element, name="distance")

    # A tensor, since TVM warns of constant exponents from 3 on.
    exponent = t.emit(relax.const(p, dtype))
    summed = t.te(total, left, right, exponent, primfunc_name_hint="distance")
    if p in (0, 1, inf):
        return summed
    return t.emit(op.sqrt(summed) if p == 2 else op.power(summed, t.cast(1 / p, dtype)))
