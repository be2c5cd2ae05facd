"""How a decision's choices become text: rows of a name, a value and a reason, in sections.

Which fields stand in which section every kind of decision says itself, beside its fields; `decide.tiling.Decision` puts
the rows together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias

# Titles in reading order, each with the fields under it.
Sections: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]

# Names of fields as they are shown; records and files keep the fields' own.
_SHOWN_AS = {"form": "algorithm"}
_ORDERS = {"mn": "m outside n", "nm": "n outside m"}


class Row(NamedTuple):
    """One choice as text: the part of the decision it belongs to, its name, its value and why."""

    section: str
    name: str
    value: str
    why: str


def shown_name(field: str) -> str:
    """The name under which a field is shown."""
    return _SHOWN_AS.get(field, field)


def record_rows(section: str, record: Any) -> Iterator[Row]:
    """The fields of a plain dataclass that is part of a decision, and has no reasons of its own: what is written, then
    what is predicted of it, which its `predictions` name."""
    predicted = getattr(record, "predictions", ())
    for title, told in ((section, False), (f"{section}, predicted", True)):
        for field in fields(record):
            if (field.name in predicted) == told:
                yield Row(title, field.name, value_text(field.name, getattr(record, field.name)), "")


def as_text(headline: str, rows: Iterable[Row]) -> str:
    """The headline, and under the title of each section its rows."""
    lines = [headline]
    for section, own in itertools.groupby(rows, key=lambda row: row.section):
        lines.append(f"  {section}")
        lines.extend(f"    {row.name:<17} {row.value:<12} {row.why}".rstrip() for row in own)
    return "\n".join(lines)


def value_text(name: str, value: object) -> str:
    """The value of the field `name` in words and rounded figures."""
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
    if name in ("load_a", "load_b"):
        return "once" if value == 1 else f"{value} times"
    if isinstance(value, tuple):
        return " + ".join(map(str, value))
    return str(value)
