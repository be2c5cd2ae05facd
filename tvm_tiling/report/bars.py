"""Horizontal bar charts: each bar has one or several parts, a name on its left and a figure on its right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .markup import Html, tag
from .page import color, legend


class Bar(NamedTuple):
    """`parts`: (index of its series, length), from the left; `start` is the left end. `value` is written on the right,
    `hover` is the tooltip."""

    name: str
    parts: Sequence[tuple[int, float]]
    value: str
    start: float = 0.0
    hover: str = ""


def bars(title: str, series: Sequence[str], rows: Sequence[Bar], whole: float | None = None) -> Html:
    """Return bars on a common scale that ends at `whole`, by default at the longest bar."""
    end = whole or max((bar.start + sum(length for _, length in bar.parts) for bar in rows), default=0.0) or 1.0
    return tag(
        "figure", tag("figcaption", title), legend(series), *(_bar(bar, series, end) for bar in rows), class_="bars"
    )


def _bar(bar: Bar, series: Sequence[str], end: float) -> Html:
    parts = [
        tag(
            "span",
            class_=color(number),
            style=f"width:{100 * length / end:.2f}%",
            title=f"{series[number]}: {100 * length / end:.1f}%" if len(series) > 1 else None,
        )
        for number, length in bar.parts
        if length > 0
    ]
    gap = tag("span", class_="gap", style=f"width:{100 * bar.start / end:.2f}%") if bar.start else None
    return tag(
        "div",
        tag("span", bar.name, class_="name"),
        tag("span", gap, *parts, class_="track"),
        tag("span", bar.value, class_="value"),
        class_="bar",
        title=bar.hover or None,
    )
