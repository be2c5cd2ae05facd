"""Winograd's transforms in TIR: T X T' of a square of vectors, by the steps of a LinearProgram (decide/cook_toom.py).

The columns are transformed first, into a small square in L1, then its rows. Each is a loop over straight-line code of
one dimension, in which every value is bound to a variable and stays in a register. Both dimensions in one piece are no
faster, since they need more vectors than there are registers, and take TVM and LLVM five times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..decide.conv.cook_toom import LinearProgram
from ..operand_types import HALVES

Expr: TypeAlias = tirx.Expr
DTYPE = "float32"


def transform(program: LinearProgram, values: Sequence[Expr]) -> list[Expr]:
    """Return the outputs of `program`, each bound to a variable."""
    known = [T.Bind(value) for value in values]
    for step in program.steps:
        known.append(T.Bind(_sum([(factor, known[at]) for factor, at in step])))
    return [known[at] for at in program.outputs]


def transform_square(
    program: LinearProgram,
    width: int,
    read: Callable[[int, Expr, Expr], Expr],
    write: Callable[[Expr, int, Expr, Expr], None],
) -> None:
    """Emit T X T' of a square X of vectors of `width` lanes, whose floats are read(row, column, lane).

    write(row, column, lane, value) stores one float of the result. 16-bit values read from memory go through a separate
    register, because TVM does not convert the values of names from bfloat16 to float.
    """
    size = program.inputs
    staged = _reads_halves(read(0, tirx.const(0), tirx.const(0)))
    half = T.alloc_buffer((size * len(program.outputs) * width,), DTYPE)
    kept = T.alloc_buffer((size * width,), DTYPE) if staged else None
    with T.serial(0, size) as column:
        if kept is not None:
            with T.vectorized(0, width) as lane:
                for row in range(size):
                    T.buffer_store(kept, read(row, column, lane), [row * width + lane])
        with T.vectorized(0, width) as lane:
            values = [read(row, column, lane) if kept is None else kept[row * width + lane] for row in range(size)]
            for row, value in enumerate(transform(program, values)):
                T.buffer_store(half, value, [(row * size + column) * width + lane])
    with T.serial(0, len(program.outputs)) as row, T.vectorized(0, width) as lane:
        for column, value in enumerate(
            transform(program, [half[(row * size + c) * width + lane] for c in range(size)])
        ):
            write(row, column, lane, value)


def _reads_halves(value: Expr) -> bool:
    """Return whether a float is computed from 16-bit numbers in memory."""
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(value, (TensorLoad, loads.append))
    return any(str(load.source.dtype) in HALVES for load in loads)


def _sum(terms: Sequence[tuple[Fraction, Expr]]) -> Expr:
    (factor, first), *rest = terms
    total = first if factor == 1 else first * _const(factor)
    for factor, value in rest:
        term = value if abs(factor) == 1 else value * _const(abs(factor))
        total = total + term if factor > 0 else total - term
    return total


def _const(factor: Fraction) -> Expr:
    return tirx.const(float(factor), DTYPE)
