"""Timelines as data for zoom.js, which draws them so that one can zoom in: rows of spans that do not overlap."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .markup import Html

WHOLE = 8
"""The strongest shade of a span."""


class Span(NamedTuple):
    """`start` and `length` in the timeline's own units, `name`: its number among the names; `shade` of WHOLE."""

    start: int
    length: int
    name: int = 0
    shade: int = WHOLE


class ZoomRow(NamedTuple):
    """Spans in order of time. `color`: of all of them; `colors`: of each name."""

    name: str
    spans: Sequence[Span]
    color: int = 0
    colors: Sequence[int] | None = None


class Names:
    """Numbers of names, the empty one's being 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}

    def number(self, name: str) -> int:
        """The same for the same name."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def all(self) -> list[str]:
        """In order of their numbers."""
        return list(self._numbers)


def zoom_data(title: str, end: int, rows: Sequence[ZoomRow], names: Names, *, unit: str, factor: float) -> Html:
    """The data, to stand in a figure beside a drawing of class "static". `end`: of the timeline, in the spans' units,
    each of which is `factor` of `unit`."""
    data = {
        "title": title,
        "end": end,
        "least": min(end, 10),  # that a window shows
        "unit": unit,
        "factor": factor,
        "names": names.all,
        "rows": [
            {
                "name": row.name,
                "color": row.color,
                "colors": None if row.colors is None else list(row.colors),
                "spans": [number for span in row.spans for number in span],
            }
            for row in rows
        ],
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" class="timeline">{text}</script>')


def lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Spans in as few rows as there are at once, so that none overlaps another of its row."""
    found: list[list[Span]] = []
    for span in sorted(spans):
        row = next((row for row in found if row[-1].start + row[-1].length <= span.start), None)
        if row is None:
            found.append([span])
        else:
            row.append(span)
    return found
