"""Checks of single fields. Each returns the value in its canonical type or raises HardwareError, whose message names
the unit, the field, the value and what would be accepted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from ..errors import HardwareError, nearest


def whole(unit: str, field: str, value: Any, least: int = 1) -> int:
    """`value` if it is a whole number (a bool is none) of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise HardwareError(f"{unit}: {field} = {value!r}, accepted: a whole number of at least {least}")
    return value


def number(unit: str, field: str, value: Any, *, above: float = 0.0, most: float = math.inf) -> float:
    """`value` as a float if it is finite, greater than `above` and at most `most`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not above < value <= most:
        limit = f" and at most {most:g}" if most < math.inf else ""
        raise HardwareError(f"{unit}: {field} = {value!r}, accepted: a finite number above {above:g}{limit}")
    return float(value)


def text(unit: str, field: str, value: Any) -> str:
    """`value` if it is a string."""
    if not isinstance(value, str):
        raise HardwareError(f"{unit}: {field} = {value!r}, accepted: a string")
    return value


def words(unit: str, field: str, value: Any) -> tuple[str, ...]:
    """`value` as a tuple if it is a list or tuple of strings."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise HardwareError(f"{unit}: {field} = {value!r}, accepted: a list of strings")
    return tuple(value)


def one_of(unit: str, field: str, value: Any, accepted: Iterable[Any]) -> Any:
    """`value` if it is among `accepted`."""
    accepted = tuple(accepted)
    if isinstance(value, bool) or value not in accepted:
        raise HardwareError(f"{unit}: {field} = {value!r}, {nearest(str(value), map(str, accepted))}")
    return value


def known_fields(unit: str, given: Iterable[str], kind: type) -> None:
    """Refuse names that are no fields of the dataclass `kind`."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            raise HardwareError(f"{unit}: unknown field {name!r}: {nearest(name, known)}")
