"""Configurations of a database that are invalid for an operator: the formulas decide, and one warning says so."""

from __future__ import annotations

import warnings

import pytest

from tvm_tiling import Config, DatabaseError, GemmWorkload, Hardware
from tvm_tiling.decide.configs.config import Surroundings
from tvm_tiling.decide.known import known_tiling
from tvm_tiling.decide.options import Options

WORKLOAD, CPU = GemmWorkload(m=64, n=64, k=64), Hardware.load("skylake-desktop-8c")
IMPOSSIBLE = Config.of("gemm", "none", {})


class Source:
    def config_for(self, workload, hardware, prepacked=False, epilogue=""):
        return IMPOSSIBLE


def test_a_known_config_that_does_not_apply_is_reported_once():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            assert known_tiling(WORKLOAD, CPU, Options(configs=Source()), Surroundings()) is None
    assert [str(each.message).split(":")[0] for each in told] == ["a known configuration does not apply and is ignored"]


def test_a_given_config_that_does_not_apply_is_an_error():
    with pytest.raises(DatabaseError, match="algorithm = 'none'"):
        known_tiling(WORKLOAD, CPU, Options(config=IMPOSSIBLE), Surroundings())
