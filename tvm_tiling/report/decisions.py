"""A decision in a report: every choice with its value and reason, and the algorithms that were compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..decide.explain import value_text, without_subject
from ..decide.labels import label
from ..decide.tiling import Decision
from ..figures import seconds
from .markup import Html, join
from .page import table, text

HEADINGS = ("part", "choice", "value", "reason")


Row = tuple[str, str, str, str]


def decision_rows(decision: Decision) -> Iterator[Row]:
    """Return (part of the decision, choice, value, reason) of a new decision; only the first row of a part names it."""
    last = ""
    for row in decision.explained():
        yield row.section if row.section != last else "", row.title, row.value, row.why
        last = row.section


def kept_rows(decision: Mapping[str, Any]) -> Iterator[Row]:
    """Return the same for a decision stored in an executable: choices that have a reason, including those of the nested
    matrix multiplication, and the algorithms that were compared."""
    yield from _reasons("decided", decision)
    if decision.get("product"):
        yield from _reasons("as a matrix multiplication", decision["product"])
    section = "compared"
    for form, time, why in decision.get("candidates", ()):
        yield section, form, "refused" if time is None else seconds(time), without_subject(form, why)
        section = ""


def decision_body(decision: Decision) -> Html:
    """Return a new decision as HTML."""
    return join([text(decision.headline()), table(HEADINGS, list(decision_rows(decision)))])


def kept_body(decision: Mapping[str, Any]) -> Html:
    """Return a decision stored in an executable as HTML."""
    return table(HEADINGS, list(kept_rows(decision)))


def _reasons(section: str, decision: Mapping[str, Any]) -> Iterator[Row]:
    for field, value, why in decision.get("reasons", ()):
        yield section, label(decision["op"], field), _text(field, value), why
        section = ""


def _text(field: str, value: object) -> str:
    shown = value_text(field, tuple(value) if isinstance(value, list) else value)
    return f"{value:.3g}" if isinstance(value, float) and shown == str(value) else shown
