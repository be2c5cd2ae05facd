"""Blocks of a matrix multiplication's packed B that are prefetched during the one before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

import tvm_tiling as tt
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.schedule import this_cpu
from tvm_tiling.workload import GemmWorkload

BLOCK = 196608


def machine(block, **changes):
    here = this_cpu()
    costs = replace(here.cpu.kernel_costs, spread_block=float(block), prefetching_rows=2.0)
    return replace(here, cpu=replace(here.cpu, costs=costs, **changes))


def decided(block, packing="ahead", **sizes):
    return decide_on_cpu(GemmWorkload(**sizes), machine(block), packing=packing)


def test_a_block_of_a_layer_with_many_weights_is_prefetched_during_the_one_before():
    before, now = (decided(block, m=128, n=3072, k=768) for block in (0, BLOCK))
    assert not before.prefetch_next
    assert now.prefetch_next and "next block of B prefetched" in now.explain()
    assert 4 * now.partition_k * now.partition_n <= BLOCK


@pytest.mark.parametrize(
    ("packing", "sizes"),
    [
        ("run", {"m": 128, "n": 3072, "k": 768}),  # B has just been packed
        ("ahead", {"m": 20000, "n": 512, "k": 512}),  # A is larger than B, and is read again for each block
        ("ahead", {"m": 128, "n": 32, "k": 64}),  # a single block
    ],
)
def test_other_layers_keep_the_blocks_that_fit_l2(packing, sizes):
    before, now = (decided(block, packing, **sizes) for block in (0, BLOCK))
    assert now.partition_n == before.partition_n
    assert packing == "ahead" or not now.prefetch_next


@pytest.mark.parametrize(("m", "n", "k"), [(61, 500, 300), (128, 700, 3100), (45, 1000, 64)])
@pytest.mark.parametrize("cores", sorted({1, this_cpu().cpu.cores}))
def test_numbers(m, n, k, cores):
    b = np.random.default_rng(0).standard_normal((k, n), "float32")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["a", "b"], ["y"])],
        "product",
        [onnx.helper.make_tensor_value_info("a", 1, (m, k))],
        [onnx.helper.make_tensor_value_info("y", 1, (m, n))],
        [onnx.numpy_helper.from_array(b, "b")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    exe = tt.compile(model, target=machine(16384, cores=cores, threads=cores), cache=False)
    (row,) = exe.report().operators
    assert row.decision["prefetch_next"]
    a = np.random.default_rng(1).standard_normal((m, k), "float32")
    np.testing.assert_allclose(exe.run(a), a.astype("float64") @ b, rtol=2e-4, atol=2e-4)
