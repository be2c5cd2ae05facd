"""Tables with numbered rows: a record of a program holds the number, the row has everything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar


@dataclass(frozen=True, eq=False)
class Row(int):
    """A row of a :class:`Table`. It is its number: arrays store it, and it equals the stored number."""

    number: int
    name: str

    def __new__(cls, number: int, *_: Any, **__: Any) -> Any:
        return super().__new__(cls, number)


R = TypeVar("R", bound=Row)


class Table(Generic[R]):
    """Rows by number, from 0 without gaps, and by name: table[3], table["gemm"], and table.GEMM in code."""

    def __init__(self, rows: Iterable[R]) -> None:
        self._rows: list[R] = []
        self._named: dict[str, R] = {}
        for row in rows:
            self.add(row)

    def add(self, row: R) -> R:
        """Append `row`, whose number must be the next one, and return it. ValueError for another number or a duplicate
        name."""
        if row.number != len(self._rows) or row.name.upper() in self._named:
            raise ValueError(f"row {row.number} {row.name!r}; expected number {len(self._rows)} and a new name")
        self._rows.append(row)
        self._named[row.name.upper()] = row
        return row

    def remove(self, row: R) -> None:
        """Remove the last row. ValueError if `row` is not the last one."""
        if not self._rows or self._rows[-1] is not row:
            raise ValueError(f"row {row.number} {row.name!r} is not the last one")
        del self._rows[-1], self._named[row.name.upper()]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows in order."""
        return tuple(row.name for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __getitem__(self, key: int | str) -> R:
        return self._named[key.upper()] if isinstance(key, str) else self._rows[key]

    def __getattr__(self, name: str) -> R:
        found: R | None = self.__dict__.get("_named", {}).get(name)
        if found is None:
            raise AttributeError(f"the table has no row {name!r}")
        return found
