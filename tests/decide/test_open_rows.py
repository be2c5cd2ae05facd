"""Decisions for matrix multiplications with dynamic rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tvm_tiling as tt
from tvm_tiling.decide.gemm.cpu_gemm import decide_on_cpu
from tvm_tiling.decide.gemm.open_rows import MOST_ROWS, NEAR, decide_open_rows
from tvm_tiling.decide.options import Options
from tvm_tiling.decide.recorded import read_decision
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.errors import HardwareError

AHEAD = Surroundings(prepacked=True, plain_a=True, plain_b=True, accumulates=True, exchanged=False)


def decided(n: int, k: int, target: str = "zen4-server-8c", rows: int = 128):
    workload = tt.GemmWorkload(m=rows, n=n, k=k)
    return decide_open_rows(workload, tt.Hardware.load(target), Options(prepacked=True), AHEAD)


@pytest.mark.parametrize("target", ["zen4-server-8c", "neoverse-v1-16c", "skylake-desktop-8c"])
@pytest.mark.parametrize(("n", "k"), [(768, 768), (3072, 768), (768, 3072), (77, 70), (10, 64), (1, 33), (4096, 4096)])
def test_ranges_cover_all_rows_and_use_no_more_cores_than_there_are(n, k, target):
    tiling = decided(n, k, target)
    cores = tt.Hardware.load(target).cpu.cores
    limits = [found.rows for found in tiling.ranges]
    assert limits[-1] is None and limits[:-1] == sorted(limits[:-1])
    for found in tiling.ranges:
        batch, rows, columns = found.threads
        assert 1 <= batch * rows * columns <= cores and batch == 1
    neighbours = zip(tiling.ranges, tiling.ranges[1:], strict=False)
    assert all(one.threads != other.threads for one, other in neighbours)


@pytest.mark.parametrize(("n", "k"), [(768, 768), (3072, 768), (100, 512), (10, 64)])
def test_the_tile_is_low_and_not_far_from_the_best(n, k):
    tiling = decided(n, k)
    best = decide_on_cpu(tt.GemmWorkload(m=128, n=n, k=k), tt.Hardware.load("zen4-server-8c"), packing="ahead")
    assert tiling.mr <= MOST_ROWS and tiling.form == "open" and tiling.threads_k == 1
    # Whole panels of columns are computed, so that few columns cost more than with the best tile for them.
    padded = -(-n // tiling.nr) * tiling.nr / n
    assert tiling.predicted_seconds <= best.predicted_seconds * NEAR * padded * 1.05


def test_a_decision_is_read_back_and_explains_itself():
    tiling = decided(1000, 512)
    assert read_decision(tiling.to_json()) == tiling
    assert json.loads(tiling.to_json())["op"] == "gemm of open rows"
    said = tiling.explain()
    assert "cores by rows" in said and "a kernel for each of up to 6 rows" in said
    assert str(tiling.ranges[-1]) in said


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_deterministic_results_of_half_precision_hold_no_partial_sums(dtype):
    w = tt.GemmWorkload(m=128, n=96, k=9000, dtype=dtype, acc_dtype=dtype)
    machine = tt.Hardware.load("zen4-server-8c")
    found = decide_open_rows(w, machine, Options(deterministic=True), replace(AHEAD, prepacked=False))
    assert found.partition_k == 9000
    kept = replace(w, acc_dtype="float32")
    assert decide_open_rows(kept, machine, Options(deterministic=True), AHEAD).partition_k < 9000


def test_kernels_prefetch_weights_where_that_was_measured():
    machine = tt.Hardware.load("zen4-server-8c")
    costs = replace(machine.cpu.kernel_costs, prefetching_rows=2.0)
    measured = replace(machine, cpu=replace(machine.cpu, costs=costs))
    w = tt.GemmWorkload(m=128, n=768, k=768)
    found = decide_open_rows(w, measured, Options(prepacked=True), AHEAD)
    assert found.prefetch_b and "B prefetched" in found.explain()
    plain = decide_open_rows(w, measured, Options(prepacked=False), replace(AHEAD, prepacked=False))
    without = decided(768, 768)
    assert plain.prefetch_b is None and without.prefetch_b is None
    assert "prefetched" not in plain.explain() and "prefetched" not in without.explain()


def test_a_machine_without_a_cpu_is_refused():
    with pytest.raises(HardwareError, match="has no CPU"):
        decide_open_rows(tt.GemmWorkload(m=8, n=8, k=8), tt.Hardware.load("vta"), Options(), AHEAD)


def test_sums_that_cannot_wait_in_the_output_keep_k_whole():
    workload = tt.GemmWorkload(m=128, n=768, k=9000)
    around = replace(AHEAD, accumulates=False)
    tiling = decide_open_rows(workload, tt.Hardware.load("zen4-server-8c"), Options(prepacked=True), around)
    assert tiling.partition_k >= 9000
