"""The Relay operators that the tests have cases for, by family."""

from __future__ import annotations

import re

import test_relay_elementwise as elementwise
import test_relay_images as images
import test_relay_layers as layers
import test_relay_moves as moves
import test_relay_quantised as quantised

FAMILIES = {
    "unary": elementwise.UNARY,
    "binary": elementwise.BINARY,
    "reductions": elementwise.REDUCTIONS,
    "convolutions": layers.CONVOLUTIONS,
    "transposed": layers.TRANSPOSED,
    "products": layers.PRODUCTS,
    "pools": layers.POOLS,
    "norms": layers.NORMS,
    "moves": moves.MOVES,
    "slices": moves.SLICES,
    "created": moves.CREATED,
    "indexed": moves.INDEXED,
    "sorts": moves.SORTS,
    "sizes": images.SIZES,
    "pieces": images.PIECES,
    "detection": images.DETECTION,
    "scaling": quantised.SCALING,
    "quantised layers": quantised.LAYERS,
    "quantised sums": quantised.SUMS,
}


def operators() -> set[str]:
    """Return the names of the operators in all cases."""
    texts = " ".join(case.text for cases in FAMILIES.values() for case in cases)
    return set(re.findall(r"(?<![%@\w.])([a-z_][\w.]*)\(", texts))
