"""A decision on a page: every choice with its value and reason, and the forms that were compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..decide.explain import shown_name
from ..decide.tiling import Decision
from ..figures import seconds
from .markup import Html, join
from .page import table, text

HEADINGS = ("part", "choice", "value", "reason")


Row = tuple[str, str, str, str]


def decision_rows(decision: Decision) -> Iterator[Row]:
    """(part of the decision, choice, value, why) of a decision that was just made; the part stands in its first row."""
    last = ""
    for row in decision.explained():
        yield row.section if row.section != last else "", row.name, row.value, row.why
        last = row.section


def kept_rows(decision: Mapping[str, Any]) -> Iterator[Row]:
    """The same of a decision as an executable keeps it: what has a reason, those of the product within it too, and the
    forms that were compared."""
    yield from _reasons("decided", decision)
    if decision.get("product"):
        yield from _reasons("as a product", decision["product"])
    section = "compared"
    for form, time, why in decision.get("candidates", ()):
        yield section, form, "refused" if time is None else seconds(time), why
        section = ""


def decision_body(decision: Decision) -> Html:
    """A decision that was just made, on a page."""
    return join([text(decision.headline()), table(HEADINGS, list(decision_rows(decision)))])


def kept_body(decision: Mapping[str, Any]) -> Html:
    """A decision as an executable keeps it, on a page."""
    return table(HEADINGS, list(kept_rows(decision)))


def _reasons(section: str, decision: Mapping[str, Any]) -> Iterator[Row]:
    for field, value, why in decision.get("reasons", ()):
        yield section, shown_name(field), _text(field, value), why
        section = ""


def _text(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return seconds(value) if field.endswith("seconds") else f"{value:.3g}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
