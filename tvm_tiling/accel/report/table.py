"""A table before anybody has decided how it is shown: text, terminal or page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A table with its heading above it."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]


def aligned(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Columns of equal width, words to the left, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(headings))]
    words = [not any(isinstance(row[place], (int, float)) for row in rows) for place in range(len(headings))]
    return [
        "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        ).rstrip()
        for row in cells
    ]
