"""W-fold on the fold engine: worked examples, and counts against a scalar loop nest."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time

import numpy as np
import pytest
from conv_reference import Counted, Machine, convolution, walk
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tvm_tiling.decide.conv.stride_fold import StrideFold
from tvm_tiling.decide.decide import decide
from tvm_tiling.decide.fold.fold_nest import FoldNest
from tvm_tiling.decide.fold.fold_walk import image_cycles
from tvm_tiling.decide.fold.granularity import granularity
from tvm_tiling.decide.fold.wfold import decide_wfold, layer_of
from tvm_tiling.decide.labels import label
from tvm_tiling.errors import HardwareError, TilingError, UnsupportedOperator
from tvm_tiling.hardware import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

WFOLD16 = Hardware.load("wfold16")
PAGE_05 = """form stride_fold pci ws bci aco co_block kmax kw_pieces pco wso pco_whole pco_remainder loop_order
instruction_rows instruction_columns block_steps steps reads weight_rows write_rows steady_cycles cycles utilisation"""


def conv(**fields):
    """Return an int8 3x3 convolution, 56x56x16 to 64 channels, except for `fields`."""
    usual = {"n": 1, "h": 56, "w": 56, "ci": 16, "co": 64, "kh": 3, "kw": 3, "padding": (1, 1, 1, 1), "dtype": "int8"}
    return ConvWorkload(**{**usual, **fields})


def seed(hardware=WFOLD16, **fields):
    return decide(conv(**fields), hardware, mode="seed")


def best(hardware=WFOLD16, **fields):
    return decide(conv(**fields), hardware)


# ---- worked examples of the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ci", "pci"), [(48, 16), (28, 32), (49, 64), (14, 16), (47, 16), (96, 32), (128, 64)], ids=lambda v: str(v)
)
def test_pci_by_the_padding_rule(ci, pci):
    t = seed(ci=ci)
    assert (t.pci, t.ws, t.bci) == (pci, 64 // pci, -(-ci // pci))
    assert seed(ci=1, co=ci).pco == pci  # PCO is chosen like PCI


def test_channels_count_in_bytes():
    assert seed(ci=12, dtype="float32").pci == seed(ci=48, dtype="int8").pci == 16
    assert seed(ci=24, dtype="float16").bci == 3


def test_exactly_the_slack_more_is_too_much():
    assert granularity(48, (64, 32, 16, 8), 16) == 16  # 64 pads 16 more than 8 does
    assert granularity(48, (64, 32, 16, 8), 17) == 64
    assert seed(Hardware.wfold(padding_slack=17), ci=48).pci == 64


@pytest.mark.parametrize(("ci", "ws", "kmax"), [(16, 4, 17), (32, 2, 9), (64, 1, 5)])
def test_kmax(ci, ws, kmax):
    t = seed(ci=ci)
    assert (t.ws, t.kmax) == (ws, kmax)


def test_ci_16_co_64_takes_36_steps_for_16_by_64_points():
    t = seed(ci=16, co=64)
    assert (t.block_steps, t.ws * WFOLD16.w_fold.units, t.aco) == (36, 16, 64)
    assert t.co_block // 16 == 4  # output channels per sub-unit that an input row serves
    assert t.steps == 56 * 4 * 36


def test_ci_48_co_32_takes_54_steps_for_16_by_32_points():
    t = seed(ci=48, co=32)
    assert (t.block_steps, t.ws * WFOLD16.w_fold.units, t.aco) == (54, 16, 32)
    assert t.co_block // 16 == 2
    assert t.steps == 56 * 4 * 54


def test_kernels_wider_than_kmax_are_config_the_last_piece_shorter():
    assert seed(kw=17, padding=(1, 8, 1, 8)).kw_pieces == (17,)
    t = seed(kw=19, padding=(1, 9, 1, 9))
    assert t.kw_pieces == (17, 2) and t.block_steps == 4 * 17 * 3
    assert t.steps == 56 * 4 * 4 * 19 * 3
    assert t.reads == 56 * 4 * 3 * (8 + 5)  # 32 columns, then 17, in rows of 4
    assert "kw_piece" in t.loop_order and "kw_piece" not in seed().loop_order


def test_4_by_5_with_stride_2():
    t = seed(h=4, w=5, ci=16, co=64, stride=(2, 2), padding=(0, 0, 0, 0))
    # 4 x 3 x 32 and kernels of 3 x 2 x 32: one output row of two points, at most 2 blocks of channels.
    assert (t.stride_fold, t.pci, t.bci, t.kw_pieces) == (2, 32, 1, (2,))
    assert t.steps == 1 * 1 * 4 * 3 * 2


def test_more_neighbours_than_the_width_are_not_admissible():
    assert (seed(ci=16).pci, best(ci=8).pci) == (16, 8)
    assert seed(ci=16, w=3).pci == 32  # Ws = 4 of 3 columns
    assert seed(ci=16, w=1, kw=1, padding=(1, 0, 1, 0)).pci == 64
    assert (seed(ci=8, w=8, stride=(1, 2)).pci, seed(ci=8, w=6, stride=(1, 2)).pci) == (16, 32)  # 4 and 3 columns
    assert all(best(ci=3, w=w).ws <= w for w in range(1, 9))


def test_the_rule_takes_no_8_where_16_is_admissible():
    """16 pads at most 15 bytes: less than the minimum plus 16. Only mode best includes the cost of padding."""
    assert all(seed(ci=ci).pci >= 16 for ci in range(1, 100))
    assert {best(ci=ci).pci for ci in range(1, 9)} == {8}


def test_the_stem_prefers_8_where_the_rule_takes_16():
    stem = {"h": 224, "w": 224, "ci": 3, "kh": 7, "kw": 7, "stride": (2, 2), "padding": (3, 3, 3, 3)}
    literal, t = seed(**stem), best(**stem)
    assert (literal.pci, literal.steps) == (16, 112 * 7 * 4 * 7 * 4)
    assert (t.pci, t.steps) == (8, 112 * 4 * 4 * 7 * 4)
    assert (literal.steady_cycles, t.steady_cycles) == (87808, 50176)
    assert (
        "mode seed chooses 16" in t.why("pci") and "16: at least 9" in t.why("pci") and f"8: {t.cycles}" in t.why("pci")
    )
    assert "mode best chooses 8" in literal.why("pci")


def test_mode_best_takes_the_fewest_cycles_not_the_fewest_steps():
    t = best(h=8, w=42, ci=199, co=16, kh=1, kw=5, padding=(0, 0, 0, 0))
    assert (t.pci, t.steps, t.reads, t.steady_cycles) == (16, 1560, 1560, 1560)
    assert t.cycles > 1560 and "32: at least 19" in t.why("pci")  # 1400 steps, but 1680 rows of input


# ---- output channels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("co", "aco"), [(1, 16), (16, 16), (17, 32), (64, 64), (100, 112)])
def test_aco_is_whole_rounds_of_sub_units(co, aco):
    assert seed(co=co).aco == best(co=co).aco == aco


def test_co_is_config_in_blocks_of_64_and_larger_ones_where_the_second_buffer_holds_them():
    literal, t = seed(co=128), best(co=128)
    assert (literal.co_block, t.co_block) == (64, 128)  # 8 rows of weights out of 9
    assert literal.steps == t.steps and literal.reads == 2 * t.reads
    assert best(co=160).co_block == 128  # 10 rows do not fit: two passes
    four, five = (best(Hardware.wfold(second_buffer_rows=rows), co=128) for rows in (4, 5))
    assert (four.co_block, five.co_block) == (48, 64)  # so that weights of the next kernel position find space
    assert "fewer cycles than the machine's default block" in four.why("co_block")
    assert "larger one saves nothing" in five.why("co_block")


def test_pco_has_whole_pieces_and_a_remainder():
    t = seed(co=100)  # 8 and 16 bytes pad 4 and 12, 32 and 64 pad 28
    assert (t.pco, t.wso, t.pco_whole, t.pco_remainder) == (16, 4, 6, 4)
    one = seed(co=16)
    assert (one.pco, one.wso, one.pco_whole, one.pco_remainder) == (16, 4, 1, 0)
    assert "one write" in one.why("wso")
    assert "4 writes at a distance of Co" in seed(co=48).why("wso")


def test_wide_results_take_wider_pieces():
    assert seed(co=16).pco == 16
    assert seed(Hardware.wfold(output_element_bytes=4), co=16).pco == 64


# ---- ports ----------------------------------------------------------------------------------------------------------


def test_the_slowest_of_multipliers_and_ports_decides():
    pointwise = {"kh": 1, "kw": 1, "padding": (0, 0, 0, 0)}
    t = seed(co=16, **pointwise)  # one step for four rows of input
    assert (t.steps, t.reads, t.steady_cycles) == (56 * 4, 56 * 4 * 4, 56 * 4 * 4)
    fast = seed(Hardware.wfold(input_rows_per_cycle=4), co=16, **pointwise)
    assert fast.steady_cycles == max(fast.steps, fast.write_rows)
    slow = seed(Hardware.wfold(output_rows_per_cycle=0.01))
    assert slow.steady_cycles == slow.write_rows * 100 and "write-out" in slow.why("steady_cycles")
    assert slow.cycles == 4 + 36 + 2 + slow.write_rows * 100  # after the first block and its two gaps
    assert seed(Hardware.wfold(weight_rows_per_cycle=0.5)).steady_cycles == 2 * seed().weight_rows


def test_utilisation_is_the_plain_multiply_adds_at_peak_over_cycles():
    t = seed(Hardware.wfold(first_buffer_rows=10), ci=64, co=64, w=64, padding=(1, 1, 1, 1))
    assert t.utilisation == pytest.approx(56 * 64 * 64 * 64 * 9 / 4096 / t.cycles)
    assert 0.999 < t.utilisation < 1.0 and t.steady_cycles == t.steps  # 4 cycles before, and 4 rows after
    assert seed(ci=16, co=16, n=3).utilisation == seed(ci=16, co=16).utilisation
    assert all(0 < best(ci=ci, co=co).utilisation <= 1 for ci in (1, 3, 7, 64, 65) for co in (1, 16, 65))


# ---- what is served, and how ----------------------------------------------------------------------------------------


def test_dilation_expands_the_kernel_along_w_only():
    plain, dilated = seed(), seed(dilation=(2, 2), padding=(2, 2, 2, 2))
    assert dilated.kw_pieces == (5,) and dilated.steps == plain.steps // 3 * 5
    assert "expanded to 5" in dilated.why("stride_fold")
    assert seed(dilation=(2, 1), padding=(2, 1, 2, 1)).steps == plain.steps


def test_groups_run_one_after_the_other():
    one, four = seed(ci=16, co=32), seed(ci=64, co=128, groups=4)
    assert four.steps == 4 * one.steps and four.reads == 4 * one.reads and four.aco == 32
    assert four.loop_order[-1] == "group" and "4 groups in sequence" in four.why("steps")
    depthwise = best(ci=32, co=32, groups=32)
    assert (depthwise.aco, depthwise.bci) == (16, 1) and depthwise.utilisation < 1 / 16


def test_any_stride_along_h_and_depth_is_free():
    assert seed(stride=(3, 1)).stride_fold == 1
    assert seed(h=57, stride=(3, 1)).steps == 19 * 4 * 36
    deep = seed(d=5, kd=3, padding_d=(1, 1))
    assert deep.steps == 5 * 3 * seed().steps and deep.block_steps == 3 * 36
    assert "kd" in deep.loop_order and "do" in deep.loop_order


@pytest.mark.parametrize("place", ["load", "local", "in place"])
def test_the_description_says_where_rows_are_padded(place):
    hardware = Hardware.wfold(fold_place=place)
    moved = seed(hardware, w=57, stride=(1, 2))
    text = {"load": "external memory", "local": "local buffer", "in place": "tail to its head"}[place]
    assert text in moved.why("stride_fold")
    assert "no data moves" in seed(hardware, stride=(1, 2)).why("stride_fold")
    assert moved.steps == seed(w=57, stride=(1, 2)).steps


def test_how_neighbours_are_read():
    assert "each is one contiguous read" in seed(ci=16).why("reads")
    assert "each takes 4 reads of 16 bytes" in seed(ci=48).why("reads")
    assert "staging registers" in seed(Hardware.wfold(staging_bytes=4 * 48), ci=48).why("reads")
    assert "each takes 4 reads of 16 bytes" in seed(Hardware.wfold(staging_bytes=4 * 48 - 1), ci=48).why("reads")


@pytest.mark.parametrize("mode", ["best", "seed"])
def test_every_field_has_a_reason_and_is_explained(mode):
    t = decide(conv(ci=48, stride=(1, 2)), WFOLD16, mode=mode)
    named = set(PAGE_05.split())
    assert {r.field for r in t.reasons} == named
    assert all(r.value == getattr(t, r.field) and r.why for r in t.reasons)
    rest = {f.name for f in dataclasses.fields(t)} - named - {"mode", "reasons", "candidates"}
    assert "tile_rows" in rest and all(getattr(t, name) is None for name in rest)  # a CPU's
    text = t.explain()
    assert text.startswith("conv tiling\n" if mode == "best" else "conv tiling, mode seed\n") and "CPU" not in text
    assert all(f"    {label(t.op, name)} " in text for name in named)
    assert json.loads(t.to_json()) == json.loads(json.dumps(t.to_dict()))
    assert json.loads(t.to_json())["op"] == "conv"


def test_the_machine_is_chosen_by_its_units():
    both = dataclasses.replace(WFOLD16, near_tile=Hardware.load("neartile").near_tile)
    assert decide(conv(), both).form == decide(conv(), WFOLD16, algorithm="wfold").form == "wfold"
    assert decide(GemmWorkload(m=64, n=64, k=64), both).partition_m


def test_a_decision_takes_less_than_five_milliseconds():
    w = conv(h=224, w=224, ci=512, co=2048, kh=7, kw=7, padding=(3, 3, 3, 3))
    decide(w, WFOLD16)
    seconds = []
    for _ in range(10):
        start = time.process_time()
        decide(w, WFOLD16)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.005  # the others had neighbours


# ---- against the loop nest ------------------------------------------------------------------------------------------


@st.composite
def small_machines(draw):
    row, units, rate = draw(st.sampled_from((4, 8, 16))), draw(st.integers(1, 3)), st.sampled_from((0.25, 1.0, 3.0))
    return Hardware.wfold(
        row_bytes=row,
        least_granularity=draw(st.sampled_from((row // 4, row // 2, row))),
        sub_units=draw(st.integers(1, 3)),
        units=units,
        first_buffer_rows=units + draw(st.integers(0, 3)),
        second_buffer_rows=draw(st.integers(1, 5)),
        co_block_factor=draw(st.integers(1, 3)),
        padding_slack=draw(st.integers(1, 5)),
        input_rows_per_cycle=draw(rate),
        weight_rows_per_cycle=draw(rate),
        output_rows_per_cycle=draw(rate),
    )


@st.composite
def small_layers(draw, strides=(1, 2, 3, 4), dilations=(1, 2)):
    kh, kw, dilation = draw(st.integers(1, 2)), draw(st.integers(1, 7)), draw(st.sampled_from(dilations))
    padding = draw(st.tuples(*(st.integers(0, most) for most in (1, 3, 1, 3))))
    return ConvWorkload(
        n=1,
        h=max(1, kh - padding[0] - padding[2]) + draw(st.integers(0, 1)),
        w=max(1, dilation * (kw - 1) + 1 - padding[1] - padding[3]) + draw(st.integers(0, 9)),
        ci=draw(st.integers(1, 6)),
        co=draw(st.integers(1, 7)),
        kh=kh,
        kw=kw,
        stride=(draw(st.integers(1, 2)), draw(st.sampled_from(strides))),
        padding=padding,
        dilation=(1, dilation),
        dtype="int8",
    )


def walked(w, unit, pci, pco, co_rows):
    """Return the loop nest's results and counts for a convolution, stride-folded if necessary."""
    rng = np.random.default_rng(w.w * 100 + w.ci)
    x = rng.integers(-9, 10, (w.h, w.w, w.ci))
    weights = rng.integers(-9, 10, (w.co, w.kh, w.kw, w.ci))
    fold = StrideFold(w)
    machine = Machine(
        row=unit.row_bytes,
        sub_units=unit.sub_units,
        units=unit.units,
        first_rows=unit.first_buffer_rows,
        pci=pci,
        pco=pco,
        co_rows=co_rows,
    )
    image, kernels, padding = fold.fold_input(x), fold.fold_weights(weights), fold.folded().padding
    y, counted = walk(image, kernels, machine, stride_h=w.stride[0], padding=padding, wo=w.wo)
    expected = convolution(x[None], weights, w.stride, w.padding, w.dilation)[0]
    np.testing.assert_array_equal(y, expected)
    return counted


def steady_cycles(unit, c: Counted):
    ports = (c.reads / unit.input_rows_per_cycle, c.weight_rows / unit.weight_rows_per_cycle)
    return max(c.steps, *map(math.ceil, (*ports, c.write_rows / unit.output_rows_per_cycle)))


def check(t, unit, counted: Counted):
    assert (t.steps, t.reads, t.weight_rows) == (counted.steps, counted.reads, counted.weight_rows)
    assert t.write_rows == counted.write_rows
    assert list(t.kw_pieces) == counted.pieces
    if len(t.kw_pieces) == 1:
        assert t.block_steps == counted.first_block_steps
    assert t.steady_cycles == steady_cycles(unit, counted)
    assert t.cycles >= t.steady_cycles


@settings(max_examples=75, deadline=None)
@given(small_layers(strides=(1,), dilations=(1,)), small_machines(), st.sampled_from(("best", "seed")))
def test_counts_and_results_are_those_of_the_nest(w, hardware, mode):
    t = decide(w, hardware, mode=mode)
    assert t.stride_fold == 1
    unit = hardware.w_fold
    check(t, unit, walked(w, unit, t.pci, t.pco, t.co_block // unit.sub_units))


@settings(max_examples=125, deadline=None)
@given(small_layers(), small_machines(), st.sampled_from(("best", "seed")))
def test_stride_fold_and_w_fold_together_are_the_plain_convolution(w, hardware, mode):
    t = decide(w, hardware, mode=mode)
    assert t.stride_fold == w.stride[1]
    unit = hardware.w_fold
    check(t, unit, walked(w, unit, t.pci, t.pco, t.co_block // unit.sub_units))


# Two rows of output channels fill a row of results, the usual three do not.
FEWER_THAN_USUAL = Hardware.wfold(
    row_bytes=4,
    sub_units=2,
    units=1,
    first_buffer_rows=1,
    second_buffer_rows=1,
    least_granularity=1,
    padding_slack=1,
    co_block_factor=3,
    input_rows_per_cycle=0.25,
    weight_rows_per_cycle=0.25,
    output_rows_per_cycle=0.25,
)


# A block of four fills the second buffer, the following one of two does not.
TWO_SIZES_OF_BLOCKS = Hardware.wfold(
    row_bytes=4,
    sub_units=1,
    units=1,
    first_buffer_rows=2,
    second_buffer_rows=4,
    least_granularity=1,
    co_block_factor=1,
    output_rows_per_cycle=0.25,
)


@settings(max_examples=40, deadline=None)
@given(small_layers(strides=(1, 2), dilations=(1,)), small_machines())
@example(conv(h=1, w=5, ci=1, co=7, kh=1, kw=1, padding=(0, 0, 0, 0)), FEWER_THAN_USUAL)
@example(conv(h=2, w=1, ci=1, co=6, kh=2, kw=1, padding=(0, 0, 0, 0)), TWO_SIZES_OF_BLOCKS)
def test_no_choice_is_faster_than_mode_best(w, hardware):
    """For every admissible granularity and block: none has fewer cycles, or as many and fewer reads."""
    unit, t, layer = hardware.w_fold, decide(w, hardware), layer_of(StrideFold(w), hardware.w_fold)
    rows = -(-w.co // unit.sub_units)
    granularities = [unit.row_bytes >> i for i in range(5) if (unit.row_bytes >> i) >= unit.least_granularity]
    blocks = {min(rows, r) for r in (*range(1, unit.co_block_factor + 1), *range(1, unit.second_buffer_rows + 1))}
    found = []
    for pci, pco, co_rows in itertools.product(granularities, granularities, blocks):
        if unit.row_bytes // pci <= StrideFold(w).width and unit.row_bytes // pco <= w.wo:
            c = walked(w, unit, pci, pco, co_rows)
            nest = FoldNest(layer, unit, pci, pco, co_rows)
            assert steady_cycles(unit, c) == nest.steady_cycles
            assert nest.least_cycles(nest.least_steps, nest.steady_cycles) <= image_cycles(nest)
            found.append((image_cycles(nest), c.reads))
    assert (t.cycles, t.reads) == min(found)
    assert decide(w, hardware, mode="seed").cycles >= t.cycles


# ---- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "make", "part"),
    [
        (UnsupportedOperator, lambda: seed(groups=2, stride=(1, 2)), "would interleave groups = 2; expected groups=1"),
        (
            UnsupportedOperator,
            lambda: seed(transposed=True),
            "does not support transposed convolutions; expected",
        ),
        (TilingError, lambda: decide(conv(), WFOLD16, mode="worst"), "mode = 'worst'; expected 'best', 'seed'"),
        (HardwareError, lambda: decide(conv(), WFOLD16, algorithm="gemm"), "algorithm = 'gemm' is not an algorithm"),
        (
            HardwareError,
            lambda: decide(conv(), WFOLD16, prefer="traffic"),
            "prefer = 'traffic' does not apply to a conv on",
        ),
        (
            HardwareError,
            lambda: decide(GemmWorkload(m=8, n=8, k=8), WFOLD16, algorithm="gemm"),
            "algorithm = 'gemm' is not an algorithm",
        ),
        (HardwareError, lambda: decide_wfold(conv(), Hardware.load("neartile")), "has no w_fold unit"),
        (
            HardwareError,
            lambda: seed(Hardware.wfold(row_bytes=4, least_granularity=4), dtype="float64"),
            "w_fold.row_bytes = 4 does not hold whole elements of 8 input",
        ),
        (
            HardwareError,
            lambda: seed(Hardware.wfold(output_element_bytes=3)),
            "does not hold whole elements of 1 input and 3 output bytes; expected a multiple of both",
        ),
    ],
)
def test_a_refusal_is_one_sentence(error, make, part):
    with pytest.raises(error) as caught:
        make()
    text = str(caught.value)
    assert part in text and "\n" not in text and len(text) < 300
