"""Rows taken from a table whose elements are stored in blocks of few bits, as an embedding's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...operand_types import Encoding
from .blocked import BlockedProduct


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """What the kernel computes: of a table of n rows of k elements those at `rows` places, which are inside of it, as
    floats. The table is given as the weights of a product are, so that one that is both is held once."""

    rows: Any  # a number, or what TIR has for one that only a run brings
    n: int
    k: int
    encoding: Encoding
    places: str = "int64"

    @property
    def product(self) -> BlockedProduct:
        """A product by the table."""
        return BlockedProduct(rows=1, n=self.n, k=self.k, encoding=self.encoding)

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of what the kernel takes."""
        return {"places": ((self.rows,), self.places), "weights": self.product.inputs["weights"]}

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """The same of what it gives."""
        return {"y": ((self.rows, self.k), "float32")}
