"""Numbers as people read them on a page: seconds, bytes and counts with the prefix that fits, shares."""

from __future__ import annotations

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
)


def scaled(value: float, unit: str = "", digits: int = 3) -> str:
    """`value` with a prefix, to so many significant digits: 12.3 ms, 1.2 Gop."""
    if value == 0:
        return f"0 {unit}".strip()
    factor, prefix = next(((f, p) for f, p in _PREFIXES if abs(value) >= f * 0.9995), (1e-9, "n"))
    return f"{_significant(value / factor, digits)} {prefix}{unit}".strip()


def seconds(value: float | None) -> str:
    """A time, a dash where there is none."""
    return "–" if value is None else scaled(value, "s")


def size(count: float | None) -> str:
    """Bytes by powers of 1024, a dash where there are none."""
    if count is None:
        return "–"
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} B" if unit == "B" else f"{_significant(value, 3)} {unit}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share of one, a dash where there is none."""
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def count(number: int) -> str:
    """A whole number in groups of three digits."""
    return f"{number:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _significant(value: float, digits: int) -> str:
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, digits - whole)}f}"
