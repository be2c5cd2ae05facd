"""Configurations as blocked matrix multiplications: idle work and cross-core transfers, equally for all operators."""

from __future__ import annotations

import math

import pytest

from tvm_tiling.decide.configs.blocked_configs import blocked_product
from tvm_tiling.decide.configs.config import rule_for
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CPU = Hardware.load("icelake-server-2c")
LAYER = ConvWorkload(n=1, h=14, w=14, ci=48, co=40, kh=3, kw=3, padding=(1, 1, 1, 1))


def of_product(**choices):
    workload = GemmWorkload(m=100, n=72, k=60)
    space = neighbourhood(workload, CPU)
    config = space.config({"form": "normal", "microkernel": (6, 4), "depth": 30, **choices})
    return blocked_product(workload, space.tiling(config))


def of_layer(form, *, prepacked=False):
    rule = rule_for(form, LAYER, CPU, Surroundings(prepacked=prepacked))
    config = min(rule.candidates(), key=rule.cost)
    return config, blocked_product(LAYER, rule.tiling_of(config))


def test_a_gemm_by_hand():
    found = of_product(threads=(1, 2, 1, 1), pack_b="pack")
    assert (found.m, found.n, found.k, found.rows, found.vectors, found.blocks) == (100, 72, 60, 6, 4, 2)
    told = found.features()
    # 17 tiles of 6 rows: one core has 9 of them.
    assert told["balance"] == pytest.approx(math.log2(54 * 2 / 100))
    assert (told["row_tail"], told["row_tail_share"]) == (pytest.approx(4 / 6), pytest.approx(4 / 100))
    assert (told["column_tail_share"], told["lane_tail"]) == (pytest.approx(8 / 72), pytest.approx(8 / 16))
    assert (told["accumulators"], told["registers"]) == (24, 29)
    # Both cores pack half of B and read all of it.
    assert found.handed_on == 60 * 72 // 2
    assert told["lines_shared"] == 0.0


def test_data_that_each_core_packs_for_itself_costs_no_transfer():
    found = of_product(threads=(1, 1, 2, 1), pack_b="pack")
    assert found.packed and found.handed_on == 0
    # Rows of 288 bytes: both cores write to a line of each, in both blocks of the sums.
    assert found.features()["lines_shared"] == pytest.approx(100 * 2 / 60)
    assert of_product(threads=(1, 2, 1, 1), pack_b="none").handed_on == 0


def test_convolutions_are_gemms_of_points_by_channels():
    config, direct = of_layer("direct")
    rows, columns, vectors = config.choice("microkernel")
    assert (direct.m, direct.n, direct.k) == (196, 40, 9 * 48)
    assert (direct.rows, direct.vectors) == (rows * columns, vectors)
    config, winograd = of_layer("winograd")
    m = config.choice("m")
    assert (winograd.m, winograd.n, winograd.k) == (math.ceil(14 / m) ** 2, 40, 48)
    config, folded = of_layer("wfold")
    assert (folded.m, folded.n, folded.k) == (math.ceil(196 / config.choice("ws")), 40, 9 * 48)
    assert (folded.rows, folded.vectors) == config.choice("microkernel")
    assert direct.macs == winograd.macs == folded.macs == LAYER.macs
    told = [found.features().keys() for found in (direct, winograd, folded)]
    assert all(names == of_product().features().keys() for names in told)


@pytest.mark.parametrize("form", ["direct", "winograd", "wfold"])
def test_prepacked_weights_cost_no_transfer(form):
    _, prepacked = of_layer(form, prepacked=True)
    assert not prepacked.packed and prepacked.handed_on == 0


def test_other_patterns_give_none():
    few = GemmWorkload(m=1, n=512, k=512)
    space = neighbourhood(few, CPU)
    stream = next(config for config in space.configs() if config.form == "stream")
    assert blocked_product(few, space.tiling(stream)) is None
