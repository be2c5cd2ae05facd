"""A page: its head, its sections, tables, figures in tiles, and what is folded away."""

from __future__ import annotations

import functools
import importlib.resources
import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..atomic_file import atomic_file
from .markup import Child, Html, join, tag


class Section(NamedTuple):
    """A part of a page under a heading of its own; without a body it is left out."""

    title: str
    body: Html | None


class Tile(NamedTuple):
    """A figure that stands out, and what belongs to it."""

    label: str
    value: str
    more: str = ""


class Cell(NamedTuple):
    """A cell of a table that has a class of style.css, or says more when it is pointed at."""

    content: str | int | float
    kind: str = ""
    hover: str = ""


def page(title: str, notes: Sequence[str], tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    """The whole page. `notes`: lines below the title."""
    named = [(_anchor(section.title), section) for section in sections if section.body]
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
        tag("h1", title),
        *(tag("p", note, class_="faint") for note in notes),
        _tiles(tiles) if tiles else None,
        tag("nav", *places, aria_label="Contents") if len(places) > 1 else None,
        *(join([tag("h2", section.title, id=anchor), section.body]) for anchor, section in named),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def write_page(path: str | os.PathLike[str], text: str) -> None:
    """Put a page at `path`, whole or not at all; OSError says why it cannot be written."""
    with atomic_file(path) as file:
        file.write(text.encode())


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """A table, wider than the page if need be, whose columns of figures stand to the right.

    A column is one of figures if every cell that is not empty is a number, with a unit or without, or a dash. What is
    no Cell is shown as it prints, None as nothing.
    """
    cells = [[cell if isinstance(cell, Cell) else Cell(_content(cell)) for cell in row] for row in rows]
    figures = [
        bool(cells) and all(_FIGURE.match(str(row[place].content)) for row in cells) for place in range(len(headings))
    ]
    head = [tag("th", heading, class_="n" if right else None) for heading, right in zip(headings, figures, strict=True)]
    body = [
        tag("tr", *(_cell(cell, heading, right) for cell, heading, right in zip(row, headings, figures, strict=True)))
        for row in cells
    ]
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=f"Table: {', '.join(headings[:3])}")


def _content(value: object) -> str | int | float:
    if value is None:
        return ""
    return value if isinstance(value, (str, int, float)) else str(value)


_FIGURE = re.compile(r"^(–|[-+±]?[\d.,\u202f]+(e[-+]?\d+)?( ?[%×]| ?[A-Za-zµ/]{1,6})?)?$")


def _cell(cell: Cell, heading: str, right: bool) -> Html:
    kinds = [cell.kind, "n" if right else "why" if heading == "why" else ""]
    return tag("td", cell.content, class_=" ".join(filter(None, kinds)) or None, title=cell.hover or None)


def folded(summary: Child, body: Html) -> Html:
    """What shows its first line only, until it is opened; on paper it is open."""
    return tag("details", tag("summary", summary), body)


def side_by_side(*plots: Html | None) -> Html:
    """Plots in as many columns as fit."""
    return tag("div", *plots, class_="plots")


def text(*sentences: str) -> Html:
    """A paragraph."""
    return tag("p", " ".join(filter(None, sentences)))


def legend(names: Sequence[str]) -> Html | None:
    """What the colours stand for; nothing where there is one."""
    if len(names) < 2:
        return None
    return tag("ul", *(tag("li", name, class_=f"s{place % 8}") for place, name in enumerate(names)), class_="legend")


def _tiles(tiles: Sequence[Tile]) -> Html:
    parts = [
        tag("div", tag("dt", t.label), tag("dd", t.value), tag("dd", t.more, class_="more") if t.more else None)
        for t in tiles
    ]
    return tag("dl", *parts, class_="tiles")


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


@functools.cache
def _style() -> str:
    return importlib.resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
