"""Matrix multiplications on two arrays compared with their RTL's cycles, and the explanation of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.validation_rtl import ARRAYS, rtl_products, simulated_cycles


@pytest.fixture(scope="module")
def own():
    """Simulated cycles by matrix multiplication."""
    return {product: simulated_cycles(product) for product in rtl_products()}


def blocks(*sizes):
    """Number of blocks of 16 in all of the sizes."""
    return 1 if not sizes else -(-sizes[0] // 16) * blocks(*sizes[1:])


def test_there_are_twenty_gemms_for_each_array(own):
    assert [sum(product.array == name for product in own) for name in ARRAYS] == [20, 20]
    assert len(own) == 40


def test_the_rtl_of_the_array_that_keeps_sums(own):
    for product, cycles in own.items():
        if product.array == "output_stationary":
            assert product.rtl == blocks(product.m, product.n) * product.k + 30 + 2 + 16
            assert product.rtl + 1 <= cycles <= product.rtl + 2


def test_the_rtl_of_the_array_that_keeps_weights(own):
    for product, cycles in own.items():
        if product.array == "weight_stationary":
            assert product.rtl == blocks(product.m, product.k) * (16 + product.n + 46)
            assert product.rtl + 2 <= cycles <= product.rtl + 20


def test_the_page_has_the_errors(own):
    errors = {name: [abs(cycles / p.rtl - 1) for p, cycles in own.items() if p.array == name] for name in ARRAYS}
    assert sum(error > 0.03 for errors_of_one in errors.values() for error in errors_of_one) == 1
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text()
    for name, told in zip(ARRAYS, ("output-stationary", "weight-stationary"), strict=True):
        (row,) = (line for line in page.splitlines() if line.startswith(f"| {told}"))
        mean, largest = (float(cell.strip(" %")) for cell in row.split("|")[2:4])
        assert mean == pytest.approx(100 * sum(errors[name]) / 20, abs=0.05)
        assert largest == pytest.approx(100 * max(errors[name]), abs=0.05)
