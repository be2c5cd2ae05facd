"""Eyeriss compared with the chip: the published table, a part of a layer, and the figures of the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.validation_eyeriss import LAYERS, eyeriss, published_megabytes, saved_of_maps, silicon, simulated
from tvm_tiling.accel.row_stationary import configured

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"


def told():
    """Figures of the page by layer: measured and simulated milliseconds, error, megabytes of kernels, of maps,
    compressed."""
    rows = [line.strip("|").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| conv")]
    return {row[0].strip(): [float(cell.rstrip(" %msMB")) for cell in row[1:]] for row in rows}


def test_published_mappings_have_the_published_elements_at_work():
    layers = silicon()
    assert list(layers) == list(LAYERS)
    for name, layer in layers.items():
        assert layer.mapping.elements(LAYERS[name]) == layer.elements
        configured(LAYERS[name], layer.mapping, eyeriss())


def test_the_layers_have_the_published_multiply_accumulates():
    millions = [round(layer.macs / 1e6, 1) for layer in LAYERS.values()]
    assert millions == [421.7, 895.8, 598.1, 448.6, 299.0]


def test_a_part_of_the_last_layer_takes_its_part_of_the_time():
    """The layer is eight times this part: two groups, and four times 64 of their 128 output channels."""
    mapping = silicon()["conv5"].mapping
    part = replace(LAYERS["conv5"], ci=24, co=64, groups=1)
    own = simulated(part, mapping)
    whole = LAYERS["conv5"]
    passes = (whole.ci // part.ci) * (whole.co // 2 // part.co)
    milliseconds, kernels = told()["conv5"][1], told()["conv5"][3]
    assert own.milliseconds * passes == pytest.approx(milliseconds, rel=0.03)
    assert own.kernels * passes == pytest.approx(kernels, abs=0.006)


def test_the_page_is_within_what_it_says():
    layers, page = silicon(), told()
    assert list(page) == list(layers)
    total = 0.0
    for name, (measured, own, error, kernels, maps, coded) in page.items():
        assert measured == layers[name].milliseconds
        assert error == pytest.approx(100 * (own / measured - 1), abs=0.5)
        assert abs(error) <= 10
        assert coded == pytest.approx(maps * (1 - saved_of_maps(name)), abs=0.02)
        total += kernels + coded
    assert total == pytest.approx(published_megabytes(), rel=0.15)
