"""Activations in the blocks of block-quantised weights: quantised to 8 or 16 bits per block, or only summed per
block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .traffic import ceil_div

LARGEST = {"int8": 127, "int16": 127 << 8}
"""Quantised value of the largest magnitude in a block. A 16-bit value has two bytes, the upper one in -127..127."""


@dataclass(frozen=True, kw_only=True)
class BlockRows:
    """The computation on `rows` rows of k floats.

    It sums every block of `block` elements. If `to` is "int8" or "int16", it also quantises the elements with one scale
    per block (the block's largest magnitude / LARGEST) and sums the quantised values. A 16-bit value is 256 * high +
    low, stored as the high bytes of a block followed by its low bytes. A scale is not finite if an element of its block
    is not. Elements beyond k are 0.
    """

    rows: Any  # an int, or a TIR expression for a dynamic number of rows
    k: int
    block: int
    to: str = "int8"

    @property
    def blocks(self) -> int:
        """Blocks per row; the last one may be padded."""
        return ceil_div(self.k, self.block)

    @property
    def parts(self) -> int:
        """Bytes of a quantised element."""
        return 2 if self.to == "int16" else 1

    @property
    def inputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Name, shape and type of the input."""
        return {"x": ((self.rows, self.k), "float32")}

    @property
    def outputs(self) -> dict[str, tuple[tuple[Any, ...], str]]:
        """Names, shapes and types of the outputs, as matrix multiplications with block-quantised weights read them."""
        of_blocks = (self.rows, self.blocks)
        if self.to == "float32":
            return {"sums": (of_blocks, "float32")}
        width = self.blocks * self.block * self.parts
        return {
            "x_blocks": ((self.rows, width), "int8"),
            "scales": (of_blocks, "float32"),
            "sums": (of_blocks, "int32"),
        }
