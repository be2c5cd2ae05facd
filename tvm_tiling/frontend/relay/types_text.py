"""Types in the text form: Tensor[(1, 3), float32], (A, B), float32, fn (A) -> B."""

from __future__ import annotations

import functools
import re

from ...errors import ModelFormatError
from ...limits import MAX_EXTENT
from .tree import OtherType, TensorType, TupleType, Type

MAX_DEPTH = 64  # nesting of types

_SPACE = re.compile(r"\s*")
_TENSOR = re.compile(r"Tensor\[\s*\(([^()]*)\)\s*,\s*([A-Za-z]\w*)\s*\]")
_SCALAR = re.compile(r"(?:(?:int|uint|float|bfloat)\d+|bool)\b(?!\s*\[)")
_EXTENT = re.compile(r"(\d{1,19})(?:i\d+)?$")
_OTHER = re.compile(r"[A-Za-z_][\w.]*(?:\[[^\]\n]*\])*")


def parse_type(text: str, start: int = 0, depth: int = 0) -> tuple[Type, int]:
    """The type that begins at `start`, and its end. Raises ModelFormatError if none begins there."""
    if depth > MAX_DEPTH:
        raise ModelFormatError(f"types are nested more than {MAX_DEPTH} deep")
    at = _skip(text, start)
    if found := _TENSOR.match(text, at):
        return TensorType(_extents(found.group(1)), found.group(2)), found.end()
    if found := _SCALAR.match(text, at):
        return TensorType((), found.group()), found.end()
    if text.startswith("(", at):
        fields, at = _fields(text, at + 1, depth)
        return TupleType(tuple(fields)), at
    if re.compile(r"fn\b").match(text, at):
        return _function(text, at + 2, depth)
    if found := _OTHER.match(text, at):
        return OtherType(found.group()), found.end()
    raise ModelFormatError(f"{text[at : at + 20]!r} is not a type")


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _fields(text: str, at: int, depth: int) -> tuple[list[Type], int]:
    """Types up to the closing parenthesis, and the position after it."""
    fields: list[Type] = []
    while True:
        at = _skip(text, at)
        if text.startswith(")", at):
            return fields, at + 1
        kind, at = parse_type(text, at, depth + 1)
        fields.append(kind)
        at = _skip(text, at)
        if text.startswith(",", at):
            at += 1
        elif not text.startswith(")", at):
            raise ModelFormatError(f"{text[at : at + 20]!r} is unexpected within a type")


def _function(text: str, at: int, depth: int) -> tuple[Type, int]:
    at = _skip(text, at)
    if text.startswith("[", at):
        at = _skip(text, text.find("]", at) + 1)
    if not text.startswith("(", at):
        raise ModelFormatError("fn without parameters is not a type")
    _, at = _fields(text, at + 1, depth)
    after = _skip(text, at)
    if text.startswith("->", after):
        _, at = parse_type(text, after + 2, depth + 1)
    return OtherType("a function"), at


@functools.lru_cache(maxsize=4096)
def _extents(text: str) -> tuple[int | None, ...]:
    parts = [part.strip() for part in text.split(",")]
    if parts and not parts[-1]:
        parts.pop()
    return tuple(_extent(part) for part in parts)


def _extent(part: str) -> int | None:
    """A size; None if it is known only at run time."""
    found = _EXTENT.match(part)
    if found is None:
        if not part or part[0] == "-":
            raise ModelFormatError(f"{part!r} is not the size of a dimension")
        return None
    return checked_extent(int(found.group(1)))


def checked_extent(extent: int) -> int:
    """Return `extent` if it is a valid dimension. Raises ModelFormatError."""
    if not 0 <= extent <= MAX_EXTENT:
        raise ModelFormatError(f"a dimension is {extent}; expected 0 to {MAX_EXTENT}")
    return extent
