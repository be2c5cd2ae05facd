"""Winograd's transforms in TIR: T X T' of a square of vectors, by the steps of a LinearProgram (decide/cook_toom.py).

The columns first, then the rows of what comes out, all of it as straight-line code on vectors of channels. Of more
vectors than there are registers LLVM keeps some on the stack; it chooses those better than a loop over rows would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.cook_toom import LinearProgram
from .registers import register

Expr: TypeAlias = tirx.Expr
# A vector by its lanes: lane -> float, for use in a vectorised loop.
Vector: TypeAlias = Callable[[Expr], Expr]
DTYPE = "float32"


def transform(program: LinearProgram, vectors: Sequence[Vector], width: int) -> list[Vector]:
    """The outputs of `program` for vectors of `width` lanes, each in a register."""
    known = [_in_register(vector, width) for vector in vectors]
    for step in program.steps:
        terms = [(factor, known[at]) for factor, at in step]
        known.append(_in_register(_sum_of(terms), width))
    return [known[at] for at in program.outputs]


def transform_square(
    program: LinearProgram,
    width: int,
    read: Callable[[int, int, Expr], Expr],
    write: Callable[[int, int, Vector], None],
) -> None:
    """T X T' of a square X of vectors of `width` lanes, whose floats are read(row, column, lane).

    write(row, column, vector) stores one vector of the result.
    """
    size = program.inputs
    columns = [
        transform(program, [_element(read, row, column) for row in range(size)], width) for column in range(size)
    ]
    for row in range(len(program.outputs)):
        for column, vector in enumerate(transform(program, [c[row] for c in columns], width)):
            write(row, column, vector)


def _element(read: Callable[[int, int, Expr], Expr], row: int, column: int) -> Vector:
    return lambda lane: read(row, column, lane)


def _in_register(vector: Vector, width: int) -> Vector:
    held = register(width, DTYPE)
    with T.vectorized(0, width) as lane:
        T.buffer_store(held, vector(lane), [lane])
    return lambda lane: held[lane]


def _sum_of(terms: Sequence[tuple[Fraction, Vector]]) -> Vector:
    def value(lane: Expr) -> Expr:
        (factor, first), *rest = terms
        total = first(lane) if factor == 1 else first(lane) * _const(factor)
        for factor, vector in rest:
            if abs(factor) == 1:
                total = total + vector(lane) if factor > 0 else total - vector(lane)
            else:
                total = total + vector(lane) * _const(factor)
        return total

    return value


def _const(factor: Fraction) -> Expr:
    return tirx.const(float(factor), DTYPE)
