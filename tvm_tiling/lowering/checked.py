"""Validates a tensor's values in one pass before anything is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .loops import share, when

Extent: TypeAlias = int | tirx.Expr
LEAST_SHARED = 1 << 15  # smaller tensors are not worth the start of threads
SHARES = 16


def constant_value(builder: relax.BlockBuilder, expr: relax.Expr) -> np.ndarray | None:
    """Return the value of a constant or of a variable bound to one; None for others."""
    if isinstance(expr, relax.Var):
        expr = builder.lookup_binding(expr)
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def is_checked(builder: relax.BlockBuilder, values: relax.Expr, attribute: str, key: str) -> bool:
    """Return whether `values` come from a kernel with this attribute, so that they have been checked already."""
    call = builder.lookup_binding(values) if isinstance(values, relax.Var) else None
    if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.call_tir"):
        return False
    func = builder.get()[call.args[0]]
    return attribute in func.attrs and str(func.attrs[attribute]) == key


@dataclass(frozen=True)
class Verdict:
    """The verdict on one value: whether it is invalid, the value to keep, and the call that reports it, given its
    position."""

    is_wrong: tirx.Expr
    kept: tirx.Expr
    refusal: Callable[..., tirx.Expr]


def checked(source: te.Tensor, columns: int, judge: Callable[[Any, int], Verdict], dtype: str, name: str) -> te.Tensor:
    """Return the values to keep of `source`, each judged by its value and its column: the index in the last dimension
    if `columns` exceeds 1. One branch-free pass, which LLVM vectorises, and a second pass that reports errors."""
    outer = source.shape if columns == 1 else source.shape[:-1]
    parts = shares(source.shape, 0) if len(outer) else 1

    def emit(given: tirx.Buffer, result: tirx.Buffer) -> tirx.Stmt:
        def each(visit: Callable[[list[Any], Verdict], None], part: Part | None = None) -> None:
            with loops(outer, part) as at:
                for column in range(columns):
                    place = [*at, column] if columns > 1 else at
                    visit(place, judge(tirx.BufferLoad(given, place), column))

        def share_of(part: Part, is_any: tirx.Buffer) -> None:
            is_wrong = T.alloc_buffer((1,), "int32", scope="local")
            T.buffer_store(is_wrong, 0, [0])

            def keep(at: list[Any], verdict: Verdict) -> None:
                T.buffer_store(is_wrong, tirx.bitwise_or(is_wrong[0], tirx.Cast("int32", verdict.is_wrong)), [0])
                T.buffer_store(result, verdict.kept, at)

            each(keep, part)
            T.buffer_store(is_any, is_wrong[0], [part.index])

        def refuse(at: list[Any], verdict: Verdict) -> None:
            with when(verdict.is_wrong):
                T.evaluate(verdict.refusal(*[tirx.Cast("int64", place) for place in at]))

        with IRBuilder() as builder, T.seq_scope():
            is_any = T.alloc_buffer((parts,), "int32", scope="global")
            in_shares(parts, 0, lambda part: share_of(part, is_any))
            # An error is recorded for the thread that raises it, so the calling thread must raise it.
            with T.serial(0, parts) as part, when(is_any[part] != 0):
                each(refuse)
        return builder.get()

    return te.extern(
        [source.shape],
        [source],
        lambda inputs, outputs: emit(inputs[0], outputs[0]),
        dtype=dtype,
        out_buffers=[tirx.decl_buffer(source.shape, dtype, name, layout=None)],
        name=name,
    )


@dataclass(frozen=True)
class Part:
    """One of `count` nearly equal shares of a loop nest, with number `index`, divided along `dimension`."""

    dimension: int
    index: Any
    count: int


def shares(shape: Sequence[Extent], dimension: int) -> int:
    """Return into how many shares a loop nest over `shape` is divided along one dimension; 1 if it is too small."""
    fixed = [int(extent) for extent in shape if isinstance(extent, int | tirx.IntImm)]
    if len(fixed) < len(shape) or prod(fixed) < LEAST_SHARED:
        return 1
    return min(fixed[dimension], SHARES)


def in_shares(count: int, dimension: int, emit: Callable[[Part], None]) -> None:
    """Call emit(part) for every share of a loop nest, in parallel."""
    if count == 1:
        emit(Part(dimension, tirx.const(0, "int64"), 1))
        return
    with T.parallel(0, tirx.const(count, "int64")) as index:
        emit(Part(dimension, index, count))


@contextmanager
def loops(extents: Sequence[Extent], part: Part | None = None) -> Iterator[list[Any]]:
    """Open a nest of serial loops, or a share of it; yields the loop variables."""
    with ExitStack() as stack:
        variables = []
        for dimension, extent in enumerate(extents):
            start, end = 0, extent
            if part is not None and part.count > 1 and dimension == part.dimension:
                start, end = share(int(extent), part.index, part.count)
            variables.append(stack.enter_context(T.serial(start, end)))
        yield variables
