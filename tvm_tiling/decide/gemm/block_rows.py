"""Rows in the blocks of a product's weights: quantised to 8 or 16 bits for each block, or only summed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .traffic import ceil_div

LARGEST = {"int8": 127, "int16": 127 << 8}
"""What the largest magnitude of a block is quantised to. 16 bits are two bytes, the upper one of -127..127."""


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """What is computed of `rows` rows of k floats: the sum of each block of `block`; with `to` "int8" or "int16" also
    the elements as whole numbers of a scale for each block, its largest magnitude / LARGEST, and the sums are of these.
    Those of 16 bits are 256 high + low, for each block its high bytes and then its low ones. A scale is not finite
    where an element is not. Elements beyond k are 0."""

    rows: Any  # a number, or what TIR has for one that only a run brings
    k: int
    block: int
    to: str = "int8"

    @property
    def blocks(self) -> int:
        """Blocks of a row; the last may have more elements than there are."""
        return ceil_div(self.k, self.block)

    @property
    def parts(self) -> int:
        """Bytes of an element as a whole number."""
        return 2 if self.to == "int16" else 1

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Name, shape and type of what is taken."""
        return {"x": ((self.rows, self.k), "float32")}

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """The same of what is given, as products of weights in blocks take it."""
        of_blocks = (self.rows, self.blocks)
        if self.to == "float32":
            return {"sums": (of_blocks, "float32")}
        width = self.blocks * self.block * self.parts
        return {
            "x_blocks": ((self.rows, width), "int8"),
            "scales": (of_blocks, "float32"),
            "sums": (of_blocks, "int32"),
        }
