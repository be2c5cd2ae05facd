"""The configurations near a decision: complete, valid, ordered, and encoded for a cost model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_config_conv import convolutions
from test_config_gemm import products

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import config_of, rules_for, tiling_of
from tvm_tiling.decide.configs.neighbourhood import Space, neighbourhood, settled
from tvm_tiling.decide.conv.cpu_conv import decide_conv_on_cpu
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.errors import DatabaseError
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CPU = Hardware.load("icelake-server-2c")


@given(st.one_of(products(), convolutions()))
@settings(max_examples=30, deadline=None)
def test_every_config_is_possible_and_comes_back_from_its_tiling(w):
    space = neighbourhood(w, CPU)
    configs = list(space.configs())
    assert len(configs) == len(set(configs)) == len(space)
    for config in configs[:: max(1, len(configs) // 20)]:
        assert config_of(tiling_of(config, w, CPU), w, CPU) == config
        assert space.config(space.choices(config)) == config
        assert all(value in space.options[name] for name, value in space.choices(config).items())


@given(st.one_of(products(), convolutions()))
@settings(max_examples=15, deadline=None)
def test_the_space_holds_every_candidate_in_order_of_prediction(w):
    space = neighbourhood(w, CPU)
    for rule in rules_for(w, CPU):
        assert all(settled(rule, config) in space for config in rule.candidates())
    costs = [space.predicted(config) for config in space.configs()]
    assert costs == sorted(costs) and all(0 < cost < math.inf for cost in costs)
    decided = decide_on_cpu(w, CPU) if isinstance(w, GemmWorkload) else decide_conv_on_cpu(w, CPU)
    assert space.predicted(space.start) == pytest.approx(decided.predicted_seconds)
    assert space.tiling(space.start).form == decided.form
    first = {name: space.options[name][0] for name in space.choices(space.start)}
    assert first == space.choices(space.start)


def test_combinations_are_configs_or_nothing():
    space = tt.neighbourhood(GemmWorkload(m=1024, n=1024, k=1024), CPU)
    assert space.config({}) == space.start
    other = space.config({"microkernel": (8, 3), "inner_order": "nm"})
    assert (other.choice("microkernel"), other.choice("inner_order")) == ((8, 3), "nm")
    assert space.config({"microkernel": (30, 4)}) is None  # more registers than exist
    assert space.config({"depth": 1024, "columns": 1024}) is None  # more than L2
    with pytest.raises(DatabaseError, match="expected normal, pack"):
        space.config({"form": "winograd"})
    assert space.config({"form": "pack"}).form == "pack"
    assert list(space.configs(5)) == list(space.configs())[:5]


def test_forms_are_a_choice_of_a_convolution():
    w = ConvWorkload(n=1, h=56, w=56, ci=64, co=64, kh=3, kw=3, padding=(1, 1, 1, 1))
    space = neighbourhood(w, CPU, prepacked=True)
    assert set(space.options["form"]) == {"direct", "winograd", "wfold"}
    config = space.config({"form": "direct", "direct.band": 14, "winograd.m": 2})
    assert (config.form, config.choice("band")) == ("direct", 14)
    assert space.tiling(config).pack_w == "ahead"


def spread(space: Space) -> set[str]:
    """Return the choices of the best algorithm with more than one value."""
    form = space.start.form
    return {name for name in space.choices(space.start) if len(space.options[name]) > 1} | {form}


def test_what_the_issue_names_can_be_changed():
    product = neighbourhood(GemmWorkload(m=512, n=512, k=4096), CPU)
    assert spread(product) >= {"threads", "depth", "columns", "inner_order", "microkernel", "pack_b", "form"}
    assert any(threads[3] > 1 for threads in neighbourhood(GemmWorkload(m=8, n=64, k=16384), CPU).options["threads"])


def test_features_distinguish_configs_and_have_the_same_names():
    space = neighbourhood(GemmWorkload(m=500, n=1000, k=700), CPU)
    told = [space.features(config) for config in space.configs(40) if config.form == space.start.form]
    assert len({tuple(features) for features in told}) == 1
    assert len({tuple(features.values()) for features in told}) == len(told)
    assert all(math.isfinite(value) for features in told for value in features.values())
    ragged = space.features(space.config({"microkernel": (6, 4)}))
    assert ragged["padding"] == pytest.approx(1 - 500 / 504 * 1000 / 1024)
    # L2 holds blocks of all rows by partition_n columns by partition_k.
    config = space.start
    tiling, level = space.tiling(config), next(blocks for blocks in config.levels if blocks.level == "L2")
    elements = math.prod(level.left) + math.prod(level.right)
    macs = level.result[0] * tiling.partition_n * tiling.partition_k
    expected = 500 * 1000 * 700 / macs * elements * 4
    assert 2 ** space.features(config)["L2.traffic"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "workload",
    [
        GemmWorkload(m=500, n=1000, k=700),
        GemmWorkload(m=8, n=64, k=16384),
        ConvWorkload(n=1, h=28, w=28, ci=64, co=96, kh=3, kw=3, padding=(1, 1, 1, 1)),
        ConvWorkload(n=1, h=28, w=28, ci=64, co=96, kh=1, kw=1),
    ],
    ids=str,
)
def test_a_cost_is_told_apart_into_its_parts(workload):
    space = neighbourhood(workload, CPU)
    shares: dict[str, set[float]] = {}
    for config in space.configs(200):
        features = space.features(config)
        parts = {name: share for name, share in features.items() if name.startswith("part.")}
        assert not parts or sum(parts.values()) == pytest.approx(1)
        assert all(share >= 0 for share in parts.values())
        if parts:
            # Thread start-up takes the same time in every configuration that starts them once.
            start = parts["part.start"] * 2 ** features["predicted"]
            shares.setdefault(config.form, set()).add(round(start * 1e9))
    assert shares and all(max(times) <= 3 * min(times - {0}) for times in shares.values())
