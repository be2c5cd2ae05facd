"""The configuration of a matrix multiplication in mode "best" against an exhaustive search, and its invariants."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace

import pytest
from exhaustive import Facts, search, search_naively
from gemm_cases import (
    BRANCHES,
    check_against_search,
    check_fits,
    check_random_gemms,
    matched_machine,
    random_conv,
    random_gemm,
    random_machine,
)
from hypothesis import assume, given
from hypothesis import strategies as st

from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware.description import Hardware, NearTile
from tvm_tiling.workload import GemmWorkload

BERT = [
    GemmWorkload(m=m, n=n, k=k, dtype="float16")
    for m in (128, 256, 384, 512, 1024, 2048, 4096)
    for n in (1024, 4096)
    for k in (1024, 4096)
]


# --- equal to an exhaustive search ---


def test_2000_random_gemms_equal_an_exhaustive_search_and_take_every_branch():
    taken = check_random_gemms(2000, seed=20220903)
    assert set(taken) == set(BRANCHES)
    assert min(taken.values()) >= 100, taken


@pytest.mark.parametrize("prefer", ["utilisation", "traffic"])
def test_random_convolutions_equal_an_exhaustive_search(prefer):
    rng = random.Random(273)
    taken = [check_against_search(random_conv(rng), random_machine(rng), prefer) for _ in range(400)]
    assert {*taken} >= {"one fits, A kept", "one fits, B kept", "split forced", "nothing fits"}


@pytest.mark.parametrize("prefer", ["utilisation", "traffic"])
def test_the_search_over_few_configs_equals_the_search_over_every_config(prefer):
    rng = random.Random(7)
    for i in range(300):
        w = random_gemm(rng, most=10)
        machine = random_machine(rng) if i % 4 == 0 else matched_machine(rng, w)
        assert search(w, machine, prefer) == search_naively(w, machine, prefer)


def test_the_search_over_few_configs_equals_the_search_over_every_config_of_a_convolution():
    rng = random.Random(8)
    for _ in range(40):
        w = random_conv(rng, most=3)
        machine = Hardware.neartile(
            buf_a=rng.randrange(4, 200),
            buf_b=rng.randrange(4, 800),
            acc_max=rng.randrange(400),
            bw_a=rng.randrange(1, 20),
            bw_b=rng.randrange(1, 20),
            macs_per_cycle=rng.randrange(1, 200),
            block_m=rng.randrange(1, 3),
            block_n=rng.randrange(1, 5),
        )
        assert search(w, machine) == search_naively(w, machine)


# --- the published claim about BERT-large ---


@pytest.mark.parametrize("acc_max", [1 << 14, 1 << 16, 1 << 18, 1 << 20])
@pytest.mark.parametrize("macs_per_cycle", [256, 4096])
def test_bert_large_needs_no_more_accumulation_buffer_than_any_other_config_as_fast(acc_max, macs_per_cycle):
    for w in BERT:
        for buffers in (1 << 14, 1 << 17):
            machine = Hardware.neartile(
                buf_a=buffers,
                buf_b=buffers,
                acc_max=acc_max,
                bw_a=32,
                bw_b=64,
                macs_per_cycle=macs_per_cycle,
                block_m=16,
                block_n=16,
            )
            check_against_search(w, machine)


def test_bert_large_splits_k_on_small_buffers_and_shrinks_the_accumulation_buffer():
    machine = Hardware.neartile(buf_a=1 << 14, buf_b=1 << 14, acc_max=1 << 20, bw_a=32, bw_b=64, macs_per_cycle=1024)
    tilings = [decide_partition(w, machine) for w in BERT]
    assert all(t.split_k for t in tilings)
    assert max(t.acc_bytes for t in tilings) < 1 << 18
    assert min(t.utilisation for t in tilings) == 1.0


# --- the order of ties, one step at a time ---


def test_no_split_is_taken_where_a_split_is_as_fast_and_reads_less():
    w = GemmWorkload(m=512, n=512, k=512, dtype="int8")
    machine = Hardware.neartile(buf_a=1 << 15, buf_b=1 << 15, acc_max=1 << 18, bw_a=64, bw_b=64, macs_per_cycle=64)
    by_default, by_traffic = decide_partition(w, machine), decide_partition(w, machine, prefer="traffic")
    assert not by_default.split_k and (by_default.load_a, by_default.load_b) in ((1, 8), (8, 1))
    assert by_traffic.split_k and by_traffic.load_a + by_traffic.load_b < 9
    assert by_default.utilisation == by_traffic.utilisation == 1.0
    assert "the fewest among equally fast configurations" in by_traffic.why("split_k")


def test_a_split_that_saves_time_says_how_much():
    w = GemmWorkload(m=512, n=512, k=512, dtype="int8")
    machine = Hardware.neartile(buf_a=1 << 15, buf_b=1 << 15, acc_max=1 << 18, bw_a=64, bw_b=64, macs_per_cycle=8192)
    t = decide_partition(w, machine)  # one load takes 4096 cycles: 2 and 2 against 1 and 8
    assert t.split_k and t.why("split_k") == "16384 cycles, 32768 without split-K"


def test_the_smallest_accumulation_buffer_is_taken_unless_traffic_is_preferred():
    w = GemmWorkload(m=512, n=512, k=512, dtype="int8")
    machine = Hardware.neartile(
        buf_a=256, buf_b=256, acc_max=1 << 16, bw_a=64, bw_b=64, macs_per_cycle=1024, block_m=16, block_n=16
    )
    # 2**17 cycles at peak and 4096 for one load: each operand may be read 32 times, so that 16 x 16 sums suffice.
    smallest, leanest = decide_partition(w, machine), decide_partition(w, machine, prefer="traffic")
    assert (smallest.partition_m, smallest.partition_n, smallest.acc_bytes) == (16, 16, 16 * 16 * 4)
    assert (smallest.load_a, smallest.load_b) == (32, 32)
    # 2**14 sums, at most 256 rows or columns: load_a * load_b >= 16, and 4 + 4 is the smallest sum.
    assert (leanest.partition_m, leanest.partition_n, leanest.acc_bytes) == (128, 128, 1 << 16)
    assert (leanest.load_a, leanest.load_b) == (4, 4)


def test_fewest_bytes_decide_between_the_orders_before_the_flag_rule():
    w = GemmWorkload(m=256, n=512, k=64, dtype="int8")
    machine = Hardware.neartile(buf_a=1 << 12, buf_b=1 << 12, acc_max=0, bw_a=1024, bw_b=64, macs_per_cycle=1)
    # m outside n: A, 16 KiB, once and B, 32 KiB, 4 times; n outside m, which the bandwidths require: A 8 times, B once.
    assert (decide_partition(w, machine).load_a, decide_partition(w, machine).load_b) == (1, 4)
    assert (decide_partition(w, machine, mode="seed").load_a, decide_partition(w, machine, mode="seed").load_b) == (
        8,
        1,
    )


@pytest.mark.parametrize(("bw_a", "bw_b", "order"), [(32, 64, "mn"), (64, 32, "nm"), (64, 64, "nm")])
def test_the_flag_rule_decides_where_all_else_is_equal(bw_a, bw_b, order):
    w = GemmWorkload(m=256, n=256, k=64, dtype="int8")
    machine = Hardware.neartile(buf_a=1 << 12, buf_b=1 << 12, acc_max=0, bw_a=bw_a, bw_b=bw_b, macs_per_cycle=1)
    assert decide_partition(w, machine).outer_order == order


# --- case 1 and the forced split ---


@pytest.mark.parametrize(
    ("m", "n", "buf_a", "buf_b", "config"),
    [
        (64, 128, 1 << 20, 1 << 20, (64, 128, "mn")),  # both fit, m < n: A stays
        (128, 64, 1 << 20, 1 << 20, (128, 64, "nm")),  # both fit, m >= n: B stays
        (64, 64, 1 << 20, 1 << 20, (64, 64, "nm")),
        (64, 128, 64 * 100, 30 * 100, (64, 30, "mn")),  # only A fits
        (128, 64, 128 * 100, 30 * 100, (128, 30, "mn")),  # only A fits, though m >= n
        (64, 128, 30 * 100, 128 * 100, (30, 128, "nm")),  # only B fits, though m < n
    ],
)
def test_case_1_keeps_an_operand_that_fits(m, n, buf_a, buf_b, config):
    machine = Hardware.neartile(buf_a=buf_a, buf_b=buf_b, acc_max=0, bw_a=1, bw_b=1, macs_per_cycle=8)
    t = decide_partition(GemmWorkload(m=m, n=n, k=100, dtype="int8"), machine)
    assert (t.partition_m, t.partition_n, t.outer_order) == config
    assert (t.load_a, t.load_b, t.split_k, t.acc_bytes, t.partition_k) == (1, 1, False, 0, 100)
    assert t.utilisation == pytest.approx(min(1, n / 8, m / 8))  # (4)


def test_case_1_splits_where_the_other_operand_cannot_hold_one_block():
    w = GemmWorkload(m=8, n=512, k=4096, dtype="int8")
    machine = Hardware.neartile(
        buf_a=8 * 4096, buf_b=1 << 14, acc_max=1 << 14, bw_a=8, bw_b=8, macs_per_cycle=64, block_m=8, block_n=16
    )
    t = decide_partition(w, machine)
    assert t.split_k and t.load_a == t.load_b == 1
    assert (t.partition_m, t.partition_n, t.partition_k, t.acc_bytes) == (8, 16, 1024, 8 * 16 * 4)
    assert "no block fits a buffer" in t.why("split_k")


def test_a_batch_is_decided_like_one_of_its_gemms():
    machine = Hardware.neartile(buf_a=1 << 14, buf_b=1 << 14, acc_max=1 << 16, bw_a=32, bw_b=64, macs_per_cycle=1024)
    one, many = (GemmWorkload(m=384, n=512, k=640, batch=batch) for batch in (1, 16))
    assert decide_partition(one, machine) == decide_partition(many, machine)


# --- options ---


def test_presets_order_the_outer_loops_of_a_split_and_the_inner_loops():
    w = GemmWorkload(m=512, n=512, k=4096)
    machine = Hardware.neartile(buf_a=1 << 10, buf_b=1 << 10, acc_max=1 << 16, bw_a=32, bw_b=64, macs_per_cycle=1024)
    default = decide_partition(w, machine)
    assert default.split_k and (default.outer_order, default.inner_order) == ("mn", "nm")
    for mode in ("best", "seed"):
        by_name = decide_partition(w, machine, mode=mode, outer_preset="nm", inner_preset="mn")
        assert (by_name.outer_order, by_name.inner_order) == ("nm", "mn")
        assert decide_partition(w, machine, mode=mode, outer_preset=0, inner_preset=1) == by_name
        assert by_name.utilisation == decide_partition(w, machine, mode=mode).utilisation


def test_bandwidth_follows_the_memory_an_operand_lies_in():
    unit = NearTile(
        buf_a=1 << 12, buf_b=1 << 12, acc_max=0, macs_per_cycle=1, bandwidth={"external": 16, "internal": 256}
    )
    machine = Hardware(name="two memories", near_tile=unit)
    inside_a = GemmWorkload(m=256, n=256, k=64, dtype="int8", memory_a="internal")
    inside_b = GemmWorkload(m=256, n=256, k=64, dtype="int8", memory_b="internal")
    assert decide_partition(inside_a, machine).outer_order == "nm"  # A is cheap to read again
    assert decide_partition(inside_b, machine).outer_order == "mn"


# --- properties ---

sizes = st.integers(1, 3000)
machines = st.builds(
    Hardware.neartile,
    buf_a=st.integers(1, 1 << 18),
    buf_b=st.integers(1, 1 << 18),
    acc_max=st.integers(0, 1 << 18),
    bw_a=st.floats(0.1, 1000),
    bw_b=st.floats(0.1, 1000),
    macs_per_cycle=st.integers(1, 1 << 14),
    block_m=st.integers(1, 70),
    block_n=st.integers(1, 70),
    acc_bytes_per_element=st.sampled_from([None, 1, 2, 4]),
)
gemms = st.builds(GemmWorkload, m=sizes, n=sizes, k=sizes, dtype=st.sampled_from(["int8", "float16", "float32"]))


@given(gemms, machines, st.sampled_from(["utilisation", "traffic"]))
def test_no_decision_exceeds_a_buffer(w, machine, prefer):
    try:
        tiling = decide_partition(w, machine, prefer=prefer)
    except HardwareError:
        assume(False)
    check_fits(Facts(w, machine), tiling)


@given(gemms, machines, st.sampled_from(["buf_a", "buf_b", "acc_max", "bw_a", "bw_b"]))
def test_more_of_anything_is_never_slower(w, machine, field):
    try:
        before = decide_partition(w, machine)
    except HardwareError:
        assume(False)
    unit = replace(machine.near_tile, **{field: 2 * getattr(machine.near_tile, field)})
    after = decide_partition(w, replace(machine, near_tile=unit))
    assert after.utilisation >= before.utilisation * (1 - 1e-9)


@given(gemms, machines)
def test_a_gemm_and_its_transpose_are_equally_fast(w, machine):
    unit = machine.near_tile
    mirrored = Hardware.neartile(
        buf_a=unit.buf_b,
        buf_b=unit.buf_a,
        acc_max=unit.acc_max,
        bw_a=unit.bw_b,
        bw_b=unit.bw_a,
        macs_per_cycle=unit.macs_per_cycle,
        block_m=unit.block_n,
        block_n=unit.block_m,
        acc_bytes_per_element=unit.acc_bytes_per_element,
    )
    try:
        tiling = decide_partition(w, machine)
    except HardwareError:
        with pytest.raises(HardwareError):
            decide_partition(GemmWorkload(m=w.n, n=w.m, k=w.k, dtype=w.dtype), mirrored)
        return
    turned = decide_partition(GemmWorkload(m=w.n, n=w.m, k=w.k, dtype=w.dtype), mirrored)
    assert (turned.utilisation, turned.acc_bytes) == (pytest.approx(tiling.utilisation), tiling.acc_bytes)


# --- speed ---


def test_a_decision_is_hundreds_of_times_faster_than_the_search_over_every_config():
    w = GemmWorkload(m=48, n=48, k=48)
    machine = Hardware.neartile(buf_a=1024, buf_b=1024, acc_max=4096, bw_a=4, bw_b=8, macs_per_cycle=64)
    start = time.perf_counter()
    best = search_naively(w, machine)
    searched = time.perf_counter() - start
    decided = []
    for _ in range(100):
        start = time.perf_counter()
        tiling = decide_partition(w, machine)
        decided.append(time.perf_counter() - start)
    assert best is not None and tiling.utilisation == pytest.approx(best.utilisation)
    assert searched > 500 * min(decided)  # the minimum: other load may slow down either


def test_the_median_decision_takes_under_a_millisecond():
    rng = random.Random(11)
    seconds = []
    for _ in range(300):
        w = random_gemm(rng)
        machine = matched_machine(rng, w)
        start = time.perf_counter()
        try:
            decide_partition(w, machine)
        except HardwareError:
            continue
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < 1e-3
