"""Decoder attention as written by onnxruntime's tools (domain com.microsoft), as Relax compositions.

Operands and attributes are those of onnxruntime's documentation (docs/ContribOperators.md of its repository). Shapes
may be symbolic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..decoder_attention import attended, counted, joined, moved, reshaped, rotated, rows_of_tables
from ..open_parts import kernel_of_sizes
from ..open_shapes import Size, expr, extents_of
from .open_node import OpenNode
from .tensors import as_type, dtype_of, known, number, rank_of

Builder: TypeAlias = relax.BlockBuilder
Expr: TypeAlias = relax.Expr
NEVER = -3.0e38  # a score with no weight in a softmax, chosen so that infinities are never subtracted


# ---- rotary position embeddings --------------------------------------------------------------------------------------


class RotaryEmbedding(tvm_onnx.OnnxOpConverter):
    """Rotary position embedding of x, [batch, length, hidden] or [batch, heads, length, width]. A single position is
    that of the first row of every batch."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        x, positions, *tables = inputs[:4]
        if attr.get("is_packed_batching", 0):
            raise ValueError("is_packed_batching is set; expected 0")
        if attr.get("scale", 1.0) != 1.0:
            raise ValueError(f"scale = {attr['scale']}; expected 1")
        shape = extents_of(x)
        pairs = int(tables[0].ty.shape[-1])
        heads, turned = (int(attr.get(called, 0)) for called in ("num_heads", "rotary_embedding_dim"))
        if turned and turned != 2 * pairs:
            raise ValueError(
                f"rotary_embedding_dim = {turned} with tables of {pairs} columns; expected half as many columns"
            )
        if len(shape) == 4:
            parted = moved(bb, x, 0, 2, 1, 3)
        else:
            if turned and not heads:
                raise ValueError(f"rotary_embedding_dim = {turned} without num_heads; expected both")
            width = shape[-1] // heads if heads else 2 * pairs
            if not isinstance(width, int) or shape[-1] % width:
                raise ValueError(f"{shape[-1]} columns for heads of {width}; expected a whole number of heads")
            parted = reshaped(bb, x, [*shape[:2], shape[-1] // width, width])
        length, width = extents_of(parted)[1], extents_of(parted)[3]
        if not turned and isinstance(width, int) and width != 2 * pairs:
            raise ValueError(f"tables of {pairs} columns for heads of {width}; expected half, or rotary_embedding_dim")
        if rank_of(positions) == 1:
            first = reshaped(bb, positions, [1, 1])
            positions = bb.emit(op.add(first, counted(bb, length, dtype_of(positions))))
        made = rotated(bb, parted, *rows_of_tables(bb, tables, positions), interleaved=bool(attr.get("interleaved", 0)))
        return moved(bb, made, 0, 2, 1, 3) if len(shape) == 4 else reshaped(bb, made, shape)


# ---- attention over a cache ------------------------------------------------------------------------------------------


def grouped_query_attention(
    bb: Builder, inputs: Sequence[Expr | None], attr: dict[str, Any], every: Size, total: Size
) -> Expr:
    """Compute grouped-query attention over past and new keys and values, each shared by a group of heads.

    Return [batch, length, hidden], and the keys and values of past and present, [batch, heads, every, width]. seqlens_k
    gives the number of keys of each batch minus one; the new ones come last. `total` is the maximum over the batches.
    """
    taken = [*inputs, *[None] * (12 - len(inputs))]
    query, key, value, past_key, past_value, lengths, _, cosine, sine, positions, bias, sink = taken[:12]
    for called, operand in (
        ("head_sink", sink),
        *((f"input {place}", each) for place, each in enumerate(taken[12:], 12)),
    ):
        if operand is not None:
            raise ValueError(f"{called} is given; expected a node without it")
    for called, usual in (("smooth_softmax", 0), ("qk_output", 0), ("k_quant_type", "NONE"), ("v_quant_type", "NONE")):
        given = attr.get(called, usual)
        if (given.decode() if isinstance(given, bytes) else given) not in (usual, -1):
            raise ValueError(f"{called} = {given!r}; expected {usual!r}")
    kind = dtype_of(query)
    query, key, value, past_key, past_value, cosine, sine, bias = (
        None if each is None else as_type(bb, each, "float32")
        for each in (query, key, value, past_key, past_value, cosine, sine, bias)
    )
    assert query is not None  # a required input
    heads, groups = int(attr["num_heads"]), int(attr["kv_num_heads"])
    if heads % groups:
        raise ValueError(f"num_heads = {heads} with kv_num_heads = {groups}; expected a multiple of kv_num_heads")
    batch, length, columns = extents_of(query)
    if key is None:
        width = columns // (heads + 2 * groups)
        ends = [heads * width, (heads + groups) * width]
        query, key, value = (bb.emit(part) for part in bb.emit(op.split(query, ends, axis=2)))
    else:
        width = columns // heads
    query = reshaped(bb, query, [batch, length, heads, width])
    key, value = (reshaped(bb, each, [batch, length, groups, width]) for each in (key, value))
    before = bb.emit(
        op.maximum(bb.emit(op.add(lengths, number(1, lengths)) - _as_number(bb, length, lengths)), number(0, lengths))
    )
    before = reshaped(bb, before, [batch])
    if attr.get("do_rotary", 0):
        if positions is None:
            first = reshaped(bb, before, [batch, 1])
            positions = bb.emit(op.add(first, counted(bb, length, dtype_of(lengths))))
        rows = rows_of_tables(bb, (cosine, sine), positions)
        interleaved = bool(attr.get("rotary_interleaved", 0))
        query, key = (rotated(bb, each, *rows, interleaved=interleaved) for each in (query, key))
    before = bb.emit(op.astype(before, "int32"))
    keys, values = (
        moved(bb, new, 0, 2, 1, 3) if past is None else joined(bb, past, new, before, every)
        for past, new in ((past_key, key), (past_value, value))
    )
    scale = attr.get("scale", 0.0) or 1 / math.sqrt(width)
    window, cap = int(attr.get("local_window_size", -1)), float(attr.get("softcap", 0.0))
    if bias is None:
        result = attended(bb, query, keys, values, before, float(scale), window=max(0, window), cap=cap)
        return relax.Tuple([as_type(bb, each, kind) for each in (result, keys, values)])
    every, shared = extents_of(keys)[2], heads // groups
    stacked = reshaped(bb, moved(bb, query, 0, 2, 1, 3), [batch, groups, shared * length, width])
    scores = bb.emit(op.matmul(stacked, moved(bb, keys, 0, 1, 3, 2)))
    scores = bb.emit(op.multiply(scores, number(scale, scores)))
    scores = reshaped(bb, scores, [batch, groups, shared, length, every])
    if cap:
        bent = bb.emit(op.tanh(bb.emit(op.multiply(scores, number(1 / cap, scores)))))
        scores = bb.emit(op.multiply(bent, number(cap, scores)))
    bias = _of_every_key(bb, bias, [batch, heads, length, total], every)
    shape = extents_of(bias)
    spread = [groups, shared] if shape[1] == heads else [1, 1]
    scores = bb.emit(op.add(scores, reshaped(bb, bias, [shape[0], *spread, *shape[2:]])))
    mask = _seen(bb, before, length, every, window)
    scores = bb.emit(op.add(scores, reshaped(bb, mask, [batch, 1, 1, length, every])))
    weights = bb.emit(op.nn.softmax(scores, axis=-1))
    weights = reshaped(bb, weights, [batch, groups, shared * length, every])
    result = reshaped(bb, bb.emit(op.matmul(weights, values)), [batch, heads, length, width])
    result = reshaped(bb, moved(bb, result, 0, 2, 1, 3), [batch, length, heads * width])
    return relax.Tuple([as_type(bb, each, kind) for each in (result, keys, values)])


def _of_every_key(bb: Builder, bias: Expr, sizes: Sequence[Size], every: Size) -> Expr:
    """Return the bias of scores, [batch or 1, heads or 1, length, total], extended with zeros for unused cache
    positions."""
    shape = extents_of(bias)
    if len(shape) != 4 or any(
        isinstance(given, int) and isinstance(size, int) and given != size and not (given == 1 and axis < 2)
        for axis, (given, size) in enumerate(zip(shape, sizes, strict=True))
    ):
        raise ValueError(f"attention_bias has shape {shape}; expected {list(sizes)}, or 1 for either of the first two")
    if not isinstance(every, int) or not isinstance(shape[3], int) or shape[3] == every:
        return bias
    room = bb.emit(op.zeros(relax.ShapeExpr([*shape[:3], every - shape[3]]), dtype_of(bias)))
    return bb.emit(op.concat([bias, room], axis=3))


def _as_number(bb: Builder, size: Size, like: Expr) -> Expr:
    """Return a size as a tensor of one element."""
    if isinstance(size, int):
        return number(size, like)
    found = bb.emit(op.shape_to_tensor(relax.ShapeExpr([size])))
    return bb.emit(op.astype(found, dtype_of(like)))


def _seen(bb: Builder, before: Expr, length: Size, every: Size, window: int) -> Expr:
    """Return [batch, length, every] to be added to scores: 0 where a row sees a key (its own and earlier ones, and only
    the last `window` of these if that is at least 1)."""

    def seen(before: te.Tensor, sizes: list[Any]) -> te.Tensor:
        length, every = (expr(size) for size in sizes)

        def at(b: Any, i: Any, j: Any) -> Any:
            place = before[b].astype("int64") + i
            visible = j <= place
            if window >= 1:
                visible = tirx.And(visible, j > place - window)
            return tirx.Select(visible, tirx.const(0.0, "float32"), tirx.const(NEVER, "float32"))

        return te.compute((before.shape[0], length, every), at, name="seen")

    return bb.emit(kernel_of_sizes(bb, seen, before, [length, every], "seen"))


_FROM_DATA = "total_sequence_length is computed from data; expected a value that follows from shapes"


class GroupQueryAttention(tvm_onnx.OnnxOpConverter):
    """grouped_query_attention with fixed shapes. The past may have unused capacity."""

    @classmethod
    def _impl_v1(cls, bb, inputs, attr, params):
        value = known(inputs[6])
        if value is None:
            raise ValueError(_FROM_DATA)
        room, total = 0 if inputs[3] is None else int(inputs[3].ty.shape[2]), int(value.reshape(-1)[0])
        return grouped_query_attention(bb, list(inputs), attr, max(room, total), total)


def open_grouped_query_attention(node: OpenNode) -> Expr:
    """Compute grouped_query_attention with symbolic shapes."""
    total = node.sizes(6)
    if total is None:
        raise ValueError(_FROM_DATA)
    inputs = [node.tensors(place) if node.has(place) and place != 6 else None for place in range(len(node.given))]
    every = node.shapes.larger(total[0], node.extents(3)[2]) if node.has(3) else total[0]
    return grouped_query_attention(node.bb, inputs, node.attr, every, total[0])


CONVERTERS: dict[str, Any] = {"GroupQueryAttention": GroupQueryAttention, "RotaryEmbedding": RotaryEmbedding}
"""Converters of the domain com.microsoft."""
