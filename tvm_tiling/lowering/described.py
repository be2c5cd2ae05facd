"""Reference implementations of described functions as plain loops: matrix multiplications with block-quantised weights,
quantised rows, gathered table rows, and attention over a cache. They define the semantics and run where no schedule
applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.gemm.block_rows import LARGEST, BlockRows
from ..decide.gemm.blocked import BlockedProduct
from ..decide.gemm.table_rows import TableRows
from ..decide.vector.cache_append import CacheAppend
from ..decide.vector.cached_attention import CachedAttention
from ..match.described import Description, attribute_of, sizes_of
from ..operand_types import element_bytes

Expr: TypeAlias = tirx.Expr
Index: TypeAlias = tirx.Expr | int
_OPAQUE = 8  # TVM's op_pattern of operators that are never fused


def described_function(description: Description, name: str) -> tirx.PrimFunc:
    """Return a function of the inputs and outputs in order. Dynamic sizes are variables of the function, bound by the
    shapes of its tensors."""
    open_sizes = {
        size: tirx.Var(size, "int64")
        for size in sizes_of(description)
        if not isinstance(getattr(description, size), int)
    }
    description = replace(description, **open_sizes)
    attributes: dict[str, Any] = {"global_symbol": name, "tirx.noalias": True, "op_pattern": _OPAQUE}
    attributes |= attribute_of(description)
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name(name)
        T.func_attr(attributes)
        buffers = declare(description)
        with T.sblock("root"):
            if isinstance(description, BlockRows):
                _rows(description, buffers)
            elif isinstance(description, BlockedProduct):
                _product(description, buffers)
            elif isinstance(description, TableRows):
                _table_rows(description, buffers)
            elif isinstance(description, CacheAppend):
                _append(description, buffers)
            else:
                _attention(description, buffers)
    return builder.get()


def declare(description: Description, packed: tuple[int, ...] | None = None) -> dict[str, tirx.Var]:
    """Declare the function's parameters by name; "weights" in packed form if its shape is given."""
    found = {}
    for name, (shape, dtype) in {**description.inputs, **description.outputs}.items():
        if name == "weights" and packed:
            found[name] = T.arg(f"{name}_packed", T.Buffer(packed, dtype))
        else:
            found[name] = T.arg(name, T.Buffer(shape, dtype))
    return found


def weight_at(product: BlockedProduct, weights: tirx.Var, column: Index, block: Index, k: Index) -> Expr:
    """Return element k of a stored block as int32."""
    bits = product.bits
    if bits == 8:
        return T.Cast("int32", weights[column, block, k])
    first = tirx.floordiv(bits * k, 8)
    word = T.Cast("int32", weights[column, block, first])
    if 8 % bits:  # an element may span two bytes
        second = tirx.min(first + 1, product.value_bytes - 1)
        high = T.Cast("int32", weights[column, block, second])
        word = tirx.bitwise_or(word, tirx.shift_left(high, tirx.const(8, "int32")))
    shift = T.Cast("int32", tirx.floormod(bits * k, 8))
    return tirx.bitwise_and(tirx.shift_right(word, shift), tirx.const((1 << bits) - 1, "int32"))


def decoded_at(product: BlockedProduct, weights: tirx.Var, column: Index, block: Index, k: Index) -> Expr:
    """Return the decoded weight of element k of a block as float32: (q - zero) scale, or q scale - offset."""
    stored = weight_at(product, weights, column, block, k)
    scale = _shared(product, weights, column, block, product.value_bytes, 0)
    if product.encoding.offsets:
        return T.Cast("float32", stored) * scale - _shared(product, weights, column, block, product.zero_place, 1)
    return T.Cast("float32", stored - T.Cast("int32", weights[column, block, product.zero_place])) * scale


def _shared(product: BlockedProduct, weights: tirx.Var, column: Index, block: Index, place: int, factor: int) -> Expr:
    """Return a scale or an offset as float32, multiplied by the factor that blocks share, if any."""
    value = T.Cast("float32", _number(product.encoding.scales, weights, column, block, place))
    if not product.factors:
        return value
    shared = _number("float16", weights, column, block, product.factor_place + 2 * factor)
    return value * T.Cast("float32", shared)


def _number(kind: str, weights: tirx.Var, column: Index, block: Index, place: int) -> Expr:
    """Return the number of type `kind` at byte `place` of a record."""
    size = element_bytes(kind)
    word = f"uint{8 * size}"
    value: Expr = tirx.const(0, word)
    for byte in range(size):
        part = T.Cast(word, weights[column, block, place + byte])
        value = tirx.bitwise_or(value, tirx.shift_left(part, tirx.const(8 * byte, word)))
    return T.reinterpret(kind, value)


def _product(p: BlockedProduct, b: Mapping[str, tirx.Var]) -> None:
    block = p.encoding.block
    with T.grid(p.rows, p.n) as (row, column):
        T.buffer_store(b["y"], tirx.const(0.0, "float32"), [row, column])
        with T.serial(0, p.k) as k:
            at, within = tirx.floordiv(k, block), tirx.floormod(k, block)
            value = decoded_at(p, b["weights"], column, at, within)
            x = b["x"][row, k]
            if p.activations == "int8":
                x = T.Cast("float32", x) * b["scales"][row, at]
            T.buffer_store(b["y"], b["y"][row, column] + x * value, [row, column])


def _table_rows(t: TableRows, b: Mapping[str, tirx.Var]) -> None:
    product, block = t.product, t.encoding.block
    with T.grid(t.rows, t.k) as (row, k):
        column = b["places"][row]
        value = decoded_at(product, b["weights"], column, tirx.floordiv(k, block), tirx.floormod(k, block))
        T.buffer_store(b["y"], value, [row, k])


def _append(a: CacheAppend, b: Mapping[str, tirx.Var]) -> None:
    with T.grid(a.batch, a.groups, a.every, a.width) as (batch, group, row, e):
        own = tirx.Cast("int64", row) - tirx.Cast("int64", b["before"][batch])
        # If the result shares the memory of the past rows, they stay in place and only rows that are not new are read.
        old = tirx.if_then_else(row < a.room, b["past"][batch, group, row, e], tirx.const(0.0, "float32"))
        is_new = tirx.And(own >= 0, own < a.length)
        T.buffer_store(
            b["present"], tirx.if_then_else(is_new, b["new"][batch, own, group, e], old), [batch, group, row, e]
        )


def _attention(a: CachedAttention, b: Mapping[str, tirx.Var]) -> None:
    scores = T.alloc_buffer((tirx.max(a.every, 1),), "float32")
    largest, total = T.alloc_buffer((1,), "float32"), T.alloc_buffer((1,), "float32")
    zero = tirx.const(0.0, "float32")
    with T.grid(a.batch, a.length, a.heads) as (batch, i, head):
        group = tirx.floordiv(head, a.shared)
        end = tirx.min(T.Cast("int64", b["before"][batch]) + i + 1, a.every)
        first = tirx.max(end - a.window, 0) if a.window else tirx.const(0, "int64")
        T.buffer_store(largest, tirx.const(-3.0e38, "float32"), [0])
        T.buffer_store(total, zero, [0])
        with T.serial(0, end - first) as turn:
            T.buffer_store(scores, zero, [first + turn])
            with T.serial(0, a.width) as e:
                product = b["q"][batch, i, head, e] * b["keys"][batch, group, first + turn, e]
                T.buffer_store(scores, scores[first + turn] + product, [first + turn])
            T.buffer_store(scores, final_score(a, scores[first + turn]), [first + turn])
            T.buffer_store(largest, tirx.max(largest[0], scores[first + turn]), [0])
        with T.serial(0, end - first) as turn:
            T.buffer_store(scores, tirx.exp(scores[first + turn] - largest[0]), [first + turn])
            T.buffer_store(total, total[0] + scores[first + turn], [0])
        with T.serial(0, a.width) as e:
            at = [batch, i, head * a.width + e]
            T.buffer_store(b["y"], zero, at)
            with T.serial(0, end - first) as turn:
                weight = scores[first + turn] / total[0]
                T.buffer_store(b["y"], b["y"][tuple(at)] + weight * b["values"][batch, group, first + turn, e], at)


def final_score(a: CachedAttention, product: Expr) -> Expr:
    """Return the score for the product of a query and a key."""
    kind = str(product.ty)
    scaled = product * like(a.scale, kind)
    return like(a.softcap, kind) * tirx.tanh(scaled * like(1 / a.softcap, kind)) if a.softcap else scaled


def _rows(r: BlockRows, b: Mapping[str, tirx.Var]) -> None:
    with T.grid(r.rows, r.blocks) as (row, block):
        start = block * r.block
        count = tirx.min(r.block, r.k - start)
        largest = T.alloc_buffer((1,), "int32")
        T.buffer_store(largest, 0, [0])
        with T.serial(0, count) as k:
            T.buffer_store(largest, tirx.max(largest[0], magnitude(b["x"][row, start + k])), [0])
        T.buffer_store(b["scales"], scale_of(largest[0], r.to), [row, block])
        T.buffer_store(b["sums"], 0, [row, block])
        with T.serial(0, count) as k:
            factors = raised_by(largest[0]), inverse_of(largest[0], r.to)
            value = quantised(b["x"][row, start + k], *factors, r.to)
            T.buffer_store(b["x_blocks"], T.Cast("int8", value), [row, start + k])
            T.buffer_store(b["sums"], b["sums"][row, block] + value, [row, block])
        with T.serial(0, r.block - count) as k:
            T.buffer_store(b["x_blocks"], tirx.const(0, "int8"), [row, start + count + k])


# ---- one block of a row: values or vectors of them -------------------------------------------------------------------


def magnitude(x: Expr) -> Expr:
    """Return the bits of |x|: integers that compare as the floats do, with infinity and NaN above all others."""
    kind = str(x.ty).replace("float", "int")
    return tirx.bitwise_and(T.reinterpret(kind, x), like(0x7FFFFFFF, kind))


def scale_of(largest: Expr, to: str) -> Expr:
    """Return the scale of a block for elements of type `to`, given its largest magnitude(). Subnormal scales are
    rounded up, so that no quotient by them exceeds LARGEST."""
    return T.reinterpret("float32", largest) * tirx.const(1 / LARGEST[to], "float32") + tirx.const(2.0**-149, "float32")


def raised_by(largest: Expr) -> Expr:
    """Return the factor by which elements of such a block are multiplied first: 2^64 for small elements, whose scale
    may have an infinite reciprocal."""
    small = largest < 0x21800000  # 2^-60
    return tirx.Select(small, tirx.const(2.0**64, "float32"), tirx.const(1.0, "float32"))


def inverse_of(largest: Expr, to: str) -> Expr:
    """Return the factor by which elements of such a block are multiplied after that, 0 if the block is not finite."""
    finite = largest < 0x7F800000
    scale = tirx.Select(finite, scale_of(largest, to) * raised_by(largest), tirx.const(1.0, "float32"))
    return tirx.Select(finite, tirx.const(1.0, "float32") / scale, tirx.const(0.0, "float32"))


def quantised(x: Expr, raised: Expr, inverse: Expr, to: str) -> Expr:
    """Return elements, multiplied by both factors, as int32 of at most LARGEST in magnitude."""
    kind = str(x.ty)
    value = tirx.nearbyint(x * raised * inverse)
    # The bound is the first operand: the minimum of it and a NaN is the bound.
    value = tirx.max(tirx.min(value, like(LARGEST[to], kind)), like(-LARGEST[to], kind))
    return T.Cast(kind.replace("float", "int"), value)


def like(value: float, kind: str) -> Expr:
    """Return a constant of a scalar or vector type."""
    scalar, _, lanes = kind.partition("x")
    return T.broadcast(tirx.const(value, scalar), int(lanes)) if lanes else tirx.const(value, scalar)
