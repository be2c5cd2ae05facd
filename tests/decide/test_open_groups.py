"""Decisions for grouped convolutions of dynamic images."""

from __future__ import annotations

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.conv.open_grouped import (
    WRITTEN_OUT,
    decide_open_grouped,
    lanes_of,
    tile_widths,
    vectors_alike,
    window_of,
)
from tvm_tiling.decide.conv.shape import shapes_of
from tvm_tiling.errors import HardwareError, UnsupportedOperator

CPU = tt.Hardware.load("zen4-server-8c")
IMAGE = {"n": 1, "h": 56, "w": 56, "ci": 64, "co": 64, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1), "groups": 8}


def image(**other):
    return tt.ConvWorkload(**{**IMAGE, **other}, layout="NHWC")


@pytest.mark.parametrize(
    ("ci", "co", "groups", "together", "parts", "used", "window", "alike"),
    [
        (64, 64, 8, 2, 1, 16, 16, 4),
        (33, 33, 11, 5, 1, 15, 16, 2),  # the last vector begins at group 6, where 15 channels are left
        (48, 96, 4, 1, 2, 16, 16, 8),
        (6, 6, 2, 2, 1, 6, 6, 1),
        (52, 52, 2, 1, 2, 16, 32, 4),
        (640, 64, 32, 3, 1, 6, 64, 10),  # the inputs of 8 groups are more than 4 vectors
    ],
)
def test_vectors(ci, co, groups, together, parts, used, window, alike):
    shape = shapes_of(image(ci=ci, co=co, groups=groups))[0]
    assert lanes_of(shape, 16) == (together, parts, used)
    assert (window_of(shape, 16), vectors_alike(shape, 16)) == (window, alike)


def test_few_tiles_are_computed_on_one_core():
    tiling = decide_open_grouped(image(), CPU, packing="ahead")
    assert (tiling.form, tiling.pack_w, tiling.rule) == ("grouped", "ahead", None)
    few, many = tiling.ranges
    assert (few.threads, many.threads, many.tiles) == ((1, 1), (8, 1), None)
    assert [r.threads for r in decide_open_grouped(image(), CPU.with_cores(1)).ranges] == [(1, 1)]


def test_tiles_are_narrower_where_more_is_unrolled():
    wide, narrow = (decide_open_grouped(image(kw=kw), CPU).tile_columns for kw in (3, 7))
    assert wide > narrow and (narrow + sum(tile_widths(narrow))) * 7 * 8 <= WRITTEN_OUT
    assert tile_widths(14) == [14, 7, 4] and tile_widths(1) == [1]


def test_what_is_refused():
    for other, said in (
        ({"groups": 64}, "several groups of more than one channel"),
        ({"kw": 71, "padding": (1, 35, 1, 35)}, "unrolls the 71 taps of a row for 8 channels"),
        ({"dtype": "int8"}, "float32"),
    ):
        with pytest.raises(UnsupportedOperator, match=said):
            decide_open_grouped(image(**other), CPU)
    with pytest.raises(HardwareError, match="has no CPU"):
        decide_open_grouped(image(), tt.Hardware.load("vta"))
