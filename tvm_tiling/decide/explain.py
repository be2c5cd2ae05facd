"""Decisions as text: rows of name, value and reason, grouped into sections.

Each kind of decision lists its sections beside its fields; `decide.tiling.Decision` assembles the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias

from ..figures import scaled, times
from .labels import label, word

# Section titles in reading order, each with its fields.
Sections: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]

# Names under which options and rows are known; records and files keep the field names.
_SHOWN_AS = {"form": "algorithm"}
_WIDEST_VALUE = 20  # a wider value shifts its reason to the right
_SEPARATORS = {"kw_pieces": " + ", "tile": " x ", "points": " x ", "summed": " x "}  # of tuples; others are lists
_ORDERS = {"mn": "m outside n", "nm": "n outside m"}


class Row(NamedTuple):
    """One line of an explanation: the section of the decision, the field's name, its value, the reason, and what the
    text calls the field (its name if `label` is empty)."""

    section: str
    name: str
    value: str
    why: str
    label: str = ""

    @property
    def title(self) -> str:
        """What the text calls the field."""
        return self.label or self.name


def shown_name(field: str) -> str:
    """Return the name of a field in options and rows."""
    return _SHOWN_AS.get(field, field)


def without_subject(algorithm: str, why: str) -> str:
    """Return the reason for an algorithm without its subject, which the row names."""
    return why.removeprefix(f"algorithm = {algorithm!r} ").removeprefix("conv: ")


def record_rows(section: str, record: Any, name: str) -> Iterator[Row]:
    """Yield the rows of a plain dataclass, the part `name` of a decision, that has no reasons of its own: first the
    choices, then the fields that its `predictions` name."""
    predicted = getattr(record, "predictions", ())
    for title, wanted in ((section, False), (f"{section}, predicted", True)):
        for field in fields(record):
            if (field.name in predicted) == wanted:
                value = value_text(field.name, getattr(record, field.name))
                yield Row(title, field.name, value, "", label(name, field.name))


def as_text(headline: str, rows: Iterable[Row]) -> str:
    """Format the headline and the rows, grouped under section titles."""
    rows = list(rows)
    lines = [headline]
    names = max((len(row.title) for row in rows), default=0)
    values = min(max((len(row.value) for row in rows), default=0), _WIDEST_VALUE)
    for section, own in itertools.groupby(rows, key=lambda row: row.section):
        lines.append(f"  {section}")
        lines.extend(f"    {row.title:<{names}}  {row.value:<{values}}  {row.why}".rstrip() for row in own)
    return "\n".join(lines)


def value_text(name: str, value: object) -> str:
    """Return the value of field `name` as text, with rounded figures."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("order") and value in _ORDERS:
        return _ORDERS[str(value)]
    if (said := word(name, value)) is not None:
        return said
    if name == "orders" and isinstance(value, str):
        return " / ".join(_ORDERS.get(order, order) for order in value.split())
    if name == "loop_order" and isinstance(value, tuple):
        return " < ".join(value)
    if name == "utilisation" and isinstance(value, float):
        return f"{value:.1%}"
    if name in ("seed_gap", "predicted_error") and isinstance(value, float):
        return f"{value:.3g}"
    if name == "predicted_seconds" and isinstance(value, float):
        return scaled(value, "s")
    if name in ("cycles", "cycles_per_step", "predicted_cycles") and isinstance(value, float):
        return f"{value:.0f}"
    if name in ("load_a", "load_b") and isinstance(value, int):
        return times(value)
    if isinstance(value, tuple):
        return _SEPARATORS.get(name, ", ").join(map(str, value))
    return str(value)
