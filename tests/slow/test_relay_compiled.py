"""Every operator of Relay compiled by this package, not by TVM alone: schedules and passes see what it becomes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "frontend"))

import test_relay_elementwise as elementwise
import test_relay_images as images
import test_relay_layers as layers
import test_relay_moves as moves
import test_relay_quantised as quantised
from relay_cases import check, compiled_outputs

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family):
    check(FAMILIES[family], by=compiled_outputs)
