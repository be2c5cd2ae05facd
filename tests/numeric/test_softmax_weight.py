"""Softmax weights that would be subnormal are zero; nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

import tvm_tiling as tt


def softmax(log: bool = False) -> tt.Executable:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((7, 33), "float32"))
    function = relax.op.nn.log_softmax if log else relax.op.nn.softmax
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(function(x, -1))
        builder.emit_func_output(result)
    return tt.compile(builder.get(), cache=False)


def expected(x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        weights = np.exp(x.astype("float64") - x.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def scores() -> np.ndarray:
    x = np.random.default_rng(0).normal(0, 5, (7, 33)).astype("float32")
    x[1, ::2] -= 100.0  # e^-100 is subnormal
    x[2, ::3] = -np.inf
    x[3, 5] = np.nan
    x[4] = -np.inf
    x[5, 7] = np.inf
    x[6] = 1e30
    return x


def test_no_weight_is_subnormal(scores):
    found = softmax().run(scores)
    right = expected(scores)
    np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-35)
    assert not ((np.abs(found) > 0) & (np.abs(found) < np.finfo("float32").tiny)).any()
    assert (found[1, ::2] == 0).all() and (found[2, ::3] == 0).all()
    assert np.isnan(found[[3, 4]]).all() and np.isnan(found[5]).any()


def test_logarithms_stay_as_they_are(scores):
    with np.errstate(all="ignore"):
        right = np.log(expected(scores))
    rows = [0, 6]
    np.testing.assert_allclose(softmax(log=True).run(scores)[rows], right[rows], rtol=2e-5, atol=2e-5)
    far = softmax(log=True).run(scores)[1]
    assert np.isfinite(far).all() and (far[::2] < -80).all()
