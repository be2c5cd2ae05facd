"""Checks of single fields. Each returns the value in its canonical type or raises HardwareError; the message names the
unit, the field, the value and what is accepted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

from ..errors import HardwareError, nearest
from ..operand_types import ELEMENTS, OPERAND_TYPES

# Operand types of simulated matrix engines, and types that they compute with: the instruction set has at most 32 bits.
MULTIPLIED = tuple(name for name in OPERAND_TYPES if ELEMENTS[name].bits <= 32)
COMPUTED = tuple(name for name, element in ELEMENTS.items() if element.bits <= 32)


def put(record: Any, name: str, value: Any) -> None:
    """Store a checked value in its canonical type during the construction of a frozen record."""
    object.__setattr__(record, name, value)


ADDED = {"added": True}
"""Marks a field that descriptions did not have originally: at its default it is excluded from the fingerprint, so that
fingerprints of older descriptions stay the same."""


def added(default: Any) -> Any:
    """Return a dataclass field with a default, marked as ADDED."""
    return dataclasses.field(default=default, metadata=ADDED)


def whole(unit: str, field: str, value: Any, least: int = 1) -> int:
    """Return `value` if it is an integer (not a bool) of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise HardwareError(f"{unit}: {field} = {value!r}; expected a whole number of at least {least}")
    return value


def is_finite(value: Any) -> bool:
    """Return whether a value is a number (not a bool) that floating point can represent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def number(unit: str, field: str, value: Any, *, above: float = 0.0, most: float = math.inf) -> float:
    """Return `value` as a float if it is finite, greater than `above` and at most `most`."""
    if not is_finite(value) or not above < value <= most:
        limit = f" and at most {most:g}" if most < math.inf else ""
        raise HardwareError(f"{unit}: {field} = {value!r}; expected a finite number above {above:g}{limit}")
    return float(value)


def at_least_zero(unit: str, field: str, value: Any) -> float:
    """Return `value` as a float if it is finite and not negative."""
    if not is_finite(value) or value < 0:
        raise HardwareError(f"{unit}: {field} = {value!r}; expected a finite number of at least 0")
    return float(value)


def truth(unit: str, field: str, value: Any) -> bool:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise HardwareError(f"{unit}: {field} = {value!r}; expected true or false")
    return value


def table(unit: str, field: str, value: Any) -> dict[str, Any]:
    """Return `value` if it is a dictionary whose keys are strings."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise HardwareError(f"{unit}: {field} = {value!r}; expected a table")
    return value


def text(unit: str, field: str, value: Any) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise HardwareError(f"{unit}: {field} = {value!r}; expected a string")
    return value


def words(unit: str, field: str, value: Any) -> tuple[str, ...]:
    """Return `value` as a tuple if it is a list or tuple of strings."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise HardwareError(f"{unit}: {field} = {value!r}; expected a list of strings")
    return tuple(value)


def one_of(unit: str, field: str, value: Any, accepted: Iterable[Any]) -> Any:
    """Return `value` if it is among `accepted`."""
    accepted = tuple(accepted)
    if isinstance(value, bool) or value not in accepted:
        raise HardwareError(f"{unit}: {field} = {value!r}; {nearest(str(value), map(str, accepted))}")
    return value


def element_types(unit: str, value: Any, known: tuple[str, ...] = MULTIPLIED) -> tuple[str, ...]:
    """Return `value` as a tuple if it is a list or tuple of `known` type names: by default the operand types of the
    simulated matrix engines; COMPUTED has all types that they compute with."""
    for name in words(unit, "dtypes", value):
        one_of(unit, "dtypes", name, known)
    return tuple(value)


def known_fields(unit: str, given: Iterable[str], kind: type) -> None:
    """Refuse names that are not fields of the dataclass `kind`."""
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            raise HardwareError(f"{unit}: unknown field {name!r}; {nearest(name, known)}")
