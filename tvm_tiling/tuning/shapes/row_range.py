"""The measurements of an entry for a range of rows: the numbers of rows measured, and the result relative to the
analytical decision at each of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import DatabaseError
from ...limits import MAX_EXTENT
from ...sizes import Range

_FIELDS = ("first", "last", "sizes", "gains", "spreads", "version")
MOST_SIZES = 64


@dataclass(frozen=True, kw_only=True)
class RowsMeasured:
    """The range of rows of an entry.

    `sizes` are the measured numbers of rows, `gains` the cost of the analytical decision over that of the entry's
    configuration at each, timed alternately, and `spreads` the relative half-widths of their 95 percent intervals.
    `version` is that of the package.
    """

    rows: Range
    sizes: tuple[int, ...]
    gains: tuple[float, ...]
    spreads: tuple[float, ...]
    version: str = ""

    def __post_init__(self) -> None:
        first, last = self.rows.first, self.rows.last
        if not _whole(first) or (last is not None and (not _whole(last) or last < first)):
            raise DatabaseError(f"rows = {self.rows}; expected a first and a last number of rows, or an open end")
        if not self.sizes or len(self.sizes) > MOST_SIZES or not all(_whole(n) and n in self.rows for n in self.sizes):
            raise DatabaseError(
                f"sizes = {self.sizes!r}; expected 1 to {MOST_SIZES} numbers of rows within {self.rows}"
            )
        if not len(self.sizes) == len(self.gains) == len(self.spreads):
            raise DatabaseError(
                f"{len(self.gains)} gains and {len(self.spreads)} spreads for {len(self.sizes)} sizes; expected "
                "one of each per size"
            )
        if not all(_number(gain) and gain > 0 for gain in self.gains) or not all(map(_number, self.spreads)):
            raise DatabaseError(f"gains = {self.gains!r}, spreads = {self.spreads!r}; expected numbers above 0")
        if not isinstance(self.version, str):
            raise DatabaseError(f"version = {self.version!r}; expected a string")

    def within(self, rows: Range) -> RowsMeasured | None:
        """Return the measurements within a smaller range, or None."""
        kept = [one for one in zip(self.sizes, self.gains, self.spreads, strict=True) if one[0] in rows]
        if not kept:
            return None
        sizes, gains, spreads = zip(*kept, strict=True)
        return RowsMeasured(rows=rows, sizes=sizes, gains=gains, spreads=spreads, version=self.version)

    @property
    def gain(self) -> float:
        """The geometric mean of the gains."""
        return math.exp(math.fsum(map(math.log, self.gains)) / len(self.gains))

    @property
    def spread(self) -> float:
        """The relative half-width of its 95 percent interval."""
        return math.sqrt(math.fsum(spread**2 for spread in self.spreads)) / len(self.spreads)

    @property
    def won(self) -> bool:
        """Whether the configuration is faster in the geometric mean, beyond noise."""
        return self.gain * (1 - self.spread) > 1

    def __str__(self) -> str:
        return f"speedup {self.gain:.3f} over the analytical configuration, geometric mean of {len(self.sizes)} sizes"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "first": self.rows.first,
            "last": self.rows.last,
            "sizes": list(self.sizes),
            "gains": list(self.gains),
            "spreads": list(self.spreads),
            "version": self.version,
        }

    @classmethod
    def from_dict(cls, record: Any) -> RowsMeasured:
        """Read the output of `to_dict`. DatabaseError for anything else."""
        if not isinstance(record, Mapping) or set(record) != set(_FIELDS):
            raise DatabaseError(f"rows: {str(record)[:80]}; expected a table of {', '.join(_FIELDS)}")
        if any(not isinstance(record[name], list) for name in ("sizes", "gains", "spreads")):
            raise DatabaseError("rows: invalid sizes, gains or spreads; expected lists of numbers")
        return cls(
            rows=Range(record["first"], record["last"]),
            sizes=tuple(record["sizes"]),
            gains=tuple(record["gains"]),
            spreads=tuple(record["spreads"]),
            version=record["version"],
        )


def _whole(value: object) -> bool:
    return type(value) is int and 1 <= value <= MAX_EXTENT


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
