"""Bytes that instructions read and write: masks, spans and footprints, computed for all instructions of a program at
once.

Every operand is an affine access pattern, so its bytes are runs of equal length at the points of a grid. This module
looks neither at data nor at execution order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..program.isa import INSTRUCTION, OPERANDS, Operand, element_bytes


def extents(instructions: np.ndarray, operand: Operand) -> np.ndarray:
    """Return the loop extents of the operand, int64[instructions, LOOPS]. The c of a copy includes its border."""
    found: np.ndarray = instructions["extent"].astype(np.int64)
    if operand == "c":
        pad = instructions["pad"].astype(np.int64)
        found[:, 1] += pad[:, 0] + pad[:, 1]
        found[:, 2] += pad[:, 2] + pad[:, 3]
    return found


def spans(instructions: np.ndarray, operand: Operand) -> tuple[np.ndarray, np.ndarray]:
    """Return the first byte and one past the last byte of the operand for each instruction, whether the operand is used
    or not."""
    size = element_bytes(instructions, operand)
    steps = (extents(instructions, operand) - 1) * instructions[f"{operand}_stride"] * size[:, None]
    start = instructions[operand]
    return start + np.minimum(steps, 0).sum(axis=1), start + np.maximum(steps, 0).sum(axis=1) + size


@dataclass(frozen=True)
class Footprint:
    """The bytes of an operand relative to its first byte: runs of `run` bytes at all points of the grid `loops`, a
    tuple of (bytes between points, number of points) with the smallest step first."""

    run: int
    loops: tuple[tuple[int, int], ...]


def footprint(extent: tuple[int, ...], stride: tuple[int, ...], element: int) -> Footprint:
    """Return the footprint of loops of `extent` with `stride` (in elements of `element` bytes); adjacent runs are
    merged."""
    steps = sorted((abs(s) * element, e) for e, s in zip(extent, stride, strict=True) if e > 1 and s)
    run = element
    loops: list[tuple[int, int]] = []
    for step, count in steps:
        if not loops and step <= run:
            run += (count - 1) * step
        elif loops and step % loops[-1][0] == 0 and step // loops[-1][0] <= loops[-1][1]:
            # The outer loop revisits the range of the inner one or continues directly after it.
            inner, points = loops[-1]
            loops[-1] = (inner, points + (count - 1) * (step // inner))
        else:
            loops.append((step, count))
    return Footprint(run, tuple(loops))


def footprints(instructions: np.ndarray, operand: Operand) -> tuple[list[Footprint], np.ndarray]:
    """Return the distinct footprints of an operand and, for each instruction, the index of its footprint."""
    keys = np.concatenate(
        [
            extents(instructions, operand),
            instructions[f"{operand}_stride"],
            element_bytes(instructions, operand)[:, None],
        ],
        axis=1,
    )
    distinct, number = _distinct_rows(np.ascontiguousarray(keys, dtype=np.int64))
    loops = INSTRUCTION["extent"].shape[0]
    return [footprint(tuple(row[:loops]), tuple(row[loops:-1]), row[-1]) for row in distinct.tolist()], number


def _distinct_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows of int64[rows, columns] and, for each row, the index of its distinct row.

    Rows are compared by a hash, the sum of their columns times odd numbers modulo 2^64, which sorts a hundred times
    faster than whole rows. If two distinct rows collide, all rows are sorted in full.
    """
    odd = np.random.default_rng(0).integers(1 << 62, size=rows.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    sums = (rows.view(np.uint64) * odd).sum(axis=1, dtype=np.uint64)
    _, first, number = np.unique(sums, return_index=True, return_inverse=True)
    distinct = rows[first]
    if not (distinct[number] == rows).all():
        distinct, number = np.unique(rows, axis=0, return_inverse=True)
    return distinct, number.reshape(-1)


@dataclass(frozen=True)
class Walk:
    """The bytes that an operand of each instruction touches, whether used or not: bytes `low` .. `high` of its memory,
    or more precisely its footprint `forms[form]` starting at `low`."""

    low: np.ndarray
    high: np.ndarray
    form: np.ndarray
    forms: list[Footprint]


def walk(instructions: np.ndarray, operand: Operand) -> Walk:
    """Return the access pattern of an operand over all instructions of an INSTRUCTION array."""
    forms, form = footprints(instructions, operand)
    return Walk(*spans(instructions, operand), form, forms)


def walks(instructions: np.ndarray) -> dict[Operand, Walk]:
    """Return the access patterns of all operands, to be shared by several analyses of one program."""
    return {operand: walk(instructions, operand) for operand in OPERANDS}


def under(marks: np.ndarray, place: int, form: Footprint) -> np.ndarray:
    """Return a view of the elements of a flat array of marks that a footprint starting at `place` covers. The array has
    one mark per byte, or per larger piece if `form` is counted in pieces; the run is the last dimension of the view."""
    if not form.loops:
        return marks[place : place + form.run]
    shape = (*(count for _, count in reversed(form.loops)), form.run)
    strides = (*(step * marks.itemsize for step, _ in reversed(form.loops)), marks.itemsize)
    return np.ndarray(shape, marks.dtype, marks, place * marks.itemsize, strides)
