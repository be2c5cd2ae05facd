"""Gathering rows of a block-quantised table, such as an embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...operand_types import Encoding
from .blocked import BlockedProduct


@dataclass(frozen=True, kw_only=True)
class TableRows:
    """The computation: the rows of an n x k table at `rows` indices, as floats. Indices are in range. The table has the
    same format as the weights of a matrix multiplication, so a table that serves as both is stored once."""

    rows: Any  # an int, or a TIR expression for a dynamic number of rows
    n: int
    k: int
    encoding: Encoding
    places: str = "int64"

    @property
    def product(self) -> BlockedProduct:
        """A matrix multiplication with the table as its weights."""
        return BlockedProduct(rows=1, n=self.n, k=self.k, encoding=self.encoding)

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's inputs."""
        return {"places": ((self.rows,), self.places), "weights": self.product.inputs["weights"]}

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the kernel's outputs."""
        return {"y": ((self.rows, self.k), "float32")}
