"""Adder trees whose last levels give several sums (page 04)."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_tiling as tt
from tvm_tiling.decide.rnn.adder_tree import smallest_tail, sums_by_columns, tree_sums


def test_worked_example_a_tree_of_64_with_cat_4_gives_1_2_or_4_sums():
    assert sums_by_columns(64, 4) == {16: 4, 32: 2, 64: 1}


def test_worked_example_cat_4_is_enough_for_16_32_and_64():
    assert smallest_tail((16, 32, 64)) == 4
    assert smallest_tail((8, 8)) == 1


def test_worked_example_two_cat_2_in_a_row_act_as_a_cat_4():
    values = np.random.default_rng(0).integers(-100, 100, 64).tolist()
    for columns in (16, 32, 64):
        assert tree_sums(values, columns, (2, 2)) == tree_sums(values, columns, (4,))
    with pytest.raises(tt.HardwareError, match="columns = 16, accepted: 32, 64"):
        tree_sums(values, 16, (2,))


@pytest.mark.parametrize("columns", [4, 8, 16])
def test_what_leaves_the_tree_are_the_sums_of_neighbouring_columns(columns):
    values = np.random.default_rng(columns).integers(-100, 100, 16)
    assert tree_sums(values.tolist(), columns, (4,)) == values.reshape(-1, columns).sum(1).tolist()


def test_what_is_no_tree_is_refused():
    for call, said in (
        (lambda: sums_by_columns(48, 2), "inputs = 48, accepted: a power of two"),
        (lambda: sums_by_columns(4, 8), "tail = 8, accepted: at most its inputs, 4"),
        (lambda: smallest_tail(()), "no numbers of columns"),
        (lambda: smallest_tail((3,)), "columns = 3"),
    ):
        with pytest.raises(tt.HardwareError, match=said):
            call()
