"""Decoder attention: rotary position embeddings, growing key-value caches, and attention over past and new tokens.
Shapes may be symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tvm import relax, te, tirx
from tvm.relax import op

from ..decide.vector.cache_append import CacheAppend
from ..decide.vector.cached_attention import CachedAttention
from ..figures import quantity
from ..lowering.positions import checked_positions
from .described_call import described_call
from .open_parts import sequence
from .open_shapes import Size, extents_of, whole

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr


def reshaped(bb: Builder, value: Expr, shape: Sequence[Size]) -> Expr:
    """Return a reshaped tensor."""
    return bb.emit(op.reshape(value, relax.ShapeExpr(list(shape))))


def moved(bb: Builder, value: Expr, *order: int) -> Expr:
    """Return a tensor with permuted axes."""
    return bb.emit(op.permute_dims(value, list(order)))


def rotated(bb: Builder, x: Expr, cosine: Expr, sine: Expr, *, interleaved: bool) -> Expr:
    """Return `x`, [batch, length, heads, width], with the first 2 r elements of each head rotated as r pairs by angles
    with the given cosines and sines, [batch or 1, length, r]. Elements of a pair are adjacent (`interleaved`) or r
    apart."""
    batch, length, heads, width = extents_of(x)
    pairs = int(cosine.ty.shape[-1])
    if 2 * pairs > width:
        raise ValueError(f"tables of {pairs} columns for heads of {width}; expected at most {width // 2} columns")
    turned = x if 2 * pairs == width else bb.emit(op.strided_slice(x, [3], [0], [2 * pairs]))
    parts = [pairs, 2] if interleaved else [2, pairs]
    one = tirx.IntImm("int64", 1)
    shared = whole(cosine.ty.shape[0]) == 1

    def element(x: te.Tensor, cosine: te.Tensor, sine: te.Tensor) -> te.Tensor:
        def at(b: Any, s: Any, h: Any, i: Any, j: Any) -> Any:
            half, pair = (j, i) if interleaved else (i, j)
            other = [pair, one - half] if interleaved else [one - half, pair]
            sign = tirx.Select(half < one, tirx.const(-1.0, x.dtype), tirx.const(1.0, x.dtype))
            row = (0 if shared else b, s, pair)
            return x[b, s, h, i, j] * cosine[row] + sign * x[b, s, h, other[0], other[1]] * sine[row]

        return te.compute(x.shape, at, name="rotated")

    view = reshaped(bb, turned, [batch, length, heads, *parts])
    made = bb.emit(bb.call_te(element, view, cosine, sine, primfunc_name_hint="rotated"))
    result = reshaped(bb, made, [batch, length, heads, 2 * pairs])
    if 2 * pairs == width:
        return result
    rest = bb.emit(op.strided_slice(x, [3], [2 * pairs], [width]))
    return bb.emit(op.concat([result, rest], axis=3))


def rows_of_tables(bb: Builder, tables: Sequence[Expr], positions: Expr) -> list[Expr]:
    """Return the rows of each table at `positions`, [batch, length]. Positions beyond the tables are refused: they
    exceed the context length of the model."""
    most = int(tables[0].ty.shape[0])
    named = f"the model's context of {quantity(most, 'token')}"
    inside = checked_positions(bb, positions, most, named, wraps=False, called="position")
    return [bb.emit(op.take(table, inside, axis=0)) for table in tables]


def counted(bb: Builder, count: Size, dtype: str) -> Expr:
    """Return [1, count]: 0, 1, 2, ..."""
    return bb.emit(op.expand_dims(bb.emit(sequence(bb, 0, 1, count, dtype)), 0))


def joined(bb: Builder, past: Expr, new: Expr, before: Expr, every: Size) -> Expr:
    """Return the past and new keys or values joined, `every` of them."""
    batch, groups, room, width = extents_of(past)
    length = extents_of(new)[1]
    description = CacheAppend(batch=batch, room=room, length=length, every=every, groups=groups, width=width)
    return described_call(bb, description, {"past": past, "new": new, "before": before}, "append")["present"]


def attended(
    bb: Builder, query: Expr, keys: Expr, values: Expr, before: Expr, scale: float, *, window: int = 0, cap: float = 0.0
) -> Expr:
    """Return [batch, length, heads * width] for queries [batch, length, heads, width] over keys and values [batch,
    groups, every, width], of which the first `before` are past."""
    batch, length, heads, width = extents_of(query)
    _, groups, every, _ = extents_of(keys)
    description = CachedAttention(
        batch=batch,
        length=length,
        every=every,
        heads=heads,
        groups=groups,
        width=width,
        scale=scale,
        window=window,
        softcap=cap,
    )
    given = {"q": query, "keys": keys, "values": values, "before": before}
    return described_call(bb, description, given, "cached_attention")["y"]
