"""Microkernels: the ranked (m, z), their limits and kernel variants, and the choice in order."""

from __future__ import annotations

import decimal
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tiling.decide.gemm.cache_conflict import is_bad_leading_dimension
from tvm_tiling.decide.gemm.microkernel import Microkernel, microkernel, registers_of, rows_in_place, tallest
from tvm_tiling.errors import HardwareError, TilingError, WorkloadError
from tvm_tiling.hardware.description import Cache, Cpu

SEED_CORE = {"registers": 32, "lanes": 16, "fma_latency": 13, "ways": 8, "bad_leading_dimension": True}
L1 = Cache(level=1, size=32768, ways=8, line=64)
SEED_CPU = Cpu(
    arch="x86_64",
    features=("avx512f",),
    vector_bits=512,
    vector_registers=32,
    fma_units=1,
    fma_latency=13,
    cores=4,
    threads=64,
    caches=(L1,),
)


def pairs(choices: tuple[Microkernel, ...]) -> list[tuple[int, int]]:
    return [(c.m, c.z) for c in choices]


def find(choices: tuple[Microkernel, ...], m: int, z: int) -> Microkernel:
    return next(c for c in choices if (c.m, c.z) == (m, z))


# ---- the page's worked examples


def test_seed_gives_6x4_then_14x2_then_7x2():
    assert pairs(microkernel(**SEED_CORE, mode="seed")) == [(6, 4), (14, 2), (7, 2)]


def test_seed_list_is_the_same_for_a_good_leading_dimension():
    choices = microkernel(**{**SEED_CORE, "bad_leading_dimension": False}, mode="seed")
    assert pairs(choices) == [(6, 4), (14, 2), (7, 2)]
    assert {c.form for c in choices} == {"normal"}


def test_seed_kernel_variants_on_a_bad_leading_dimension():
    first, tall, short = microkernel(**SEED_CORE, mode="seed")
    assert (first.form, first.keep, first.copied) == ("nocopy", 6, 0)
    assert (tall.form, tall.keep, tall.copied) == ("inline", 6, 8)  # floor(0.8 * 8) = 6
    assert (short.form, short.keep, short.copied) == ("nocopy", 7, 0)


def test_priority_ratio_1_keeps_the_seeds_first_w_rows():
    tall = microkernel(**SEED_CORE, priority_ratio=1, mode="seed")[1]
    assert (tall.keep, tall.copied) == (8, 6)


def test_priority_ratio_is_taken_as_the_decimal_it_is_written_as():
    core = {**SEED_CORE, "registers": 128, "ways": 50}
    assert find(microkernel(**core, priority_ratio=0.58), 62, 2).keep == 29  # 0.58 * 50 is 28.999... in binary


def test_figures_of_6x4():
    first = microkernel(**SEED_CORE, mode="seed")[0]
    assert (first.registers_used, first.in_flight, first.ratio, first.columns) == (29, 24, 2.4, 64)
    assert first.instructions_per_fma == pytest.approx(34 / 24)
    assert all(limit.passed for limit in first.limits)


def test_z_4_is_unacceptable_below_four_vectors_per_core():
    assert pairs(microkernel(**SEED_CORE, n_per_core=64, mode="seed"))[0] == (6, 4)
    narrow = microkernel(**SEED_CORE, n_per_core=63, mode="seed")
    assert pairs(narrow) == [(14, 2), (7, 2), (6, 4)]
    assert [c.acceptable for c in narrow] == [True, True, False]
    assert not narrow[2].limit("balance").passed


def test_m_at_most_w_must_cover_the_latency():
    """On 4 ways the 14 rows of (14, 2) are four runs of 4: 4 * 2 = 8 in flight do not exceed 13."""
    assert pairs(microkernel(**{**SEED_CORE, "ways": 4}, mode="seed")) == [(6, 4), (14, 2)]
    assert pairs(microkernel(**{**SEED_CORE, "ways": 4, "fma_latency": 7}, mode="seed"))[-1] == (4, 2)


def test_no_second_kernel_variant_if_the_ways_hold_the_tallest():
    assert pairs(microkernel(**{**SEED_CORE, "ways": 16}, mode="seed")) == [(6, 4), (14, 2)]


def test_28x1_is_legal_by_registers_and_rejected():
    choices = microkernel(**SEED_CORE)
    bad = find(choices, 28, 1)
    assert bad.limit("registers").passed and bad.registers_used == 30
    assert not bad.limit("ratio").passed and not bad.limit("conflicts").passed
    assert not bad.acceptable
    assert choices.index(bad) > max(i for i, c in enumerate(choices) if c.acceptable)
    text = bad.explain()
    assert "(28, 1): rejected" in text
    assert "fails  ratio: 28/(28 + 1) = 0.97 multiply-adds per load" in text
    assert "fails  conflicts: more than 8 of 28 rows share a set of 8 ways" in text


def test_best_ranks_every_legal_pair_by_ratio():
    choices = microkernel(**SEED_CORE)
    legal = {(m, z) for m in range(1, 33) for z in range(1, 33) if (m + 1) * z + 1 <= 32}
    assert set(pairs(choices)) == legal and len(choices) == len(legal)
    assert pairs(choices)[:2] == [(5, 5), (6, 4)]
    assert find(choices, 8, 3).acceptable and find(choices, 8, 3).form == "nocopy"
    assert find(choices, 9, 3).acceptable and find(choices, 9, 3).form == "inline"


def test_at_equal_ratio_fewer_copied_rows_lead():
    choices = microkernel(**{**SEED_CORE, "ways": 5})
    assert (find(choices, 4, 6).form, find(choices, 6, 4).form) == ("nocopy", "inline")
    assert choices.index(find(choices, 4, 6)) < choices.index(find(choices, 6, 4))
    assert pairs(microkernel(**SEED_CORE)).index((6, 4)) < pairs(microkernel(**SEED_CORE)).index((4, 6))


def test_broadcast_from_memory_frees_the_register_of_a():
    choices = microkernel(**SEED_CORE, broadcast_from_memory=True)
    assert pairs(choices)[0] == (7, 4) and choices[0].registers_used == 32
    assert choices[0].instructions_per_fma == pytest.approx(32 / 28)
    assert (7, 4) not in pairs(microkernel(**SEED_CORE))
    assert pairs(microkernel(**SEED_CORE, broadcast_from_memory=True, mode="seed")) == [(7, 4), (15, 2), (8, 2)]


def test_one_leading_dimension_is_bad_for_28_rows_and_good_for_14():
    """512 floats are half of sets * line: every other row shares a set, 14 of 28 rows and 7 of 14."""
    choices = microkernel(
        **{**SEED_CORE, "bad_leading_dimension": lambda rows: is_bad_leading_dimension(512, 4, L1, rows=rows)}
    )
    assert find(choices, 28, 1).form == "inline"
    assert find(choices, 14, 2).form == "nocopy" and find(choices, 14, 2).copied == 0


def test_a_leading_dimension_good_for_every_height_gives_normal_kernels():
    choices = microkernel(
        **{**SEED_CORE, "bad_leading_dimension": lambda rows: is_bad_leading_dimension(1040, 4, L1, rows=rows)}
    )
    assert {c.form for c in choices} == {"normal"}


def test_one_vector_of_columns_leaves_z_1_in_both_modes():
    for mode in ("seed", "best"):
        first = microkernel(**SEED_CORE, n_per_core=10, mode=mode)[0]
        assert (first.m, first.z) == (30, 1)
        assert first.limit("balance").passed and not first.acceptable


def test_registers_that_cannot_hide_the_latency_still_give_a_choice():
    """16 registers, 13 in flight: only z = 1 covers the latency, at a ratio below 1; the best compromise is first."""
    core = {**SEED_CORE, "registers": 16}
    assert pairs(microkernel(**core, mode="seed"))[0] == (6, 2)
    assert pairs(microkernel(**core))[0] == (4, 3)
    assert not any(c.acceptable for c in microkernel(**core))


@pytest.mark.parametrize("broadcast_from_memory", [False, True])
def test_of_a_mirrored_pair_the_one_with_fewer_instructions_or_registers_leads(broadcast_from_memory):
    choices = microkernel(**SEED_CORE, broadcast_from_memory=broadcast_from_memory)
    order = pairs(choices)
    for c in choices:
        if c.z < c.m <= SEED_CORE["ways"] and (c.z, c.m) in order:
            mirrored = find(choices, c.z, c.m)
            assert order.index((c.m, c.z)) < order.index((c.z, c.m))
            assert c.registers_used < mirrored.registers_used
            assert c.instructions_per_fma <= mirrored.instructions_per_fma


# ---- invariants

cores = st.fixed_dictionaries(
    {
        "registers": st.integers(3, 64),
        "lanes": st.sampled_from([4, 8, 16]),
        "fma_latency": st.integers(1, 16),
        "ways": st.integers(1, 20),
        "bad_leading_dimension": st.booleans(),
        "n_per_core": st.none() | st.integers(1, 300),
        "priority_ratio": st.floats(0.01, 1),
        "broadcast_from_memory": st.booleans(),
        "mode": st.sampled_from(["best", "seed"]),
    }
)


@given(cores)
def test_registers_are_never_exceeded_and_figures_follow_from_m_and_z(core):
    choices = microkernel(**core)
    assert choices
    assert len(set(pairs(choices))) == len(choices)
    for c in choices:
        assert c.m >= 1 and c.z >= 1
        needed = c.m * c.z + c.z + (0 if core["broadcast_from_memory"] else 1)
        assert c.registers_used == needed <= core["registers"]
        assert c.limit("registers").passed
        assert c.in_flight == c.m * c.z
        assert c.limit("latency").passed == (c.m * c.z > core["fma_latency"])
        assert c.ratio == c.m * c.z / (c.m + c.z)
        assert c.limit("ratio").passed == (c.m * c.z >= c.m + c.z)


@given(cores)
def test_inline_exactly_where_a_bad_leading_dimension_meets_too_many_rows(core):
    for c in microkernel(**core):
        bad, tall = core["bad_leading_dimension"], c.m > core["ways"]
        assert c.form == ("normal" if not bad else "inline" if tall else "nocopy")
        assert c.limit("conflicts").passed == (c.form != "inline")
        assert c.keep + c.copied == c.m
        assert (c.copied > 0) == (c.form == "inline")
        if c.form == "inline":
            assert c.keep == math.floor(decimal.Decimal(repr(core["priority_ratio"])) * core["ways"])


@given(cores)
def test_acceptable_choices_come_first_and_wide_z_is_never_among_them(core):
    choices = microkernel(**core)
    acceptable = [c.acceptable for c in choices]
    assert acceptable == sorted(acceptable, reverse=True)
    n = core["n_per_core"]
    assert all(c.z == 1 or n is None or n >= c.z * c.lanes for c in choices if c.acceptable)


@given(cores)
def test_best_is_sorted_by_ratio_then_by_what_is_in_flight(core):
    accepted = [c for c in microkernel(**{**core, "mode": "best"}) if c.acceptable]
    keys = [(-c.ratio, -c.in_flight) for c in accepted]
    assert keys == sorted(keys)


@given(cores)
def test_seed_takes_powers_of_two_and_is_a_part_of_best(core):
    seed, best = microkernel(**{**core, "mode": "seed"}), microkernel(**{**core, "mode": "best"})
    assert all(c.z & (c.z - 1) == 0 for c in seed)
    assert set(seed) <= set(best)
    assert best[0].acceptable or not seed[0].acceptable
    if seed[0].acceptable:
        assert best[0].ratio >= seed[0].ratio


# ---- the choice in order


# ---- errors


@pytest.mark.parametrize(
    ("field", "value", "least"),
    [("registers", 2, 3), ("registers", 32.0, 3), ("lanes", 0, 1), ("fma_latency", -1, 1), ("ways", True, 1)],
)
def test_impossible_cores_are_refused(field, value, least):
    with pytest.raises(HardwareError, match=f"{field} = {value!r}; expected a whole number of at least {least}"):
        microkernel(**{**SEED_CORE, field: value})


@pytest.mark.parametrize("ratio", [0, -0.1, 1.01, float("nan"), "0.8", True])
def test_impossible_priority_ratio_is_refused(ratio):
    with pytest.raises(HardwareError, match=r"priority_ratio = .* above 0 and at most 1"):
        microkernel(**SEED_CORE, priority_ratio=ratio)


def test_two_registers_do_where_a_needs_none():
    assert pairs(microkernel(**{**SEED_CORE, "registers": 2}, broadcast_from_memory=True)) == [(1, 1)]


def test_other_impossible_arguments_are_refused():
    with pytest.raises(WorkloadError, match="n_per_core = 0; expected a whole number of at least 1"):
        microkernel(**SEED_CORE, n_per_core=0)
    with pytest.raises(TilingError, match="unknown mode 'bset'"):
        microkernel(**SEED_CORE, mode="bset")


def test_an_unknown_limit_is_a_key_error():
    with pytest.raises(KeyError, match="speed"):
        microkernel(**SEED_CORE)[0].limit("speed")


@given(st.integers(3, 64), st.integers(1, 16))
def test_limits_of_the_kernels_are_those_of_the_ranking(registers, z):
    m = tallest(registers, z)
    assert registers_of(max(m, 0), z) <= registers or m < 1
    assert registers_of(m + 1, z) > registers
    assert rows_in_place(50, 0.58) == 29
