"""Tokens of Relay's text form."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from ...errors import ModelFormatError

# Variable names may contain dots, slashes, dashes and colons, as names in other frameworks do.
_NAME = r"(?:[\w.$|+]|/(?![*/])|-(?!>)|:(?=\d))+"
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<type>/\*\s*ty=(?P<stated>.*?)\*/)
  | (?P<comment>/\*.*?\*/|//[^\n]*)
  | (?P<var>%{_NAME})
  | (?P<global>@{_NAME})
  | (?P<number>-?(?:inff?|nanf?)\b|-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?:[fiu]\d+|f)?)
  | (?P<word>[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)
  | (?P<get>\.\d+)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<version>\#\[\s*version\s*=\s*"[^"\n]*"\s*\]|v\d+\.\d+\.\d+)
  | (?P<mark>->|=>|[-(){{}}\[\],;:=<>?*.])
    """,
    re.VERBOSE | re.DOTALL,
)
_VERSION = re.compile(r"\s*v\d+\.\d+\.\d+")


@dataclass
class Words:
    """Tokens with their kinds and positions. Whitespace and comments are omitted, except comments that state a type."""

    text: str
    kinds: list[str]
    words: list[str]
    places: list[int]
    _lines: list[int]

    def line(self, place: int) -> int:
        """The line of a position in the text, from 1."""
        return bisect_right(self._lines, place) + 1

    def after(self, place: int, start: int) -> int:
        """The first token from number `start` on that does not begin before `place`."""
        while self.places[start] < place:
            start += 1
        return start


def split(text: str) -> Words:
    """The tokens of `text`, followed by tokens of kind "end". Raises ModelFormatError at the position of an invalid
    token."""
    kinds: list[str] = []
    words: list[str] = []
    places: list[int] = []
    at = found.end() if (found := _VERSION.match(text)) else 0
    lines = [newline.start() for newline in re.finditer("\n", text)]
    match = _TOKEN.match
    end = len(text)
    while at < end:
        token = match(text, at)
        if token is None:
            line = bisect_right(lines, at) + 1
            raise ModelFormatError(
                f"line {line}: {text[at : at + 20]!r} is not Relay; expected the output of mod.astext()"
            )
        kind = token.lastgroup
        if kind == "type":
            kinds.append("type")
            words.append(token.group("stated"))
            places.append(at)
        elif kind not in ("space", "comment", "version"):
            kinds.append(kind or "")
            words.append(token.group())
            places.append(at)
        at = token.end()
    # Three, because the parser looks two tokens ahead.
    kinds += ["end"] * 3
    words += ["the end of the text"] * 3
    places += [end] * 3
    return Words(text, kinds, words, places, lines)
