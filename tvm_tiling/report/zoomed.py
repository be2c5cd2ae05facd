"""Timelines as data for zoom.js, which draws them with zooming: rows of spans that do not overlap."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .markup import Html

WHOLE = 8
"""The strongest shade of a span."""


class Span(NamedTuple):
    """`start` and `length` in the timeline's own units, `name`: an index into the names; `shade` out of WHOLE."""

    start: int
    length: int
    name: int = 0
    shade: int = WHOLE


class ZoomRow(NamedTuple):
    """Spans ordered by time. `color`: one colour for all of them; `colors`: one for each name."""

    name: str
    spans: Sequence[Span]
    color: int = 0
    colors: Sequence[int] | None = None


class Names:
    """Assigns numbers to names; the empty name is 0."""

    def __init__(self) -> None:
        self._numbers = {"": 0}

    def number(self, name: str) -> int:
        """Return the number of a name."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def all(self) -> list[str]:
        """Return the names in the order of their numbers."""
        return list(self._numbers)


def zoom_data(title: str, end: int, rows: Sequence[ZoomRow], names: Names, *, unit: str, factor: float) -> Html:
    """Return the data to embed in a figure next to a drawing of class "static". `end` of the timeline, in the spans'
    units, each of which is `factor` of `unit`."""
    data = {
        "title": title,
        "end": end,
        "least": min(end, 10),  # shown by a window
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
    """Distribute spans over the smallest number of rows in which they do not overlap."""
    found: list[list[Span]] = []
    for span in sorted(spans):
        row = next((row for row in found if row[-1].start + row[-1].length <= span.start), None)
        if row is None:
            found.append([span])
        else:
            row.append(span)
    return found
