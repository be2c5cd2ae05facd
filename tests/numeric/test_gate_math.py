"""Sigmoid and tanh of recurrent cells, from exponentials within bounds, against float64."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

import tvm_tiling as tt
from tvm_tiling.lowering.gate_math import falling, rising
from tvm_tiling.lowering.registers import register

LANES, COUNT = 16, 16 * 40_000
WITHIN = 2.5  # units in the last place, as stated in gate_math.py


@pytest.fixture(scope="module")
def kernel():
    """Sigmoid and tanh of COUNT numbers."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("gates")
        T.func_attr({"global_symbol": "gates", "tirx.noalias": True})
        x, sigmoid, tanh = (T.arg(name, T.Buffer((COUNT,), "float32")) for name in ("x", "sigmoid", "tanh"))
        with T.sblock("root"), T.serial(0, COUNT // LANES) as vector:

            def keep(value):
                held = register(LANES, "float32")
                with T.vectorized(0, LANES) as lane:
                    T.buffer_store(held, value(lane), [lane])
                return held

            def loaded(lane):
                return x[vector * LANES + lane]

            e, m = falling(keep, loaded), rising(keep, loaded)
            with T.vectorized(0, LANES) as lane:
                T.buffer_store(sigmoid, 1.0 / (1.0 + e[lane]), [vector * LANES + lane])
            with T.vectorized(0, LANES) as lane:
                T.buffer_store(tanh, m[lane] / (m[lane] + 2.0), [vector * LANES + lane])
    compiled = tvm.compile(builder.get(), target=tt.llvm_target())

    def run(values):
        given = np.zeros(COUNT, "float32")
        given[: len(values)] = values
        results = [tvm.runtime.empty((COUNT,), "float32") for _ in range(2)]
        compiled(tvm.runtime.tensor(given), *results)
        return [result.numpy()[: len(values)] for result in results]

    return run


@pytest.mark.parametrize("bound", [1e-3, 1.0, 20.0, 63.0])
def test_within_the_stated_units(kernel, bound):
    x = np.random.default_rng(0).uniform(-bound, bound, COUNT).astype("float32")
    exact = x.astype("float64")
    for found, wanted in zip(kernel(x), (1 / (1 + np.exp(-exact)), np.tanh(exact)), strict=True):
        units = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype("float32"))
        assert units.max() <= WITHIN


def test_ends_and_numbers_that_are_none(kernel):
    x = np.array([0, -0.0, 100, -100, 3e38, -3e38, np.inf, -np.inf, np.nan, 1e-38, -1e-42], "float32")
    sigmoid, tanh = kernel(x)
    np.testing.assert_allclose(sigmoid, [0.5, 0.5, 1, 0, 1, 0, 1, 0, np.nan, 0.5, 0.5], atol=2e-28)
    np.testing.assert_allclose(tanh, [0, 0, 1, -1, 1, -1, 1, -1, np.nan, 1e-38, -1e-42], rtol=1e-6, atol=1e-44)
