"""Rows in the blocks of a product's weights: quantised to 8 bits for each block, or only summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .traffic import ceil_div


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """What the kernel computes of `rows` rows of k floats: the sum of each block of `block`; with `to` "int8" also the
    elements as int8 of a scale for each block, its largest magnitude / 127, and the sums are of these. A scale is not
    finite where an element is not. Elements beyond k are 0."""

    rows: Any  # a number, or what TIR has for one that only a run brings
    k: int
    block: int
    to: str = "int8"

    @property
    def blocks(self) -> int:
        """Blocks of a row; the last may have more elements than there are."""
        return ceil_div(self.k, self.block)

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Name, shape and type of what the kernel takes."""
        return {"x": ((self.rows, self.k), "float32")}

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """The same of what it gives, as BlockedProduct takes it."""
        of_blocks = (self.rows, self.blocks)
        if self.to == "float32":
            return {"sums": (of_blocks, "float32")}
        width = self.blocks * self.block
        return {
            "x_blocks": ((self.rows, width), "int8"),
            "scales": (of_blocks, "float32"),
            "sums": (of_blocks, "int32"),
        }
