"""HTML as values: text is escaped where it enters an element, markup passes."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

VOID = frozenset({"meta", "br", "wbr"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | float | None
"""What may stand in an element: markup, text that is escaped, numbers; None is left out."""


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. A trailing "_" of an attribute is dropped and the others become "-"; those that are None or False are
    left out, and True stands alone."""
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Html:
    """Children one behind the other."""
    return Html("".join(_escaped(child) for child in children if child is not None))


def breakable(name: str) -> Html:
    """A name that may be broken behind underscores, slashes and dots."""
    return Html(re.sub(r"([_/.]+)(?=.)", r"\1<wbr>", html.escape(name)))


def _escaped(child: str | int | float) -> str:
    return child if isinstance(child, Html) else html.escape(str(child))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
