"""Models compiled with a database: its configurations are used, reported, and part of the cache key."""

from __future__ import annotations

import numpy as np
import pytest
from networks import Network, conv_bn_relu, default
from tvm import relax

import tvm_tiling as tt
from tvm_tiling.decide.configs.config import Config
from tvm_tiling.decide.configs.neighbourhood import neighbourhood
from tvm_tiling.workload import ConvWorkload, GemmWorkload

SHAPE = (1, 3, 13, 13)


def small(net: Network, x: relax.Expr):
    """A convolution and a classifier."""
    y = conv_bn_relu(net, x, 3, 16)
    flat = net.emit(relax.op.reshape(net.emit(relax.op.mean(y, [2, 3])), (1, 16)))
    return relax.op.matmul(flat, net.c(16, 10))


class Configs:
    """A database that returns the configuration of rank `rank` in the neighbourhood, for workloads that `known`
    names."""

    def __init__(self, rank: int, known=lambda workload: True) -> None:
        self.rank, self.known, self.asked = rank, known, []

    def config_for(self, workload, hardware, prepacked=False, epilogue="") -> Config | None:
        self.asked.append(workload)
        if not self.known(workload):
            return None
        return list(neighbourhood(workload, hardware).configs())[self.rank]


@pytest.fixture(scope="module")
def network():
    net = Network(SHAPE)
    mod = net.module(small)
    x = net.arrays()[0]
    return mod, x, default(mod, [x])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_TILING_CACHE", str(tmp_path))
    return tmp_path


def test_configs_are_taken_and_reported(network):
    mod, x, want = network
    source = Configs(7, known=lambda w: isinstance(w, ConvWorkload))
    exe = tt.compile(mod, database=source, cache=False)
    np.testing.assert_allclose(exe.run(x), want, rtol=1e-3, atol=1e-4)
    records = [o for o in exe.report().operators if o.kind in ("convolution", "gemm")]
    assert {type(w) for w in source.asked} == {ConvWorkload, GemmWorkload}
    for record in records:
        known = record.kind == "convolution"
        assert (record.why == "from the database") == known, record.name
    assert any(record.kind == "convolution" for record in records)


def test_the_cache_keeps_apart_what_other_configs_made(network, folder):
    mod, x, want = network
    first = tt.compile(mod, database=Configs(3))
    assert not first.from_cache
    same = Configs(3)
    again = tt.compile(mod, database=same)
    assert again.from_cache and same.asked
    np.testing.assert_allclose(again.run(x), want, rtol=1e-3, atol=1e-4)
    assert not tt.compile(mod, database=Configs(5)).from_cache
    assert not tt.compile(mod).from_cache
    assert tt.compile(mod, database=Configs(5)).from_cache


def test_a_corrupted_list_of_questions_costs_a_compilation(network, folder):
    mod, _, _ = network
    tt.compile(mod, database=Configs(3))
    (asked,) = folder.glob("*.asked.json")
    asked.write_text("[")
    assert not tt.compile(mod, database=Configs(3)).from_cache
    assert tt.compile(mod, database=Configs(3)).from_cache


def test_nothing_known_is_the_formulas_decision(network):
    mod, x, want = network
    exe = tt.compile(mod, database=Configs(0, known=lambda w: False), cache=False)
    assert all(o.why != "from the database" for o in exe.report().operators)
    np.testing.assert_allclose(exe.run(x), want, rtol=1e-3, atol=1e-4)
