"""All pairs of awkward sizes, and every register tile of this CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "numeric"))  # whose products are used here

from products import Product, check, check_tile, legal_tiles, native

SIZES = (1, 2, 7, 15, 16, 17, 31, 33, 64, 127, 128, 131, 251)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("m", SIZES)
def test_every_pair_of_sizes(m, dtype):
    """A Latin square: each (m, n), (n, k) and (m, k) of SIZES once over all m."""
    for j, n in enumerate(SIZES):
        k = SIZES[(SIZES.index(m) + j) % len(SIZES)]
        check(Product(m=m, n=n, k=k, dtype=dtype), seed=j)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["plain", "packed"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_every_register_tile(dtype, weights):
    hardware = native()
    for tile in legal_tiles(hardware.cpu.vector_registers):
        check_tile(hardware, tile, dtype, weights=weights)
