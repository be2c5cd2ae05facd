"""Adder trees whose last levels provide several sums."""

from __future__ import annotations

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.rnn.adder_tree import smallest_tail


def test_worked_example_cat_4_is_enough_for_16_32_and_64():
    assert smallest_tail((16, 32, 64)) == 4
    assert smallest_tail((8, 8)) == 1


def test_what_is_not_a_tree_is_refused():
    for call, said in (
        (lambda: smallest_tail(()), "no numbers of columns"),
        (lambda: smallest_tail((3,)), "columns = 3"),
    ):
        with pytest.raises(tt.HardwareError, match=said):
            call()
