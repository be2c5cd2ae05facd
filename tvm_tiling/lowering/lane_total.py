"""Reduction of the lanes of vectors of partial results to one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .registers import register

Expr: TypeAlias = tirx.Expr


def lane_total(operation: Callable[[Expr, Expr], Expr], vectors: list[tirx.Var], lanes: int, dtype: str) -> tirx.Var:
    """Return a register of one element: the reduction by `operation`, such as tirx.Add, over every lane of `vectors`,
    which are overwritten.

    Halves are combined until one lane is left; the middle lane of an odd number is added to the first.
    """
    vector = vectors_total(operation, vectors, lanes)
    while lanes > 1:
        half = lanes // 2
        kept = register(half, dtype)
        low, high = (_part(vector, lanes, start, half) for start in (0, lanes - half))
        T.buffer_store(kept, operation(low, high), [_lanes(half)])
        if lanes % 2:
            T.buffer_store(kept, operation(kept[0], _part(vector, lanes, half, 1)), [0])
        vector, lanes = kept, half
    return vector


def vectors_total(operation: Callable[[Expr, Expr], Expr], vectors: list[tirx.Var], lanes: int) -> tirx.Var:
    """Return the first of `vectors` after combining all of them lane by lane by `operation`; the others are
    overwritten."""
    while len(vectors) > 1:
        half = (len(vectors) + 1) // 2
        for a, b in zip(vectors[:half], vectors[half:], strict=False):
            T.buffer_store(a, operation(_all(a, lanes), _all(b, lanes)), [_lanes(lanes)])
        vectors = vectors[:half]
    return vectors[0]


def _part(vector: tirx.Var, lanes: int, start: int, count: int) -> Expr:
    return T.Shuffle([_all(vector, lanes)], list(range(start, start + count)))


def _all(vector: tirx.Var, lanes: int) -> Expr:
    return vector[_lanes(lanes)]


def _lanes(count: int) -> Expr | int:
    return T.ramp(0, 1, count) if count > 1 else 0
