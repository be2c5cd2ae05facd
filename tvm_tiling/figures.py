"""Formatting of numbers: seconds, bytes and counts with a suitable SI prefix, shares in percent, counted nouns."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = (
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
    (1e-12, "p"),
)
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def scaled(value: float, unit: str = "", digits: int = 3) -> str:
    """`value` with an SI prefix and this many significant digits: 12.3 ms, 1.2 Gop."""
    if value == 0:
        return f"0 {unit}".strip()
    factor, prefix = _prefix(value)
    return f"{_significant(value / factor, digits)} {prefix}{unit}".strip()


def seconds(value: float | None) -> str:
    """A time in seconds with a prefix; a dash for None."""
    return "–" if value is None else scaled(value, "s")


def microseconds(value: float) -> str:
    """A time in microseconds without the unit, for a column: a decimal place below 10."""
    return f"{value * 1e6:.{1 if value < 9.95e-6 else 0}f}"


def size(count: float | None) -> str:
    """Bytes by powers of 1024; a dash for None."""
    if count is None:
        return "–"
    factor, unit = _binary(count)
    return f"{count:.0f} B" if unit == "B" else f"{_significant(count / factor, 3)} {unit}"


def percent(share: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a dash for None."""
    if share is None:
        return "–"
    return f"{round(100 * share, digits) + 0.0:.{digits}f}%".replace("-", "−")  # 0.0 avoids a negative zero


def count(number: int) -> str:
    """An integer in groups of three digits."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def quantity(number: float, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 tile", "2 tiles". `plural` is for nouns that do not only add an s."""
    return f"{number} {noun_for(number, noun, plural)}"


def noun_for(number: float, noun: str, plural: str | None = None) -> str:
    """`noun` in the singular for one, otherwise in the plural."""
    return noun if number == 1 else plural or f"{noun}s"


def times(number: int) -> str:
    """How often: "once", "2 times"."""
    return "once" if number == 1 else f"{number} times"


def column(
    name: str,
    values: Sequence[float | None],
    unit: str = "",
    *,
    binary: bool = False,
    beside: Sequence[float | None] = (),
) -> tuple[str, list[str]]:
    """The heading and cells of a table column in one unit, chosen by the median value: ("time, µs", ["12.3", "0.597"]).

    None becomes a dash. `binary`: bytes by powers of 1024. `beside`: values of other columns that are compared with
    this one; give all of them to each, so that all have the same unit.
    """
    known = sorted(abs(value) for value in (beside or values) if value)
    middle = known[len(known) // 2] if known else 1.0
    factor, prefixed = _binary(middle) if binary else _prefix(middle)
    written = prefixed if binary else f"{prefixed}{unit}"
    whole = factor == 1 and all(value is None or isinstance(value, int) for value in values)
    cells = ["–" if value is None else count(int(value)) if whole else _cell(value / factor) for value in values]
    return f"{name}, {written}" if written else name, cells


def _cell(value: float) -> str:
    if value == 0:
        return "0"
    if value < 0:
        return f"−{_cell(-value)}"
    return count(round(value)) if abs(value) >= 1000 else _significant(value, 3)


def _prefix(value: float) -> tuple[float, str]:
    return next(((f, p) for f, p in _PREFIXES if abs(value) >= f * 0.9995), _PREFIXES[-1])


def _binary(value: float) -> tuple[float, str]:
    return next(((float(f), u) for f, u in _BINARY if abs(value) >= f), (1.0, "B"))


def _significant(value: float, digits: int) -> str:
    """`value` with this many significant digits, without an exponent."""
    power = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(0, digits - 1 - power)}f}"
