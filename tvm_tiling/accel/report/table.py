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
