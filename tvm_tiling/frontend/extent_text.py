"""Extents as text, as exporters write them for dynamic dimensions: "batch", "past + 1", "2*a", "floor(s/2)"."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from ..sizes import Extent, Named, Operation, evaluated, names_of

_LONGEST = 256  # characters
_DEEPEST = 32  # of parentheses and calls
_TOKEN = re.compile(r"\s*(//|[+\-*%/(),]|\d{1,10}|[^\W\d][\w.]*)")
_CALLS = {"min": "min", "Min": "min", "max": "max", "Max": "max", "floor": "floor"}


class _NoExtentError(ValueError):
    """The text is not an arithmetic expression of sizes."""


def read_extent(text: str, known: Collection[str]) -> Extent | None:
    """Return the arithmetic expression of `known` sizes that a text represents, or None."""
    if len(text) > _LONGEST:
        return None
    try:
        found = _Reader(text).whole()
    except _NoExtentError:
        return None
    names = set(names_of([found]))
    if isinstance(found, Named) or not names or not names <= set(known):
        return None
    return found if not _divides_by_nothing(found) else None


def _divides_by_nothing(extent: Extent) -> bool:
    """Return whether a divisor is not a positive number."""
    if not isinstance(extent, Operation):
        return False
    if extent.symbol in ("//", "%") and (list(names_of([extent.right])) or evaluated(extent.right, {}) <= 0):
        return True
    return _divides_by_nothing(extent.left) or _divides_by_nothing(extent.right)


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.place = self.depth = 0
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _NoExtentError
            self.tokens.append(found[1])
            at = found.end()

    def whole(self) -> Extent:
        found = self.sum()
        if self.place < len(self.tokens):
            raise _NoExtentError
        return found

    def next(self) -> str:
        self.place += 1
        if self.place > len(self.tokens):
            raise _NoExtentError
        return self.tokens[self.place - 1]

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def chain(self, part: Callable[[], Extent], symbols: tuple[str, ...]) -> Extent:
        found = part()
        while self.peek() in symbols:
            symbol = self.next()
            found = _joined(symbol, found, part())
        return found

    def sum(self) -> Extent:
        return self.chain(self.product, ("+", "-"))

    def product(self) -> Extent:
        return self.chain(self.unit, ("*", "//", "%"))

    def unit(self) -> Extent:
        self.depth += 1
        token = self.next()
        if self.depth > _DEEPEST:
            raise _NoExtentError
        if token == "(":
            found = self.sum()
            self.close()
        elif token == "-":
            found = _joined("*", -1, self.unit())
        elif token.isdigit():
            found = int(token)
        elif token in _CALLS and self.peek() == "(":
            found = self.call(_CALLS[token])
        elif token[0].isalpha() or token[0] == "_":
            found = Named(token)
        else:
            raise _NoExtentError
        self.depth -= 1
        return found

    def call(self, name: str) -> Extent:
        self.next()
        found = self.sum()
        if name == "floor":
            # The only place where "/" is known to round down.
            if self.peek() == "/":
                self.next()
                found = _joined("//", found, self.unit())
        else:
            while self.peek() == ",":
                self.next()
                found = _joined(name, found, self.sum())
        self.close()
        return found

    def close(self) -> None:
        if self.next() != ")":
            raise _NoExtentError


def _joined(symbol: str, left: Extent, right: Extent) -> Extent:
    found = Operation(symbol, left, right)
    if isinstance(left, int) and isinstance(right, int):
        if symbol in ("//", "%") and right == 0:
            raise _NoExtentError
        return evaluated(found, {})
    return found
