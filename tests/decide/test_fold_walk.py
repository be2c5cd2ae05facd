"""Evaluation of the W-fold engine: figures by hand, and the same cycles as stepping through every row and step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fold_steps import Sizes, stepped
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tvm_tiling.decide.decide import decide
from tvm_tiling.decide.fold.fold_nest import FoldNest, Layer
from tvm_tiling.decide.fold.fold_walk import fold_time, image_cycles
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Hardware
from tvm_tiling.workload import ConvWorkload

WHOLE = {"rows": 56, "wo": 56, "high": 3, "kw": 3, "ci": 16, "co": 64, "pitch": 16}  # a 3x3 layer of 56 x 56
SMALL = {**WHOLE, "rows": 2, "wo": 16}
LAYER = ConvWorkload(n=1, h=56, w=56, ci=16, co=64, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8")


def nest_of(unit, sizes, pci=16, pco=64, co_rows=4):
    layer = Layer(
        groups=1,
        rows=sizes.rows,
        wo=sizes.wo,
        w=sizes.wo + sizes.kw - 1,
        ci_bytes=sizes.ci,
        co=sizes.co,
        taps_high=sizes.high,
        kw=sizes.kw,
        d_s=1,
        d_out=sizes.out,
        pitch=sizes.pitch,
        d_acc=sizes.sums,
    )
    return FoldNest(layer, unit, pci, pco, co_rows)


def time_of(sizes=WHOLE, *, pci=16, pco=64, co_rows=4, leaves=False, **fields):
    unit = Hardware.wfold(**fields).w_fold
    return fold_time(nest_of(unit, Sizes(**sizes), pci, pco, co_rows), leaves)


# ---- by hand --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "cycles"),
    [
        (4, 2016 * (4 + 4)),  # three pieces of one kernel position, each formed when the previous one is over
        (5, 672 * (4 + 12)),  # all rows belong to the piece that is being multiplied
        (6, 4 + 672 * 12 + 671 * 3),
        (7, 4 + 672 * 12 + 671 * 2),
        (8, 4 + 672 * 12 + 671),  # there is space for three of four rows of the next piece
        (9, 4 + 672 * 12),
        (16, 4 + 672 * 12),
        (64, 4 + 672 * 12),
    ],
)
def test_rows_of_the_first_buffer_bound_how_far_rows_are_formed_ahead(rows, cycles):
    """224 blocks of 16 points, with 3 pieces of 12 steps, 5 rows per piece, of which 4 are needed to start."""
    assert sum(time_of(first_buffer_rows=rows)) == cycles


@pytest.mark.parametrize(
    ("rows", "co_rows", "cycles"),
    [
        (5, 4, 4 + 6 * 12),  # there is space for the first row of the next kernel position
        (4, 4, 4 + 6 * 12 + 5 * 1 + 6 * 2),  # one cycle for it after each kernel position, and after each piece
        (3, 4, 4 + 6 * 12 + 6 * 3),  # 3 and 1: the row after the 3 waits, those after the 1 do not
        (1, 4, 4 + 6 * 12 + 71),  # a cycle before each step except the first
        (9, 8, 4 + 6 * 24),
        (8, 8, 4 + 6 * 24 + 17),
    ],
)
def test_rows_of_the_second_buffer_bound_how_far_weights_are_loaded_ahead(rows, co_rows, cycles):
    """Two rows of one block of 16 points, 6 pieces of 3 kernel positions."""
    sizes = {**SMALL, "co": 16 * co_rows}
    fields = {"first_buffer_rows": 64, "second_buffer_rows": rows}
    assert sum(time_of(sizes, co_rows=co_rows, **fields)) == cycles


@pytest.mark.parametrize(
    ("rows", "cycles"),
    [
        (None, 4 + 36 + 8 * 64),  # 8 blocks of 36 steps, 16 rows per block leaving in 64 cycles
        (4, 4 + 8 * (36 + 64)),  # 4 channels of 16 sums of 4 bytes are 4 rows: one block
        (7, 4 + 8 * (36 + 64)),
        (8, 4 + 36 + 8 * 64),  # one is multiplied while the other leaves
    ],
)
def test_rows_of_the_result_buffer_bound_how_many_blocks_wait(rows, cycles):
    sizes = {**WHOLE, "rows": 8, "wo": 16}
    fields = {"first_buffer_rows": 64, "output_rows_per_cycle": 0.25, "result_buffer_rows": rows}
    assert sum(time_of(sizes, leaves=True, **fields)) == cycles


@pytest.mark.parametrize(
    ("staging", "cycles"),
    [
        (0, 9 * 5 * 4),  # four reads of 16 bytes for each of 5 rows of 9 pieces
        (4 * 48 - 1, 9 * 5 * 4),
        (4 * 48, 9 * 5 * 3),  # 192 bytes are three reads
        (5 * 4 * 48, 3 * 5 * 3 + 6 * 5),  # read once for all three blocks of channels
    ],
)
def test_staging_registers_save_reads_of_the_input_memory(staging, cycles):
    """48 bytes of channels in 3 blocks, one row of 16 points, one output channel of a sub-unit: the port is slowest."""
    sizes = {**WHOLE, "rows": 1, "wo": 16, "ci": 48, "pitch": 48, "co": 16}
    fields = {"first_buffer_rows": 64, "staging_bytes": staging, "input_reads_per_cycle": 1.0}
    # After the last row the last kernel position's step, and the previous one, which slid into that row as well.
    assert sum(time_of(sizes, co_rows=1, **fields)) == cycles + 2
    assert sum(time_of(sizes, co_rows=1, first_buffer_rows=64)) == 9 * 5 + 2  # a memory with banks


def test_an_image_is_instructions_whose_rows_are_formed_during_the_one_before():
    unit = Hardware.wfold().w_fold
    nest = nest_of(unit, Sizes(**WHOLE))
    assert [(count, part.layer.rows, leaves) for count, part, leaves in nest.instructions] == [(8, 7, True)]
    one = fold_time(nest.instructions[0][1], True)
    assert one == (3, 84 * 13, 8)  # the last 8 points leave in 8 rows
    assert image_cycles(nest) == 3 + 8 * 84 * 13 + 8 == sum(fold_time(nest, True))
    late = replace(unit, latency=5, interval=2000)
    assert image_cycles(nest_of(late, Sizes(**WHOLE))) == 3 + 8 * 2000 + 8 + 5


def test_the_decision_has_both_the_prediction_and_the_walk():
    for rows, cycles in ((5, 10752), (8, 8739), (16, 8068)):
        t = decide(LAYER, Hardware.wfold(first_buffer_rows=rows), mode="seed")
        assert (t.steady_cycles, t.cycles) == (8064, cycles + 8)  # 8 rows of results after the last step
        assert t.utilisation == pytest.approx(56 * 56 * 64 * 144 / 4096 / t.cycles)
        assert "prediction" in t.why("steady_cycles") and "simulated" in t.why("cycles")


def test_sums_that_find_no_room_are_refused_or_take_smaller_blocks():
    roomy = decide(LAYER, Hardware.wfold(), mode="seed")
    small = decide(LAYER, Hardware.wfold(result_buffer_rows=2), mode="seed")
    assert (roomy.co_block, small.co_block) == (64, 32)
    assert decide(LAYER, Hardware.wfold(result_buffer_rows=2)).cycles > decide(LAYER, Hardware.wfold()).cycles
    with pytest.raises(HardwareError, match=r"result_buffer_rows = 1 of 64 bytes cannot hold the sums of 64 po"):
        decide(LAYER, Hardware.wfold(units=64, first_buffer_rows=64, result_buffer_rows=1))


# ---- against stepping through it -------------------------------------------------------------------------------------

RATES = st.sampled_from((0.25, 0.375, 0.5, 1.0, 1.5, 3.0))


@st.composite
def engines(draw):
    row, units = draw(st.sampled_from((8, 16, 32))), draw(st.integers(1, 4))
    return Hardware.wfold(
        row_bytes=row,
        least_granularity=row // 4,
        sub_units=draw(st.integers(1, 3)),
        units=units,
        first_buffer_rows=units + draw(st.integers(0, 9)),
        second_buffer_rows=draw(st.integers(1, 9)),
        input_rows_per_cycle=draw(RATES),
        weight_rows_per_cycle=draw(RATES),
        output_rows_per_cycle=draw(RATES),
        staging_bytes=draw(st.sampled_from((0, 40, 80, 400))),
        result_buffer_rows=draw(st.none() | st.integers(8, 60)),
        input_reads_per_cycle=draw(st.none() | RATES),
    ).w_fold


@st.composite
def layers(draw):
    ci, out = draw(st.integers(1, 40)), draw(st.sampled_from((1, 2)))
    return Sizes(
        rows=draw(st.integers(1, 4)),
        wo=draw(st.integers(1, 40)),
        high=draw(st.integers(1, 3)),
        kw=draw(st.integers(1, 9)),
        ci=ci,
        co=draw(st.integers(1, 25)),
        pitch=ci * draw(st.integers(1, 2)),
        out=out,
        sums=draw(st.sampled_from((2, 4))),
    )


@settings(max_examples=100, deadline=None)
@given(engines(), layers(), st.integers(0, 2), st.integers(0, 2), st.integers(1, 9), st.booleans())
@example(Hardware.wfold().w_fold, Sizes(**WHOLE), 2, 0, 4, True)
@example(Hardware.wfold(first_buffer_rows=5).w_fold, Sizes(**WHOLE), 2, 0, 4, True)
def test_an_instruction_takes_as_long_as_stepping_through_it(unit, sizes, in_cut, out_cut, co_rows, leaves):
    nest = nest_of(unit, sizes, unit.row_bytes >> in_cut, unit.row_bytes >> out_cut, co_rows)
    if nest.rooms == 0:
        nest = replace(nest, unit=replace(unit, result_buffer_rows=nest.sum_rows))
    steps, written = stepped(nest.unit, sizes, nest.pci, nest.pco, co_rows, leaves)
    time = fold_time(nest, leaves)
    assert sum(time) == written
    assert min(time) >= 0 and steps >= nest.steps
    assert not leaves or written >= nest.least_cycles(nest.least_steps, nest.steady_cycles)


@settings(max_examples=50, deadline=None)
@given(engines(), layers(), st.integers(0, 2), st.integers(0, 2), st.integers(1, 9), st.integers(2, 5))
def test_instructions_one_after_the_other_take_as_long_as_one_of_all_their_rows(
    unit, sizes, in_cut, out_cut, co_rows, count
):
    """With one block of output channels, which is one pass over all rows in either case."""
    co_rows = max(co_rows, -(-sizes.co // unit.sub_units))
    nest = nest_of(unit, sizes, unit.row_bytes >> in_cut, unit.row_bytes >> out_cut, co_rows)
    if nest.rooms == 0:
        nest = replace(nest, unit=replace(unit, result_buffer_rows=nest.sum_rows))
    time = fold_time(nest, True)
    _, written = stepped(nest.unit, replace(sizes, rows=sizes.rows * count), nest.pci, nest.pco, co_rows)
    apart = time.fill + count * time.busy + time.drain
    # Fractions of cycles are rounded up in each instruction; if instructions differ by a few cycles, because rows take
    # fractions of cycles, each counts as much as the longest.
    assert written <= apart <= written + count
