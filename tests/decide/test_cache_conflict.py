"""Cache conflicts: the rows of a column that share a cache set, against a count of every address at every offset."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tiling.decide.gemm.cache_conflict import is_bad_leading_dimension, rows_sharing_a_set
from tvm_tiling.errors import TilingError, WorkloadError
from tvm_tiling.hardware.description import Cache

L1_32K_8WAY = Cache(level=1, size=32768, ways=8, line=64)
L1_48K_12WAY = Cache(level=1, size=49152, ways=12, line=64)
FLOAT = 4


def lines_in_fullest_set(ld: int, element_bytes: int, cache: Cache, rows: int, column: int) -> int:
    """Count the distinct lines that `rows` rows put into the fullest set when read at one column."""
    lines = {(r * ld + column) * element_bytes // cache.line for r in range(rows)}
    return max(Counter(line % cache.sets for line in lines).values())


def brute_force(ld: int, element_bytes: int, cache: Cache, rows: int) -> int:
    """The same at the worst column, until base addresses repeat modulo sets * line."""
    columns = cache.sets * cache.line // element_bytes
    return max(lines_in_fullest_set(ld, element_bytes, cache, rows, column) for column in range(columns))


# ---- the page's worked examples: 32 KB, 8 ways, 64-byte lines, floats, 14 rows


def test_ld_1024_puts_all_14_rows_into_one_set():
    assert rows_sharing_a_set(1024, FLOAT, L1_32K_8WAY, 14) == 14
    assert is_bad_leading_dimension(1024, FLOAT, L1_32K_8WAY, rows=14)


def test_ld_1025_still_puts_14_rows_into_one_set():
    assert rows_sharing_a_set(1025, FLOAT, L1_32K_8WAY, 14) == 14
    assert is_bad_leading_dimension(1025, FLOAT, L1_32K_8WAY, rows=14)


def test_ld_1023_is_bad_with_13_rows_at_column_0_and_14_at_column_13():
    assert lines_in_fullest_set(1023, FLOAT, L1_32K_8WAY, 14, column=0) == 13
    assert lines_in_fullest_set(1023, FLOAT, L1_32K_8WAY, 14, column=13) == 14
    assert rows_sharing_a_set(1023, FLOAT, L1_32K_8WAY, 14) == 14
    assert is_bad_leading_dimension(1023, FLOAT, L1_32K_8WAY, rows=14)


def test_ld_256_puts_4_rows_into_one_set_which_fits():
    assert rows_sharing_a_set(256, FLOAT, L1_32K_8WAY, 14) == 4
    assert not is_bad_leading_dimension(256, FLOAT, L1_32K_8WAY, rows=14)


def test_ld_256_becomes_bad_at_33_rows():
    assert not is_bad_leading_dimension(256, FLOAT, L1_32K_8WAY, rows=32)
    assert is_bad_leading_dimension(256, FLOAT, L1_32K_8WAY, rows=33)


def test_ld_1040_is_a_good_neighbour_of_1024():
    assert rows_sharing_a_set(1040, FLOAT, L1_32K_8WAY, 14) == 1
    assert not is_bad_leading_dimension(1040, FLOAT, L1_32K_8WAY, rows=14)


def test_the_ways_decide_not_the_size():
    assert is_bad_leading_dimension(1024, FLOAT, L1_32K_8WAY, rows=9)
    assert not is_bad_leading_dimension(1024, FLOAT, L1_48K_12WAY, rows=9)
    assert is_bad_leading_dimension(1024, FLOAT, L1_48K_12WAY, rows=13)


def test_rows_in_one_line_take_one_way():
    assert rows_sharing_a_set(1, FLOAT, L1_32K_8WAY, 14) == 1
    assert not is_bad_leading_dimension(1, FLOAT, L1_32K_8WAY, rows=14)


@pytest.mark.parametrize(
    ("ld", "bad"), [(256, True), (1024, True), (2048, True), (1, True), (768, False), (1025, False), (1536, False)]
)
def test_seed_mode_is_the_divisibility_test_as_printed(ld, bad):
    assert is_bad_leading_dimension(ld, FLOAT, L1_32K_8WAY, rows=14, mode="seed") is bad


# ---- the sliding count against every address at every offset

geometries = st.builds(
    lambda sets, ways, line: Cache(level=1, size=sets * ways * line, ways=ways, line=line),
    st.integers(1, 24),  # not only powers of two: last-level caches have other numbers of sets
    st.integers(1, 12),
    st.sampled_from([8, 16, 32, 64]),
)


@given(geometries, st.integers(1, 400), st.sampled_from([1, 2, 4, 8]), st.integers(1, 40))
def test_count_is_exact_on_random_geometries(cache, ld, element_bytes, rows):
    assert rows_sharing_a_set(ld, element_bytes, cache, rows) == brute_force(ld, element_bytes, cache, rows)


@given(st.integers(-20, 20), st.sampled_from([64, 128, 256, 512, 1024, 2048]), st.integers(1, 40))
def test_count_is_exact_near_powers_of_two_on_a_real_cache(delta, power, rows):
    ld = power + delta
    worst = max(lines_in_fullest_set(ld, FLOAT, L1_48K_12WAY, rows, column) for column in range(16))
    assert rows_sharing_a_set(ld, FLOAT, L1_48K_12WAY, rows) == worst


@given(geometries, st.integers(1, 400), st.sampled_from([1, 2, 4, 8]), st.integers(1, 40))
def test_more_rows_never_share_less(cache, ld, element_bytes, rows):
    here = rows_sharing_a_set(ld, element_bytes, cache, rows)
    assert here <= rows_sharing_a_set(ld, element_bytes, cache, rows + 1) <= here + 1
    assert here <= rows


@given(geometries, st.integers(1, 400), st.sampled_from([1, 2, 4, 8]))
def test_as_many_rows_as_ways_are_never_bad(cache, ld, element_bytes):
    assert not is_bad_leading_dimension(ld, element_bytes, cache, rows=cache.ways)


def test_a_tall_column_costs_no_more_than_one_period():
    """Ten million rows: a sum over the rows would take seconds."""
    assert rows_sharing_a_set(1024, FLOAT, L1_32K_8WAY, 10_000_000) == 10_000_000
    assert rows_sharing_a_set(1025, FLOAT, L1_32K_8WAY, 10_240_000) == 10_240_000 // 64


# ---- errors


@pytest.mark.parametrize("field", ["ld", "element_bytes", "rows"])
@pytest.mark.parametrize("value", [0, -4, 2.0, True])
def test_impossible_sizes_are_named(field, value):
    arguments = {"ld": 1024, "element_bytes": 4, "rows": 14, field: value}
    with pytest.raises(WorkloadError, match=f"{field} = {value!r}; expected a whole number of at least 1"):
        is_bad_leading_dimension(cache=L1_32K_8WAY, **arguments)


def test_an_element_that_straddles_lines_is_refused():
    with pytest.raises(WorkloadError, match="element_bytes = 12; expected a divisor of the cache line of 64 bytes"):
        is_bad_leading_dimension(1024, 12, L1_32K_8WAY, rows=14)


def test_an_unknown_mode_is_refused():
    with pytest.raises(TilingError, match="unknown mode 'sede'; did you mean 'seed'"):
        is_bad_leading_dimension(1024, 4, L1_32K_8WAY, rows=14, mode="sede")
