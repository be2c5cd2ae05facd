"""Einsum of ONNX with a validated equation: TVM assumes that every letter of the result occurs in an operand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import relax, tirx, topi
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


class Einsum(tvm_onnx.OnnxOpConverter):
    """Sums of products over the letters that do not occur in the result."""

    @classmethod
    def _impl_v12(cls, bb, inputs, attr, params):
        equation = attr["equation"].decode().replace(" ", "")
        _require(equation, [_extents(value) for value in inputs])
        return bb.emit_te(topi.einsum, equation, *inputs)


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
