"""Tilings of convolutions in groups of few channels."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.conv.grouped import SPARE, decide_grouped
from tvm_tiling.decide.conv.planes import decide_planes
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload

MACHINE = Hardware.load("icelake-server-2c")
LAYER = ConvWorkload(n=1, h=56, w=56, ci=128, co=128, kh=3, kw=3, padding=(1, 1, 1, 1), groups=32, layout="NHWC")


def decided(workload=LAYER, *, run=None):
    run = workload.ci if run is None else run
    return decide_grouped(workload, MACHINE.cpu, input_run=run, output_run=run, prepacked=True)


def test_small_groups_share_vectors_and_large_ones_do_not():
    assert tt.decide(LAYER, MACHINE, weights="packed").algorithm == "grouped"
    assert tt.decide(replace(LAYER, groups=4), MACHINE, weights="packed").algorithm != "grouped"


@pytest.mark.parametrize("width", [1, 7, 20, 56, 113])
def test_the_columns_of_a_tile_fit_the_registers_and_divide_a_row_evenly(width):
    columns = decided(replace(LAYER, w=width)).tile_columns
    parts = -(-width // columns)
    assert columns + SPARE <= MACHINE.cpu.vector_registers and columns == -(-width // parts)


def test_the_cores_divide_the_rows_unless_there_are_too_few():
    assert (decided().threads_rows, decided().threads_columns) == (2, 1)
    flat = decided(replace(LAYER, h=1, w=3000, kh=1, padding=(0, 1, 0, 1)))
    assert (flat.threads_rows, flat.threads_columns) == (1, 2)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"groups": 1}, "1 group of 128 input and 128 output channels"),
        ({"groups": 128}, "128 groups of 1 input and 1 output channels"),
        ({"groups": 4}, "4 groups of 32 input and 32 output channels"),
        ({"co": 96}, "32 groups of 4 input and 3 output channels"),
        ({"dtype": "int8", "acc_dtype": "int32"}, "not int8"),
        ({"padding_d": (1, 1)}, "not float32, padded in depth"),
        ({"kw": 400, "w": 800}, "unrolls the taps of a row"),
    ],
)
def test_others_are_refused_with_the_reason(changed, why):
    with pytest.raises(UnsupportedOperator, match=why):
        decided(replace(LAYER, **changed))


def test_channels_that_are_not_adjacent_are_refused():
    with pytest.raises(UnsupportedOperator, match="adjacent"):
        decided(replace(LAYER, layout="NCHW"), run=1)


def test_planes_are_images_too():
    with pytest.raises(UnsupportedOperator, match=r"'planes' requires a two-dimensional .* padded in depth"):
        decide_planes(replace(LAYER, layout="NCHW", padding_d=(1, 1)), MACHINE.cpu, input_run=1, prepacked=True)
