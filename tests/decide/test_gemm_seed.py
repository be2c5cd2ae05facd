"""mode="seed": the original rule calculated by hand (seed 000, paragraphs 94 to 200 and steps s501 to s522)."""

from __future__ import annotations

import random

import pytest
from gemm_cases import decide_or_none, matched_machine, random_gemm, random_machine

from tvm_tiling.decide.gemm.partition import decide_partition
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload


def outcome(t):
    return (t.partition_m, t.partition_n, t.partition_k, t.outer_order, t.split_k, t.acc_bytes, t.load_a, t.load_b)


def test_case_1_takes_the_side_by_m_and_n_alone():
    machine = Hardware.neartile(buf_a=1000, buf_b=50_000, acc_max=0, bw_a=8, bw_b=8, macs_per_cycle=640)
    # Only B fits, but m < n: the rule keeps A, which has 2000 bytes for a buffer of 1000 (s520).
    t = decide_partition(GemmWorkload(m=20, n=500, k=100, dtype="int8"), machine, mode="seed")
    assert outcome(t) == (20, 500, 100, "mn", False, 0, 1, 1)
    assert not t.feasible and t.utilisation == pytest.approx(20 * 8 / 640)  # (4)
    # m >= n: the rule keeps B, which fits (s521).
    t = decide_partition(GemmWorkload(m=500, n=500, k=100, dtype="int8"), machine, mode="seed")
    assert outcome(t) == (10, 500, 100, "nm", False, 0, 1, 1)
    assert t.feasible and t.utilisation == 1.0


@pytest.mark.parametrize(
    ("bw_a", "bw_b", "expected", "utilisation"),
    [
        # 64 rows of A and 32 columns of B fit with all of k. Peak 2**24 / 4096 = 4096 cycles.
        (8, 16, (64, 32, 256, "mn", False, 0, 1, 4), 4096 / (4 * 256 * 256 / 16)),
        (16, 8, (64, 32, 256, "nm", False, 0, 8, 1), 4096 / (8 * 256 * 256 / 16)),
        (16, 16, (64, 32, 256, "nm", False, 0, 8, 1), 4096 / (8 * 256 * 256 / 16)),
    ],
)
def test_case_2_without_split_takes_the_flag_by_bandwidth(bw_a, bw_b, expected, utilisation):
    machine = Hardware.neartile(buf_a=64 * 256, buf_b=32 * 256, acc_max=256, bw_a=bw_a, bw_b=bw_b, macs_per_cycle=4096)
    t = decide_partition(GemmWorkload(m=256, n=256, k=256, dtype="int8"), machine, mode="seed")
    assert outcome(t) == expected and t.feasible
    assert t.utilisation == pytest.approx(utilisation)


def test_the_best_order_beats_the_order_by_bandwidth():
    machine = Hardware.neartile(buf_a=64 * 256, buf_b=32 * 256, acc_max=0, bw_a=16, bw_b=16, macs_per_cycle=4096)
    w = GemmWorkload(m=256, n=256, k=256, dtype="int8")
    seed, best = decide_partition(w, machine, mode="seed"), decide_partition(w, machine)
    assert (seed.load_a, best.load_b) == (8, 4)
    assert best.utilisation == pytest.approx(2 * seed.utilisation)


def split_case(**changes):
    """m = n = 512, k = 4096 in bytes; 2 MiB of A and of B; buffers that hold one row with all of k."""
    fields = {"buf_a": 4096, "buf_b": 4096, "acc_max": 1 << 16, "bw_a": 64, "bw_b": 64, "macs_per_cycle": 8192}
    return GemmWorkload(m=512, n=512, k=4096, dtype="int8", acc_dtype="int32"), Hardware.neartile(
        **{**fields, "acc_bytes_per_element": 1, **changes}
    )


def test_split_takes_load_counts_from_product_and_ratio():
    # load_a * load_b = 2**18 / 2**16 = 4, ratio 1: 2 and 2. 2**17 cycles at peak, 2 * 2**15 for each operand. Shrunk:
    # 2**15 gives 3 and 3 (98304 cycles), 2**14 gives 4 and 4 (131072), 2**13 gives 6 and 6, which is slower.
    t = decide_partition(*split_case(), mode="seed")
    assert outcome(t) == (128, 128, 32, "mn", True, 1 << 14, 4, 4)
    assert t.utilisation == 1.0 and t.feasible


def test_split_shrinks_by_the_factor_given():
    assert decide_partition(*split_case(), mode="seed", acc_factor=0.25).acc_bytes == 1 << 14
    assert decide_partition(*split_case(), mode="seed", acc_factor=0.125).acc_bytes == 1 << 16
    nearly = decide_partition(*split_case(), mode="seed", acc_factor=0.99)
    assert 1 << 14 <= nearly.acc_bytes < 1.05 * (1 << 14)


def test_split_does_not_shrink_where_that_costs_time():
    # 2**15 cycles at peak: already 2 and 2 take 65536.
    t = decide_partition(*split_case(macs_per_cycle=32768), mode="seed")
    assert (t.acc_bytes, t.load_a, t.load_b, t.utilisation) == (1 << 16, 2, 2, 0.5)


def test_split_ratio_gives_equal_load_times():
    # load_a / load_b = load_b_cycle / load_a_cycle = bw_a / bw_b = 4: A is read 4 times, B once.
    t = decide_partition(*split_case(bw_a=128, bw_b=32, macs_per_cycle=32768), mode="seed")
    assert (t.load_a, t.load_b, t.acc_bytes) == (4, 1, 1 << 16)
    assert t.load_a * 2**21 / 128 == t.load_b * 2**21 / 32


def test_split_counts_are_rounded_up_from_product_and_ratio():
    # product 5, ratio 3: load_a = sqrt(15) = 3.9, load_b = 5 / 4. With the inverse ratio it would be 5 and 1.
    case = split_case(acc_max=(1 << 18) // 5, bw_a=96, bw_b=32, macs_per_cycle=1 << 20)
    t = decide_partition(*case, mode="seed", acc_factor=0.1)
    assert (t.load_a, t.load_b) == (4, 2)
    # Half of it gives sqrt(30) and 10 / 6: 6 and 2, as fast since B still determines the time.
    assert decide_partition(*case, mode="seed").acc_bytes == (1 << 18) // 5 // 2


def test_split_is_not_taken_where_it_is_only_as_fast():
    w, machine = split_case(macs_per_cycle=8, buf_a=1 << 16, buf_b=1 << 16)  # both keep the multipliers busy
    t = decide_partition(w, machine, mode="seed")
    assert outcome(t) == (16, 16, 4096, "nm", False, 0, 32, 1)


def test_a_dimension_shorter_than_its_block_is_taken_whole():
    machine = Hardware.neartile(
        buf_a=4 * 1000, buf_b=4 * 1000, acc_max=0, bw_a=8, bw_b=8, macs_per_cycle=8, block_m=16, block_n=16
    )
    t = decide_partition(GemmWorkload(m=8, n=40, k=1000, dtype="int8"), machine, mode="seed")
    assert (t.partition_m, t.partition_n, t.feasible) == (8, 16, False)


def test_split_doubles_one_count_and_halves_the_other_where_times_are_far_apart():
    # load_a = sqrt(4.0625 * 0.3) = 1.1 rounds up to 2, three times as long as B: 1 and 5 are shorter.
    t = decide_partition(*split_case(acc_max=64527, bw_a=30, bw_b=100, macs_per_cycle=1 << 20), mode="seed")
    assert (t.partition_m, t.partition_n) == (512 // 5, 512)
    assert (t.load_a, t.load_b) == (1, 6)  # 102 rows per partition are 6 partitions


def test_split_keeps_its_counts_where_halving_one_would_take_longer():
    # load_a = sqrt(6 * 0.7) = 2.05 rounds up to 3, load_b to 2. A takes 3 / 1.4 times as long, but 1 and 6 are longer.
    case = split_case(acc_max=43_700, bw_a=70, bw_b=100, macs_per_cycle=1 << 20)
    t = decide_partition(*case, mode="seed", acc_factor=0.1)
    assert (t.partition_m, t.partition_n) == (512 // 2, 512 // 3)


def test_seed_counts_accumulators_in_elements_and_reports_what_does_not_fit():
    # The rule's sums take one byte, the machine's four.
    t = decide_partition(*split_case(acc_bytes_per_element=4, macs_per_cycle=32768), mode="seed")
    assert (t.partition_m, t.partition_n, t.acc_bytes) == (256, 256, 1 << 16)
    assert not t.feasible and "exceeds" in t.why("feasible")
    assert "DOES NOT FIT" in t.explain()


def test_seed_sees_a_convolution_as_its_matrix():
    conv = ConvWorkload(n=1, h=34, w=34, ci=16, co=512, kh=3, kw=3, dtype="int8")
    machine = Hardware.neartile(buf_a=144 * 64, buf_b=144 * 64, acc_max=0, bw_a=64, bw_b=64, macs_per_cycle=64)
    t = decide_partition(conv, machine, mode="seed")
    assert outcome(t) == (64, 64, 144, "nm", False, 0, 16, 1)
    assert (
        decide_partition(conv, machine).partition_n > 64
    )  # the same buffer holds more activations than matrix elements


def test_seed_is_never_faster_than_best_where_it_fits_and_often_slower():
    rng = random.Random(5)
    seen = {"equal": 0, "slower": 0, "does not fit": 0}
    for _ in range(1000):
        w = random_gemm(rng)
        machine = random_machine(rng) if rng.random() < 0.4 else matched_machine(rng, w)
        best = decide_or_none(w, machine, "utilisation")
        seed = decide_partition(w, machine, mode="seed")
        if best is None:
            assert not seed.feasible
        elif not seed.feasible:
            seen["does not fit"] += 1
        else:
            assert seed.utilisation <= best.utilisation * (1 + 1e-9)
            seen["equal" if seed.utilisation >= best.utilisation * (1 - 1e-9) else "slower"] += 1
    assert min(seen.values()) > 50
