"""Einsum of ONNX with a validated equation: TVM assumes that every letter of the result occurs in an operand.

TVM computes each result as one sum over all other letters: ij,jk,kl->il of n x n matrices takes n^4 products. Three
operands and more are multiplied in pairs, which are matrix multiplications, in the order that NumPy's greedy search
chooses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, tirx, topi
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


class Einsum(tvm_onnx.OnnxOpConverter):
    """Sums of products over the letters that do not occur in the result."""

    @classmethod
    def _impl_v12(cls, bb, inputs, attr, params):
        equation = attr["equation"].decode().replace(" ", "")
        shapes = [_extents(value) for value in inputs]
        _require(equation, shapes)
        operands = list(inputs)
        for pair, part in _pairs(equation, shapes):
            chosen = [operands.pop(place) for place in sorted(pair, reverse=True)]
            operands.append(bb.emit_te(topi.einsum, part, *reversed(chosen)))
        return operands[0]


def _pairs(equation: str, shapes: Sequence[Sequence[Any]]) -> list[tuple[tuple[int, ...], str]]:
    """Return (places of operands, their equation) of each step; its result follows the operands that are left. All
    operands are one step if there are at most two, and if extents are dynamic, broadcast or without letters."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    whole = [(tuple(range(len(terms))), equation)]
    if len(terms) < 3 or "..." in equation:
        return whole
    extents: dict[str, int] = {}
    for letter, extent in (
        pair for term, shape in zip(terms, shapes, strict=True) for pair in zip(term, shape, strict=True)
    ):
        if not isinstance(extent, int) or extents.setdefault(letter, extent) != extent:
            return whole
    if not arrow:
        result = "".join(sorted(letter for letter in extents if left.count(letter) == 1))
    operands = [np.broadcast_to(np.float32(0), [extents[letter] for letter in term]) for term in terms]
    path, _ = np.einsum_path(f"{left}->{result}", *operands, optimize="greedy")
    steps = []
    for pair in path[1:]:
        parts = [terms.pop(place) for place in sorted(pair, reverse=True)][::-1]
        needed = {*result, *"".join(terms)}
        kept = [letter for letter in dict.fromkeys("".join(parts)) if letter in needed]
        shared = [letter for letter in kept if all(letter in part for part in parts)]
        joined = "".join([*shared, *(letter for letter in kept if letter not in shared)]) if terms else result
        terms.append(joined)
        steps.append((tuple(pair), f"{','.join(parts)}->{joined}"))
    return steps


def _extents(value: relax.Expr) -> list[Any]:
    """Return the shape of an operand, with extents known at compile time as integers."""
    return [int(extent) if isinstance(extent, tirx.IntImm) else extent for extent in value.ty.shape]


def _same(a: Any, b: Any) -> bool:
    return a == b if isinstance(a, int) and isinstance(b, int) else bool(tvm_ffi.structural_equal(a, b))


def _require(equation: str, shapes: Sequence[Sequence[Any]]) -> None:
    """Raise ValueError if an equation is invalid or does not match operands of these shapes."""
    left, _, right = equation.partition("->")
    terms = left.split(",")
    if not all(_TERM.fullmatch(term) for term in [*terms, right]):
        raise ValueError(f"equation {equation!r}; expected letters, commas and '...', then '->' and letters")
    if len(terms) != len(shapes):
        raise ValueError(f"equation {equation!r} has {len(terms)} terms; expected {len(shapes)}, one for each input")
    letters = right.replace("...", "")
    if len(set(letters)) < len(letters) or not set(letters) <= set(left) or ("..." in right and "..." not in left):
        raise ValueError(f"equation {equation!r}: expected letters in the result that occur in its terms, each once")
    extents: dict[str, Any] = {}
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, behind = term.partition("...")
        if len(term) - len(dots) > len(shape) or (not dots and len(term) < len(shape)):
            raise ValueError(f"equation {equation!r}: term {term!r} does not match an input of {len(shape)} axes")
        own = zip(before + behind, [*shape[: len(before)], *shape[len(shape) - len(behind) :]], strict=True)
        for letter, extent in own:
            known = extents.setdefault(letter, extent)
            if not any(_same(*pair) for pair in ((extent, known), (extent, 1), (known, 1))):
                raise ValueError(f"equation {equation!r}: {letter!r} is {known} and {extent}; expected the same extent")
            extents[letter] = extent if _same(known, 1) else known


CONVERTERS: dict[str, Any] = {"Einsum": Einsum}
