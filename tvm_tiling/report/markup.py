"""HTML as values: text is escaped when it is inserted into an element, markup is not."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

VOID = frozenset({"meta", "br", "wbr"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | float | None
"""Content of an element: markup, text that is escaped, numbers; None is omitted."""


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Return an element. A trailing "_" of an attribute is dropped and other underscores become "-"; None and False
    attributes are omitted, and True has no value."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Concatenate children."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def breakable(name: str) -> Html:
    """A name that may be broken after underscores, slashes and dots."""
    return Html(re.sub(r"([_/.]+)(?=.)", r"\1<wbr>", html.escape(name)))


def _escaped(child: str | int | float) -> str:
    return child if isinstance(child, Html) else html.escape(str(child))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
