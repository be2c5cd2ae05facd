"""Threads of models take no processor time while no model runs."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tvm_tiling as tt

IDLE = 0.03  # seconds of processor time in 0.75 s without work: timers of other tests' threads


def processor_seconds() -> float:
    """Processor time of all threads of this process in 0.75 s without work, which begin when threads have gone to
    sleep: those of TVM's pool, which pack weights, yield 300,000 times before, for some 0.1 s."""
    time.sleep(0.3)
    start = time.process_time()
    time.sleep(0.75)
    return time.process_time() - start


def test_threads_sleep_after_runs():
    onnx = pytest.importorskip("onnx")
    helper, rng = onnx.helper, np.random.default_rng(0)
    weights = [onnx.numpy_helper.from_array(rng.random((512, 512), "float32"), name) for name in "ab"]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "b"], ["y"])]
    ends = [[helper.make_tensor_value_info(name, 1, [64, 512])] for name in "xy"]
    graph = helper.make_graph(nodes, "two", *ends, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    executable, x = tt.compile(model, cache=False), rng.random((64, 512), "float32")
    for _ in range(20):
        executable.run(x)
    assert processor_seconds() < IDLE
    tt.run_many([(executable, x)] * 8)
    assert processor_seconds() < IDLE
