"""Parsing of plain values from untrusted text: JSON and TOML, with one class of error for all defects."""

from __future__ import annotations

import json
import math
import sys
from typing import Any, NoReturn

from .errors import TilingError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MOST_CHARACTERS = 160  # of a displayed name
MOST_INTEGER = 2**63  # as in TOML; JSON defines no bound, and larger numbers are not used


class TextError(TilingError, ValueError):
    """A text is not JSON or TOML, is nested too deeply, or contains an invalid number."""


def printable(name: str) -> str:
    """A name on one line, of at most MOST_CHARACTERS before escaping: longer ones are shortened in the middle, and
    unprintable characters, such as a terminal's escapes, are written as "\\x1b" and the like."""
    if len(name) > MOST_CHARACTERS:
        kept = (MOST_CHARACTERS - 1) // 2
        name = f"{name[: MOST_CHARACTERS - 1 - kept]}\N{HORIZONTAL ELLIPSIS}{name[-kept:]}"
    if not name.isprintable():
        name = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name)
    return name.strip()


def plain_json(text: Any) -> Any:
    """The values of a JSON text, a string or UTF-8 bytes. Raises TextError for anything else, and for NaN and
    Infinity."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_int=_integer, parse_float=_finite)
    except TextError:
        raise
    except RecursionError:
        raise TextError("the JSON is nested too deeply") from None
    except (ValueError, TypeError) as error:
        raise TextError(f"not JSON: {' '.join(str(error).split())[:200]}") from None


def plain_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises TextError for anything else."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise TextError("the TOML is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise TextError(f"not TOML: {error}") from None
    except ValueError as error:  # a number of thousands of digits
        raise TextError(f"not TOML: {error}") from None
    left: list[Any] = [table]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, int) and not -MOST_INTEGER <= value < MOST_INTEGER:
            raise TextError("not TOML: an integer with more than 64 bits")
    return table


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -MOST_INTEGER <= int(digits) < 2 * MOST_INTEGER:
        raise TextError(f"{digits[:40]} is an integer with more than 64 bits")
    return int(digits)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise TextError(f"{text[:40]} exceeds the range of 64-bit floating-point numbers")
    return value


def _no_number(name: str) -> NoReturn:
    raise TextError(f"{name} is not a number")
