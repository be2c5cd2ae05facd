"""HTML pages: head, sections, tables, tiles with key figures, and collapsible parts."""

from __future__ import annotations

import functools
import importlib.resources
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..atomic_file import atomic_file
from ..figures import count
from .glossary import explained, glossary
from .markup import Child, Html, join, tag

SCRIPTS = ("report.js", "zoom.js")


class Section(NamedTuple):
    """A section with its own heading, omitted if its body is empty."""

    title: str
    body: Html | None


class Tile(NamedTuple):
    """A key figure with its caption."""

    label: str
    value: str
    more: str = ""


class Cell(NamedTuple):
    """A table cell with a class of style.css or a tooltip."""

    content: str | int | float
    kind: str = ""
    hover: str = ""


def page(
    title: str,
    notes: Sequence[str],
    tiles: Sequence[Tile],
    sections: Sequence[Section],
    doubts: Sequence[str] = (),
) -> str:
    """Return the whole page. `notes`: lines below the title. `doubts`: reasons why figures are unreliable, in a banner
    at the top."""
    shown = [section for section in sections if section.body]
    figures = _tiles(tiles) if tiles else None
    terms = glossary(join([figures, *(section.body for section in shown)]))
    if terms is not None:
        shown.append(Section("Glossary", terms))
    named = [(_anchor(section.title), section) for section in shown]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(_style())),
    )
    places = [tag("a", section.title, href=f"#{anchor}") for anchor, section in named]
    body = tag(
        "body",
        tag("div", *(tag("p", doubt) for doubt in doubts), class_="banner", role="note") if doubts else None,
        tag("h1", title),
        *(tag("p", note, class_="faint") for note in notes),
        figures,
        tag("nav", *places, aria_label="Contents") if len(places) > 1 else None,
        *(join([tag("h2", section.title, id=anchor), section.body]) for anchor, section in named),
        *(tag("script", Html(_text(name))) for name in SCRIPTS),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Write a page to `path` atomically. Raises OSError if it cannot be written."""
    with atomic_file(path) as file:
        file.write(text.encode())


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table, which may be wider than the page, with numeric columns aligned to the right.

    A column is numeric if every nonempty cell is a number, with or without a unit, or a dash. Values that are not Cells
    are formatted by str(), integers with grouped digits, None as an empty cell.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(_content(cell)) for cell in row] for row in rows]
    figures = [
        bool(cells) and all(_FIGURE.match(str(row[place].content)) for row in cells) for place in range(len(headings))
    ]
    head = [
        tag("th", explained(heading), scope="col", class_="n" if right else None)
        for heading, right in zip(headings, figures, strict=True)
    ]
    body = [
        tag("tr", *(_cell(cell, heading, right) for cell, heading, right in zip(row, headings, figures, strict=True)))
        for row in cells
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), class_="data")
    label = f"Table: {', '.join(headings[:3])}"
    return tag("div", tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=label), class_="table")


def _content(value: object) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    return value if isinstance(value, (str, int, float)) else str(value)


_FIGURE = re.compile(r"^(–|[-−+±]?[\d.,\u202f]+(e[-+]?\d+)?( ?[%×]| ?[A-Za-zµ/]{1,6})?)?$")


def _cell(cell: Cell, heading: str, right: bool) -> Html:
    kinds = [cell.kind, "n" if right else "why" if heading == "reason" else ""]
    return tag("td", cell.content, class_=" ".join(filter(None, kinds)) or None, title=cell.hover or None)


def folded(summary: Child, body: Html) -> Html:
    """A collapsible part that shows its first line until it is expanded; expanded in print."""
    return tag("details", tag("summary", summary), body)


def side_by_side(*plots: Html | None) -> Html:
    """Plots in as many columns as fit."""
    return tag("div", *plots, class_="plots")


def numbered(items: Sequence[str]) -> Html:
    """A numbered list."""
    return tag("ol", *(tag("li", item) for item in items), class_="advice")


def text(*sentences: str) -> Html:
    """A paragraph."""
    return tag("p", " ".join(filter(None, sentences)))


COLORS = 12
"""Colours in style.css; further ones are computed."""
MOST_COLORS = 48


def color(place: int) -> str:
    """Return the class of the `place`-th colour of a drawing."""
    return f"s{place % MOST_COLORS}"


def legend(names: Sequence[str], places: Sequence[int] | None = None) -> Html | None:
    """A legend with the name of each colour; None for a single one. `places`: numbers of the colours, by default in
    order."""
    if len(names) < 2:
        return None
    numbers = range(len(names)) if places is None else places
    shown = (tag("li", name, class_=color(place)) for place, name in zip(numbers, names, strict=True))
    return tag("ul", *shown, class_="legend")


def _tiles(tiles: Sequence[Tile]) -> Html:
    parts = [
        tag(
            "div",
            tag("dt", explained(t.label)),
            tag("dd", t.value),
            tag("dd", t.more, class_="more") if t.more else None,
        )
        for t in tiles
    ]
    return tag("dl", *parts, class_="tiles")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@functools.cache
def _style() -> str:
    # Consecutive hues differ by the golden angle, so that no two are alike.
    further = (f".{color(n)} {{ --own: hsl({n * 137.5 % 360:.0f} 55% 52%); }}" for n in range(COLORS, MOST_COLORS))
    return _text("style.css") + "\n".join(further)


@functools.cache
def _text(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
