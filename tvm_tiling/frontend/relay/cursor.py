"""A position in the tokens of Relay text, and the parsing shared by all constructs: marks, types, attribute values."""

from __future__ import annotations

import re
from typing import Any, Protocol

from ...errors import ModelFormatError
from .lexer import Words
from .scalars import attribute_number
from .tree import Type
from .types_text import parse_type

# The source of a node noted by the importer of the model, after the type: its name on line 0, where the text parser
# notes line numbers.
_SPAN = re.compile(r"\sspan=(.+):0:0\s*$", re.DOTALL)
MAX_DEPTH = 150  # of nested expressions, and of nested lists


class Meta(Protocol):
    """The value of a reference to the metadata: an array, a plain value, or None if there is none; for an operator
    `op`, its attributes by name."""

    def __call__(self, kind: str, number: int, op: str = ..., /) -> Any: ...


class Cursor:
    """Reads tokens one after the other. ModelFormatError names the line of the error."""

    def __init__(self, words: Words, meta: Meta) -> None:
        self.words = words
        self.kinds = words.kinds
        self.texts = words.words
        self.meta = meta
        self.at = 0
        self.node = ""
        self.types: dict[str, Type] = {}

    def line(self) -> int:
        return self.words.line(self.words.places[self.at])

    def fail(self, wanted: str) -> ModelFormatError:
        return ModelFormatError(f"line {self.line()}: unexpected {self.texts[self.at][:40]!r}; expected {wanted}")

    def sees(self, *texts: str) -> bool:
        return self.texts[self.at] in texts and self.kinds[self.at] in ("mark", "word")

    def take(self, text: str) -> bool:
        if self.sees(text):
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise self.fail(repr(text))

    def word(self, kind: str, wanted: str) -> str:
        if self.kinds[self.at] != kind:
            raise self.fail(wanted)
        self.at += 1
        return self.texts[self.at - 1]

    def stated(self) -> Type | None:
        """The type stated by a comment at this position, if any. A node name in the same comment is in `node` until the
        next call."""
        self.node = ""
        if self.kinds[self.at] != "type":
            return None
        text = self.texts[self.at]
        self.at += 1
        if "span=" in text and (span := _SPAN.search(text)) is not None:
            self.node, text = span[1], text[: span.start()]
        found = self.types.get(text)
        if found is None:
            try:
                found = self.types[text] = parse_type(text)[0]
            except ModelFormatError as error:
                raise ModelFormatError(f"line {self.words.line(self.words.places[self.at - 1])}: {error}") from None
        return found

    def written_type(self) -> Type:
        """A type that is part of the program."""
        try:
            found, end = parse_type(self.words.text, self.words.places[self.at])
        except ModelFormatError as error:
            raise ModelFormatError(f"line {self.line()}: {error}") from None
        self.at = self.words.after(end, self.at)
        return found

    def comma(self, closing: str) -> None:
        """Accept a comma, unless the list ends here."""
        if not self.take(",") and not self.sees(closing):
            raise self.fail(f"',' or {closing!r}")

    def attribute(self, depth: int) -> Any:
        """The value of an attribute as a plain Python value."""
        kind, text = self.kinds[self.at], self.texts[self.at]
        if depth > MAX_DEPTH:
            raise self.fail("lists of less depth")
        if text == "meta":
            return self.meta(*self.reference())
        self.at += 1
        if kind == "number":
            try:
                return attribute_number(text)
            except ValueError:
                raise ModelFormatError(f"line {self.line()}: {text[:40]!r} is not a number") from None
        if kind == "string":
            return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        if kind == "word":
            return {"True": True, "False": False, "None": None, "nullptr": None}.get(text, text)
        if text in "[(" and kind == "mark":
            closing = "]" if text == "[" else ")"
            if closing == ")" and self.kinds[self.at] == "word" and self.texts[self.at + 1] == ")":
                return self.cast_attribute(depth)
            values = []
            while not self.take(closing):
                values.append(self.attribute(depth + 1))
                self.comma(closing)
            return values
        self.at -= 1
        raise self.fail("the value of an attribute")

    def cast_attribute(self, depth: int) -> Any:
        """A value after its type, such as (int64)3, or (nullptr)."""
        name = self.word("word", "a type")
        self.need(")")
        return None if name == "nullptr" else self.attribute(depth + 1)

    def reference(self) -> tuple[str, int]:
        """Parse meta[kind][number]."""
        self.need("meta")
        self.need("[")
        kind = self.word("word", "a kind of metadata, such as relay.Constant")
        self.need("]")
        self.need("[")
        number = self.word("number", "a number")
        self.need("]")
        if not number.isdigit():
            raise ModelFormatError(
                f"line {self.line()}: meta[{kind}][{number}] is not a reference; expected numbers from 0"
            )
        return kind, int(number)
