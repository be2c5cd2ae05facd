"""A tensor's values checked in one pass, before anything is computed from them."""

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
LEAST_SHARED = 1 << 15  # elements below which threads cost more than they save
SHARES = 16


def constant_value(builder: relax.BlockBuilder, expr: relax.Expr) -> np.ndarray | None:
    """The value of a constant, or of a variable that is bound to one."""
    if isinstance(expr, relax.Var):
        expr = builder.lookup_binding(expr)
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def is_checked(builder: relax.BlockBuilder, values: relax.Expr, attribute: str, key: str) -> bool:
    """Whether `values` come of a kernel with this attribute: they were checked already."""
    call = builder.lookup_binding(values) if isinstance(values, relax.Var) else None
    if not isinstance(call, relax.Call) or call.op != tvm.ir.Op.get("relax.call_tir"):
        return False
    func = builder.get()[call.args[0]]
    return attribute in func.attrs and str(func.attrs[attribute]) == key


@dataclass(frozen=True)
class Verdict:
    """On one value: whether it is wrong, what is kept of it, and the call that refuses it, given its place."""

    is_wrong: tirx.Expr
    kept: tirx.Expr
    refusal: Callable[..., tirx.Expr]


def checked(source: te.Tensor, columns: int, judge: Callable[[Any, int], Verdict], dtype: str, name: str) -> te.Tensor:
    """What is kept of the values of `source`, each judged by its value and its column, the place in the last dimension
    where `columns` are more than 1. One pass without branches, which LLVM vectorises, and a second one that finds what
    to refuse."""
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
            # An error belongs to the thread that raises it, which has to be the caller's.
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
    """A share of a loop nest: number `index` of `count` nearly equal ones of the loop over `dimension`."""

    dimension: int
    index: Any
    count: int


def shares(shape: Sequence[Extent], dimension: int) -> int:
    """In how many shares a nest over `shape` is run, cut along one dimension: 1 for what is too small."""
    fixed = [int(extent) for extent in shape if isinstance(extent, int | tirx.IntImm)]
    if len(fixed) < len(shape) or prod(fixed) < LEAST_SHARED:
        return 1
    return min(fixed[dimension], SHARES)


def in_shares(count: int, dimension: int, emit: Callable[[Part], None]) -> None:
    """emit(part) for every share of a nest, in parallel."""
    if count == 1:
        emit(Part(dimension, tirx.const(0, "int64"), 1))
        return
    with T.parallel(0, tirx.const(count, "int64")) as index:
        emit(Part(dimension, index, count))


@contextmanager
def loops(extents: Sequence[Extent], part: Part | None = None) -> Iterator[list[Any]]:
    """A nest of serial loops, or a share of it; gives their variables."""
    with ExitStack() as stack:
        variables = []
        for dimension, extent in enumerate(extents):
            start, end = 0, extent
            if part is not None and part.count > 1 and dimension == part.dimension:
                start, end = share(int(extent), part.index, part.count)
            variables.append(stack.enter_context(T.serial(start, end)))
        yield variables
