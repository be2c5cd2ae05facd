"""Cuts that a source knows and an operator cannot have: formulas decide, and a warning says so once."""

from __future__ import annotations

import warnings

import pytest

from tvm_tiling import Cut, DatabaseError, GemmWorkload, Hardware
from tvm_tiling.decide.configs.config import Surroundings
from tvm_tiling.decide.known import known_tiling
from tvm_tiling.decide.options import Options

WORKLOAD, CPU = GemmWorkload(m=64, n=64, k=64), Hardware.load("skylake-desktop-8c")
IMPOSSIBLE = Cut.of("gemm", "none", {})


class Source:
    def cut_for(self, workload, hardware, ahead=False, epilogue=""):
        return IMPOSSIBLE


def test_a_known_cut_that_does_not_apply_is_told_once():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            assert known_tiling(WORKLOAD, CPU, Options(cuts=Source()), Surroundings()) is None
    assert [str(each.message).split(":")[0] for each in told] == ["a known cut does not apply, formulas decide"]


def test_a_given_cut_that_does_not_apply_is_an_error():
    with pytest.raises(DatabaseError, match="form = 'none'"):
        known_tiling(WORKLOAD, CPU, Options(cut=IMPOSSIBLE), Surroundings())
