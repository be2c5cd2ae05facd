"""Decisions for convolutions of images with dynamic height and width."""

from __future__ import annotations

import json

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.conv.cpu_conv import decide_conv_on_cpu
from tvm_tiling.decide.conv.open_winograd import MOST_ROWS, OpenConvTiling, decide_open_winograd
from tvm_tiling.decide.recorded import read_decision
from tvm_tiling.errors import HardwareError, UnsupportedOperator

TARGETS = ["zen4-server-8c", "neoverse-v1-16c", "skylake-desktop-8c"]


def images(sides=(32, 64), **other):
    layer = {"n": 1, "ci": 128, "co": 128, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1), **other}
    return [tt.ConvWorkload(h=side, w=side, **layer) for side in sides]


def decided(target="zen4-server-8c", **other) -> OpenConvTiling:
    return decide_open_winograd(images(**other), tt.Hardware.load(target), packing="ahead")


@pytest.mark.parametrize("target", TARGETS)
def test_ranges_cover_all_images_and_use_no_more_cores_than_there_are(target):
    tiling = decided(target)
    limits = [found.tiles for found in tiling.ranges]
    assert limits[-1] is None and limits[:-1] == sorted(limits[:-1])
    assert all(1 <= found.threads_tiles * found.threads_channels <= 16 for found in tiling.ranges)
    neighbours = zip(tiling.ranges, tiling.ranges[1:], strict=False)
    assert all(one.threads != other.threads for one, other in neighbours)


@pytest.mark.parametrize("target", TARGETS)
def test_no_slower_than_fixed_sizes_by_more_than_low_register_tiles_cost(target):
    tiling = decided(target)
    best = decide_conv_on_cpu(images()[0], tt.Hardware.load(target), packing="ahead")
    assert best.form == "winograd" and tiling.winograd.rows <= MOST_ROWS
    assert tiling.predicted_seconds <= 1.15 * best.predicted_seconds


def test_it_is_taken_where_it_is_faster_in_the_mean_of_all_sizes():
    with pytest.raises(UnsupportedOperator, match="predicted to take"):
        decided(sides=(4, 5), ci=1024, co=1024)
    with pytest.raises(UnsupportedOperator, match="stride 1 and one group"):
        decided(stride=(2, 2))
    hardware = tt.Hardware.load("zen4-server-8c")
    with pytest.raises(UnsupportedOperator, match="disabled"):
        decide_open_winograd(images(), hardware, winograd=False)
    with pytest.raises(UnsupportedOperator, match="predicted error"):
        decide_open_winograd(images(), hardware, tolerance=1e-9)
    with pytest.raises(HardwareError, match="has no CPU"):
        decide_open_winograd(images(), tt.Hardware.load("vta"))


def test_a_decision_is_read_back_and_explains_itself():
    tiling = decided()
    assert read_decision(tiling.to_json()) == tiling
    assert json.loads(tiling.to_json())["op"] == "conv of open images"
    said = tiling.explain()
    assert "cores by tiles" in said and "geometric mean for images of 32 x 32, 64 x 64" in said
    assert str(tiling.ranges[-1]) in said
