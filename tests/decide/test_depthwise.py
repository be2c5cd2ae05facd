"""Tilings of depthwise convolutions, and the basis of the prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tiling.decide.conv.depthwise import adjacent_channels, apart, decide_depthwise, rows_inside
from tvm_tiling.decide.conv.shape import Axis, shapes_of
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload

CPU = Hardware.load("zen4-server-8c").cpu
LAYER = ConvWorkload(n=1, h=28, w=28, ci=192, co=192, kh=3, kw=3, padding=(1, 1, 1, 1), groups=192)


def decided(workload=LAYER, cpu=CPU, *, run=None, prepacked=True):
    run = workload.ci if run is None else run
    return decide_depthwise(workload, cpu, input_run=run, output_run=run, prepacked=prepacked)


def test_a_tile_and_the_weights_of_a_row_fit_the_registers():
    for taps in range(1, 12):
        for width in (7, 14, 56, 113):
            border = (taps // 2,) * 4
            workload = replace(LAYER, kh=taps, kw=taps, w=width, h=13, padding=border)
            tiling = decided(workload)
            assert tiling.tile_rows == 1
            assert tiling.vectors * (tiling.tile_columns + taps) < CPU.vector_registers
            assert tiling.tile_columns <= workload.wo


@pytest.mark.parametrize(
    "layout, run, along, lanes",
    [
        ("NHWC", 192, "channels", 16),
        ("NHWC", 1, "channels", 16),  # computed in its layout
        ("NCHW", 1, "columns", 16),
        ("NCHW4c", 4, "channels", 4),
        ("NCHW8c", 8, "channels", 8),
        ("NCHW16c", 16, "channels", 16),
        ("NCHW32c", 32, "channels", 16),
    ],
)
def test_lanes_lie_along_what_is_adjacent(layout, run, along, lanes):
    tiling = decided(replace(LAYER, layout=layout), run=run)
    assert (tiling.lanes_along, tiling.lanes) == (along, lanes)


def test_one_channel_has_columns_in_its_lanes():
    assert decided(replace(LAYER, ci=1, co=1, groups=1)).lanes_along == "columns"


def test_adjacent_channels_of_what_is_computed_are_those_of_its_layout():
    assert adjacent_channels(LAYER, 1) == 192
    assert adjacent_channels(replace(LAYER, layout="NCHW"), 1) == 1
    assert adjacent_channels(replace(LAYER, layout="NCHW8c"), 1) == 8
    assert adjacent_channels(replace(LAYER, layout="NCHW8c"), 16) == 16


def test_rows_under_a_block_of_channels_stay_in_the_first_cache_where_inputs_stream():
    tiling = decided(replace(LAYER, h=112, w=112, ci=960, co=960, groups=960, stride=(2, 2)))
    columns = (tiling.tile_columns - 1) * 2 + 3
    assert tiling.columns < 960
    assert 3 * columns * tiling.columns * 4 <= CPU.cache(1).size


def test_every_core_gets_a_share_where_there_is_enough_to_do():
    large = decided(replace(LAYER, h=112, w=112))
    assert large.threads_rows * large.threads_columns == CPU.cores
    flat = decided(replace(LAYER, h=1, kh=1, w=4000, padding=(0, 1, 0, 1), ci=16, co=16, groups=16))
    assert flat.threads_rows * flat.threads_columns == CPU.cores
    small = decided(replace(LAYER, h=3, w=3, ci=8, co=8, groups=8))
    assert (small.threads_rows, small.threads_columns) == (1, 1)


def test_predictions_grow_with_the_work_and_shrink_with_the_cores():
    def seconds(**changes):
        return decided(replace(LAYER, **changes)).predicted_seconds

    assert seconds(h=56) > 1.3 * seconds()
    assert seconds(kh=5, kw=5, padding=(2, 2, 2, 2)) > 1.5 * seconds()
    assert decided(replace(LAYER, layout="NCHW"), run=1).predicted_seconds > seconds()
    assert decided(prepacked=False).predicted_seconds > seconds()
    one = replace(CPU, cores=1, threads=1)
    assert decided(cpu=one).predicted_seconds > 2 * seconds()


def test_a_prediction_is_never_quicker_than_the_multiply_adds_or_the_bytes():
    for changes in (
        {},
        {"stride": (2, 2)},
        {"h": 112, "w": 112},
        {"h": 7, "w": 7, "ci": 960, "co": 960, "groups": 960},
    ):
        workload = replace(LAYER, **changes)
        cycles = decided(workload).predicted_seconds * (CPU.clock_mhz or 3000.0) * 1e6
        h, w = shapes_of(workload)[0].h, shapes_of(workload)[0].w
        macs = workload.macs * rows_inside(h) * rows_inside(w)
        assert cycles * CPU.cores * 16 * CPU.fma_units >= macs
        assert (
            cycles * CPU.cores * CPU.l2_bytes_per_cycle >= workload.bytes - workload.co * workload.kh * workload.kw * 4
        )


def test_reasons_name_what_was_chosen():
    tiling = decided()
    assert tiling.why("form") == "192 groups of one channel"
    assert tiling.why("lanes_along") == "channels are adjacent"
    assert f"fit {CPU.vector_registers} registers" in tiling.why("tile_columns")
    assert "vectors hold" in tiling.explain()


def test_wide_borders_and_kernels_are_walked_or_refused():
    wide = replace(LAYER, h=1, kh=1, kw=41, padding=(0, 20, 0, 20), w=90)
    assert decided(wide).walk_columns
    spread = replace(LAYER, dilation=(1, 200), padding=(0, 200, 0, 200), w=300)
    assert decided(spread).walk_columns or decided(spread).tile_columns > 1
    with pytest.raises(UnsupportedOperator, match="at most 32"):
        decided(replace(wide, layout="NCHW"), run=1)


def test_other_groups_are_refused():
    with pytest.raises(UnsupportedOperator, match="48 groups of 192 channels"):
        decided(replace(LAYER, groups=48))


def test_tiles_apart_are_those_with_a_border():
    plain = Axis(points=28, size=28, taps=1)
    assert apart(plain, 7) == 0
    assert apart(plain, 8) == 1  # the last is narrower
    bordered = Axis(points=28, size=28, taps=3, start=-1)
    assert apart(bordered, 7) == 2
    assert apart(bordered, 28) == 1
    assert apart(Axis(points=3, size=1, taps=3, start=-2), 1) == 3


def test_rows_inside_counts_taps():
    assert rows_inside(Axis(points=28, size=30, taps=3)) == 1.0
    assert rows_inside(Axis(points=4, size=4, taps=3, start=-1)) == 10 / 12
    assert rows_inside(Axis(points=2, size=2, taps=0)) == 1.0


def test_inside_is_where_all_taps_are():
    axis = Axis(points=14, size=28, taps=3, stride=2, start=-1)
    want = [p for p in range(14) if all(0 <= p * 2 - 1 + t < 28 for t in range(3))]
    assert list(range(*axis.inside)) == want
