"""Decisions as text: rows of name, value and reason, grouped into sections.

Each kind of decision lists its sections beside its fields; `decide.tiling.Decision` assembles the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias

from ..figures import times

# Section titles in reading order, each with its fields.
Sections: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]

# Display names of fields; records and files keep the field names.
_SHOWN_AS = {"form": "algorithm"}
_ORDERS = {"mn": "m outside n", "nm": "n outside m"}


class Row(NamedTuple):
    """One line of an explanation: the section of the decision, the field's name, its value and the reason."""

    section: str
    name: str
    value: str
    why: str


def shown_name(field: str) -> str:
    """Return the name under which a field is displayed."""
    return _SHOWN_AS.get(field, field)


def record_rows(section: str, record: Any) -> Iterator[Row]:
    """Yield the rows of a plain dataclass that is part of a decision and has no reasons of its own: first the choices,
    then the fields that its `predictions` name."""
    predicted = getattr(record, "predictions", ())
    for title, wanted in ((section, False), (f"{section}, predicted", True)):
        for field in fields(record):
            if (field.name in predicted) == wanted:
                yield Row(title, field.name, value_text(field.name, getattr(record, field.name)), "")


def as_text(headline: str, rows: Iterable[Row]) -> str:
    """Format the headline and the rows, grouped under section titles."""
    lines = [headline]
    for section, own in itertools.groupby(rows, key=lambda row: row.section):
        lines.append(f"  {section}")
        lines.extend(f"    {row.name:<17} {row.value:<12} {row.why}".rstrip() for row in own)
    return "\n".join(lines)


def value_text(name: str, value: object) -> str:
    """Return the value of field `name` as text, with rounded figures."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("order") and value in _ORDERS:
        return _ORDERS[str(value)]
    if name == "loop_order" and isinstance(value, tuple):
        return " < ".join(value)
    if name == "utilisation" and isinstance(value, float):
        return f"{value:.1%}"
    if name in ("seed_gap", "predicted_error") and isinstance(value, float):
        return f"{value:.3g}"
    if name == "predicted_seconds" and isinstance(value, float):
        return f"{value:.3g} s"
    if name in ("cycles", "cycles_per_step", "predicted_cycles") and isinstance(value, float):
        return f"{value:.0f}"
    if name in ("load_a", "load_b") and isinstance(value, int):
        return times(value)
    if isinstance(value, tuple):
        return " + ".join(map(str, value))
    return str(value)
