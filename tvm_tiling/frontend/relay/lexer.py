"""The words of Relay's text form."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from ...errors import ModelFormatError

# Names of variables may hold dots, slashes, dashes and colons, as other frameworks name things.
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
    """Words with their kinds and places. Space and comments are left out, but for those that state a type."""

    text: str
    kinds: list[str]
    words: list[str]
    places: list[int]
    _lines: list[int]

    def line(self, place: int) -> int:
        """The line of a place in the text, from 1."""
        return bisect_right(self._lines, place) + 1

    def after(self, place: int, start: int) -> int:
        """The first word from number `start` on that does not begin before `place`."""
        while self.places[start] < place:
            start += 1
        return start


def split(text: str) -> Words:
    """The words of `text`, with some of kind "end" behind them. ModelFormatError says where something is no word."""
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
                f"line {line}: {text[at : at + 20]!r} is not Relay; accepted: what mod.astext() gives"
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
    # Three, as the parser looks two words ahead.
    kinds += ["end"] * 3
    words += ["the end of the text"] * 3
    places += [end] * 3
    return Words(text, kinds, words, places, lines)
