"""Encoder and decoder attention as fused by onnxruntime's optimiser (domain com.microsoft), as Relax compositions.

Operands and attributes are those of onnxruntime's documentation (docs/ContribOperators.md of its repository). Symbolic
shapes are supported: extents that must be equal are cast to one another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from tvm import relax, sym
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ...figures import quantity
from ..decoder_attention import attended, moved, reshaped
from ..open_parts import sequence
from ..open_shapes import Size, expr, extents_of
from .open_node import OpenNode
from .tensors import as_type, dtype_of, number, rank_of

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr
# added to scores that the causal mask hides: the lowest float32, so that fully masked rows see none of these
UNSEEN = -3.4028234663852886e38


def _part(bb: Builder, value: Expr, axis: int, first: int, end: int) -> Expr:
    return bb.emit(op.strided_slice(value, [axis], [first], [end]))


def _same(a: Size, b: Size) -> bool:
    """Return whether two extents are equal; for symbolic ones, whether that is certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(sym.Analyzer().can_prove(expr(a) == expr(b)))


def _of_heads(bb: Builder, value: Expr, heads: int, called: str) -> Expr:
    """Return [batch, heads, length, width] from [batch, length, heads * width]."""
    batch, length, columns = extents_of(value)
    if not isinstance(columns, int) or columns % heads:
        raise ValueError(f"{called} has {columns} columns for {heads} heads; expected a multiple of the heads")
    return moved(bb, reshaped(bb, value, [batch, length, heads, columns // heads]), 0, 2, 1, 3)


def _padding(bb: Builder, mask: Expr, batch: Size, length: Size, total: Size, fill: float) -> Expr:
    """Return 0 or `fill` for scores of `length` rows and `total` keys, as a mask says: float32 [batch, 1, 1 or length,
    total].

    `mask` is int32 [batch, total] or [batch, length, total], positive where a key is seen; [batch], the number of keys;
    [2 batch], the ends of the keys, then their starts; or [3 batch + 2], the number of keys, then the cumulative starts
    of rows and keys without padding, which follow from the numbers.
    """
    shape, rank = extents_of(mask), rank_of(mask)
    zero, low = relax.const(0.0, "float32"), relax.const(fill, "float32")
    if rank in (2, 3):
        wanted = [batch, total] if rank == 2 else [batch, length, total]
        if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(shape, wanted, strict=True)):
            raise ValueError(f"the mask has shape {shape}; expected {wanted}")
        seen = bb.emit(op.greater(mask, number(0, mask)))
        added = bb.emit(op.where(seen, zero, low))
        return reshaped(bb, added, [shape[0], *([1] * (4 - rank)), *shape[1:]])
    if rank != 1:
        raise ValueError(f"the mask has {quantity(rank, 'axis', 'axes')}; expected 1, 2 or 3")
    if _same(shape[0], 3 * batch + 2):
        mask, shape = _part(bb, mask, 0, 0, batch), [batch]
    two = _same(shape[0], 2 * batch) and not _same(shape[0], batch)
    if not two and isinstance(shape[0], int) and isinstance(batch, int) and shape[0] != batch:
        raise ValueError(
            f"the mask has {shape[0]} numbers for a batch of {batch}; expected one or two per batch element, "
            "or three and 2"
        )
    places = reshaped(bb, bb.emit(sequence(bb, 0, 1, total, "int32")), [1, 1, 1, total])
    mask = as_type(bb, mask, "int32")
    if not two:
        seen = bb.emit(op.less(places, reshaped(bb, mask, [shape[0], 1, 1, 1])))
        return bb.emit(op.where(seen, zero, low))
    both = reshaped(bb, mask, [2, batch, 1, 1, 1])
    end, start = (reshaped(bb, _part(bb, both, 0, at, at + 1), [batch, 1, 1, 1]) for at in (0, 1))
    seen = bb.emit(op.logical_and(bb.emit(op.less(places, end)), bb.emit(op.greater_equal(places, start))))
    return bb.emit(op.where(seen, zero, low))


def _causal(bb: Builder, length: Size, total: Size, past: Size) -> Expr:
    """Return whether a row sees a key, its own and earlier ones: bool [length, total]."""
    rows = reshaped(bb, bb.emit(sequence(bb, past, 1, length, "int32")), [length, 1])
    keys = reshaped(bb, bb.emit(sequence(bb, 0, 1, total, "int32")), [1, total])
    return bb.emit(op.less_equal(keys, rows))


def _attention(
    bb: Builder,
    queries: Expr,
    keys: Expr,
    values: Expr,
    *,
    past: Size,
    mask: Expr | None,
    bias: Expr | None,
    attr: dict[str, Any],
    with_scores: bool,
) -> tuple[Expr, Expr | None]:
    """Return float32 [batch, length, heads * width of values] from queries, keys and values, [batch, heads, rows,
    width], and the scores before the softmax if requested. The first `past` keys precede those of the rows."""
    batch, heads, length, width = extents_of(queries)
    total, out_width = extents_of(keys)[2], extents_of(values)[3]
    scale = float(attr.get("scale", 0.0)) or 1 / math.sqrt(width)
    fill = float(attr.get("mask_filter_value", -10000.0))
    causal = bool(attr.get("unidirectional", 0)) and not _same(length, 1)
    if causal and mask is None and bias is None and not with_scores and width == out_width:
        before = relax.const(past, "int32") if isinstance(past, int) else _number(bb, past)
        before = bb.emit(op.broadcast_to(before, relax.ShapeExpr([batch])))
        return attended(bb, moved(bb, queries, 0, 2, 1, 3), keys, values, before, scale), None
    scores = bb.emit(op.matmul(queries, moved(bb, keys, 0, 1, 3, 2)))
    scores = bb.emit(op.multiply(scores, number(scale, scores)))
    if bias is not None:
        scores = bb.emit(op.add(scores, bias))
    added = None if mask is None else _padding(bb, mask, batch, length, total, fill)
    if causal:
        seen = _causal(bb, length, total, past)
        of_keys = added if added is not None else relax.const(0.0, "float32")
        added = bb.emit(op.where(seen, of_keys, relax.const(UNSEEN, "float32")))
    if added is not None:
        scores = bb.emit(op.add(scores, added))
    weights = bb.emit(op.nn.softmax(scores, axis=-1))
    result = moved(bb, bb.emit(op.matmul(weights, values)), 0, 2, 1, 3)
    return reshaped(bb, result, [batch, length, heads * out_width]), scores if with_scores else None


def _number(bb: Builder, size: Size) -> Expr:
    """Return a symbolic size as an int32 tensor of one element."""
    return bb.emit(op.astype(bb.emit(op.shape_to_tensor(relax.ShapeExpr([size]))), "int32"))


def _refuse(inputs: Sequence[Expr | None], named: dict[int, str]) -> None:
    for place, called in named.items():
        if place < len(inputs) and inputs[place] is not None:
            raise ValueError(f"{called} is given; expected a node without it")


def _agreed(what: str, a: Size, b: Size) -> None:
    """Raise ValueError if two extents are different numbers."""
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ValueError(f"{what}: {a} and {b}; expected equal numbers")


def _check_scores_bias(bias: Expr | None, batch: Size, heads: int, length: Size, total: Size) -> None:
    if bias is None:
        return
    shape = extents_of(bias)
    wanted = [(batch, 1), (heads, 1), (length,), (total,)]
    if len(shape) != 4 or any(
        isinstance(e, int) and all(isinstance(one, int) and e != one for one in allowed)
        for e, allowed in zip(shape, wanted, strict=True)
    ):
        raise ValueError(
            f"attention_bias has shape {shape}; expected {[one[0] for one in wanted]}, or 1 for either of the first two"
        )


# ---- MultiHeadAttention ----------------------------------------------------------------------------------------------


def multi_head_attention(bb: Builder, inputs: Sequence[Expr | None], attr: dict[str, Any]) -> Expr:
    """Compute attention of queries over separate or packed keys and values, including the past.

    Return [batch, length, hidden], keys and values of past and present, [batch, heads, total, width], and the scores.
    """
    taken = [*inputs, *[None] * (10 - len(inputs))]
    query, key, value, bias, mask, on_scores, past_key, past_value = taken[:8]
    _refuse(taken, {8: "past_sequence_length, of a shared cache,", 9: "cache_indirection"})
    heads, count = int(attr["num_heads"]), _results(attr)
    assert query is not None  # a required input
    kind = dtype_of(query)
    query, key, value, bias, on_scores, past_key, past_value = (
        None if each is None else as_type(bb, each, "float32")
        for each in (query, key, value, bias, on_scores, past_key, past_value)
    )
    parts = _operands(bb, heads, query, key, value)
    if bias is not None:
        parts = _biased(bb, parts, bias, heads, alone=key is not None and rank_of(key) == 4)
    queries, keys, values = parts
    _agreed("the width of the heads of queries and of keys", extents_of(queries)[3], extents_of(keys)[3])
    _agreed("the number of keys and of values", extents_of(keys)[2], extents_of(values)[2])
    length, past = extents_of(queries)[2], 0
    if attr.get("unidirectional", 0):
        _agreed("unidirectional rows and keys", length, extents_of(keys)[2])
    if (past_key is None) != (past_value is None):
        raise ValueError("only one of past_key and past_value is given; expected both or neither")
    if past_key is not None and past_value is not None:
        if key is not None and rank_of(key) == 4:
            raise ValueError("past_key is given with keys of 4 axes; expected one of the two")
        past = extents_of(past_key)[2]
        keys, values = (
            bb.emit(op.concat([before, now], axis=2)) for before, now in ((past_key, keys), (past_value, values))
        )
    total = extents_of(keys)[2]
    _check_scores_bias(on_scores, extents_of(queries)[0], heads, length, total)
    result, scores = _attention(
        bb, queries, keys, values, past=past, mask=mask, bias=on_scores, attr=attr, with_scores=count > 3
    )
    made = [result, keys, values, *([scores] if scores is not None else [])]
    return relax.Tuple([as_type(bb, each, kind) for each in made])


def _results(attr: dict[str, Any]) -> int:
    return int(attr.get("tvm_custom", {}).get("num_outputs", 1))


def _operands(bb: Builder, heads: int, query: Expr, key: Expr | None, value: Expr | None) -> list[Expr]:
    """Return queries, keys and values, [batch, heads, rows, width]."""
    if key is None:
        shape = extents_of(query)
        if value is not None or len(shape) != 5 or shape[2:4] != [heads, 3]:
            raise ValueError(f"query has shape {shape} without keys; expected [batch, length, {heads}, 3, width]")
        return _unpacked(bb, query)
    if rank_of(query) != 3:
        raise ValueError(f"query has {quantity(rank_of(query), 'axis', 'axes')} with keys; expected 3")
    queries = _of_heads(bb, query, heads, "query")
    shape = extents_of(key)
    if len(shape) == 5:
        if value is not None or shape[2:4] != [heads, 2]:
            raise ValueError(f"key has shape {shape}; expected [batch, length, {heads}, 2, width] and no value")
        return [queries, *_unpacked(bb, key)]
    if value is None or rank_of(value) != len(shape):
        raise ValueError("key and value do not have the same number of axes; expected both with 3 or both with 4 axes")
    if len(shape) == 4:
        for each in (key, value):
            _agreed("num_heads and the heads of keys and values", heads, extents_of(each)[1])
        return [queries, key, value]
    return [queries, *(_of_heads(bb, each, heads, called) for called, each in (("key", key), ("value", value)))]


def _unpacked(bb: Builder, packed: Expr) -> list[Expr]:
    """Return the parts of [batch, length, heads, parts, width], each [batch, heads, length, width]."""
    batch, length, heads, parts, width = extents_of(packed)
    return [
        moved(bb, reshaped(bb, _part(bb, packed, 3, at, at + 1), [batch, length, heads, width]), 0, 2, 1, 3)
        for at in range(int(parts))
    ]


def _biased(bb: Builder, parts: Sequence[Expr], bias: Expr, heads: int, *, alone: bool) -> list[Expr]:
    """Return queries, keys and values with their parts of a bias added. `alone`: only for the queries, since the
    product that made keys and values has added theirs; the bias may then omit them."""
    widths = [int(extents_of(part)[3]) * heads for part in parts]
    columns = extents_of(bias)[0]
    if rank_of(bias) != 1 or columns not in ((sum(widths), widths[0]) if alone else (sum(widths),)):
        raise ValueError(f"bias has shape {extents_of(bias)}; expected [{sum(widths)}]")
    found, first = list(parts), 0
    for place, width in enumerate(widths[:1] if alone else widths):
        own = reshaped(bb, _part(bb, bias, 0, first, first + width), [1, heads, 1, width // heads])
        found[place] = bb.emit(op.add(parts[place], own))
        first += width
    return found


class MultiHeadAttention(tvm_onnx.OnnxOpConverter):
    """multi_head_attention with fixed shapes."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return multi_head_attention(bb, list(inputs), attr)


# ---- Attention -------------------------------------------------------------------------------------------------------


def self_attention(bb: Builder, inputs: Sequence[Expr | None], attr: dict[str, Any]) -> Expr:
    """Compute self-attention over rows and the past, including the projections to queries, keys and values.

    Return [batch, length, hidden], and keys and values of past and present, [2, batch, heads, total, width].
    """
    taken = [*inputs, *[None] * (7 - len(inputs))]
    x, weights, bias, mask, past, on_scores = taken[:6]
    _refuse(taken, {6: "past_sequence_length, of a shared cache,"})
    for called in ("do_rotary", "past_present_share_buffer"):
        if attr.get(called, 0):
            raise ValueError(f"{called} is set; expected 0")
    assert x is not None and weights is not None  # required inputs
    if mask is not None and rank_of(mask) == 2 and _same(extents_of(mask)[1], 1):
        mask = None  # a single column masks nothing, by convention or since there is only one key
    heads, kind = int(attr["num_heads"]), dtype_of(x)
    x, weights, bias, past, on_scores = (
        None if each is None else as_type(bb, each, "float32") for each in (x, weights, bias, past, on_scores)
    )
    assert x is not None and weights is not None
    columns = extents_of(weights)[1]
    sizes = [int(size) for size in attr.get("qkv_hidden_sizes", [])] or [int(columns) // 3] * 3
    if len(sizes) != 3 or sum(sizes) != columns or sizes[0] != sizes[1] or any(size % heads for size in sizes):
        raise ValueError(
            f"qkv_hidden_sizes = {sizes} for {columns} columns and {heads} heads; expected three multiples "
            "of the heads that add up to the columns, the first two equal"
        )
    made = bb.emit(op.matmul(x, weights))
    if bias is not None:
        made = bb.emit(op.add(made, bias))
    ends = [sizes[0], sizes[0] + sizes[1], sum(sizes)]
    queries, keys, values = (
        _of_heads(bb, _part(bb, made, 2, end - size, end), heads, "input")
        for end, size in zip(ends, sizes, strict=True)
    )
    length, before = extents_of(queries)[2], 0
    if past is not None:
        shape = extents_of(past)
        if len(shape) != 5 or shape[0] != 2 or shape[2] != heads or shape[4] != sizes[0] // heads:
            raise ValueError(f"past has shape {shape}; expected [2, batch, {heads}, rows, {sizes[0] // heads}]")
        if sizes[2] != sizes[0]:
            raise ValueError(f"past with qkv_hidden_sizes = {sizes}; expected heads of one width")
        before = shape[3]
        keys, values = (
            bb.emit(op.concat([reshaped(bb, _part(bb, past, 0, at, at + 1), shape[1:]), now], axis=2))
            for at, now in enumerate((keys, values))
        )
    _check_scores_bias(on_scores, extents_of(queries)[0], heads, length, extents_of(keys)[2])
    result, _ = _attention(
        bb, queries, keys, values, past=before, mask=mask, bias=on_scores, attr=attr, with_scores=False
    )
    if _results(attr) < 2:
        return as_type(bb, result, kind)
    if sizes[2] != sizes[0]:
        raise ValueError(f"present with qkv_hidden_sizes = {sizes}; expected heads of one width")
    stacked = bb.emit(op.concat([bb.emit(op.expand_dims(each, 0)) for each in (keys, values)], axis=0))
    return relax.Tuple([as_type(bb, each, kind) for each in (result, stacked)])


class Attention(tvm_onnx.OnnxOpConverter):
    """self_attention with fixed shapes."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        return self_attention(bb, list(inputs), attr)


def _bound(node: OpenNode, groups: Sequence[dict[int, int]]) -> Expr:
    """Return the converted node with extents that must be equal bound to one size: each group maps inputs to the axis
    of it."""
    shapes = {place: node.extents(place) for group in groups for place in group if node.has(place)}
    for group in groups:
        present = {place: axis for place, axis in group.items() if place in shapes}
        sizes = [shapes[place][axis] for place, axis in present.items()]
        agreed = sizes[0] if sizes else 0
        for size in sizes[1:]:
            agreed = node.shapes.agreed(agreed, size)
        for place, axis in present.items():
            shapes[place][axis] = agreed
    return node.converted(shapes)


def open_multi_head_attention(node: OpenNode) -> Expr:
    """multi_head_attention with symbolic shapes."""
    of_keys = {1: 1, 2: 1}
    if node.has(1) and rank_of(node.tensor(1)) == 4:
        of_keys = {1: 2, 2: 2}
    if node.attr.get("unidirectional", 0):
        of_keys[0] = 1
    return _bound(node, [dict.fromkeys((0, 1, 2, 6, 7), 0), of_keys, {6: 2, 7: 2}])


def open_self_attention(node: OpenNode) -> Expr:
    """self_attention with symbolic shapes."""
    return _bound(node, [{0: 0, 4: 1}])


CONVERTERS: dict[str, Any] = {"Attention": Attention, "MultiHeadAttention": MultiHeadAttention}
"""Converters of the domain com.microsoft."""
