"""Convolutions with given mappings on a weight-stationary systolic array: results by NumPy, cycles by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.mapped_convolution import mapped_convolution
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.conv.mapping import ConvMapping, best_mapping, parse_mapping, predicted_cycles
from tvm_tiling.decide.gemm.product_time import ProductEngines
from tvm_tiling.decide.gemm.strips import streamed_cycles
from tvm_tiling.decide.gemm.traffic import product_on
from tvm_tiling.errors import HardwareError, WorkloadError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.memory import Level, Memory
from tvm_tiling.hardware.near_tile import NearTile
from tvm_tiling.workload import ConvWorkload, GemmWorkload

ARRAY = Hardware(
    name="array",
    near_tile=NearTile(
        buf_a=4096,
        buf_b=4096,
        acc_max=4096,
        macs_per_cycle=16,
        bandwidth={"external": 4.0},
        block_m=4,
        block_n=4,
        block_k=4,
        partial_blocks="streamed",
        strip_least=3.0,
        strip_start=1.0,
        column_cycles=1.0,
        block_change=2.0,
        fill=10,
        drain=5,
    ),
    memories={
        "external": Memory(bytes_per_cycle=4, latency=7, ports=2, row_bytes=4, page_bytes=64, page_cycles=3),
        "acc": Memory(bytes=8192),
    },
)
LAYER = ConvWorkload(n=1, h=9, w=7, ci=6, co=8, kh=3, kw=3, stride=(2, 1), dtype="int8")  # 4 x 5 points


def expected(workload, x, w):
    """Compute the convolution, saturated to int8."""
    y = np.zeros((workload.ho, workload.wo, workload.co), dtype=np.int64)
    down, across = workload.stride
    for s, r in itertools.product(range(workload.kh), range(workload.kw)):
        part = x[s : s + (workload.ho - 1) * down + 1 : down, r : r + (workload.wo - 1) * across + 1 : across]
        y += np.einsum("hwc,co->hwo", part.astype(np.int64), w[s, r].astype(np.int64))
    return np.clip(y, -128, 127).astype(np.int8)


@pytest.mark.parametrize(
    "mapping",
    [
        ConvMapping(k=8, c=6, p=5, q=4, r=3, s=3),
        ConvMapping(k=4, c=3, p=1, q=2, r=3, s=1),
        ConvMapping(k=2, c=1, p=5, q=1, r=1, s=3),
        ConvMapping(k=8, c=2, p=5, q=2, r=1, s=1),
    ],
)
def test_every_mapping_computes_the_convolution(mapping):
    rng = np.random.default_rng(24)
    x = rng.integers(-9, 9, (LAYER.h, LAYER.w, LAYER.ci), dtype=np.int8)
    w = rng.integers(-5, 5, (LAYER.kh, LAYER.kw, LAYER.ci, LAYER.co), dtype=np.int8)
    program = mapped_convolution(LAYER, mapping, ARRAY)
    np.testing.assert_array_equal(run(program, {"x": x, "w": w})["y"], expected(LAYER, x, w))
    assert simulate(program).cycles > 0  # which refuses hazards


def test_cycles_of_one_tile_by_hand():
    """Weights: 9 * 6 runs of 8 bytes, 2 rows each: 108 cycles, 432 bytes in pages of 64: 6.75 of 3 cycles each: 21.
    Image: 63 runs of 6 bytes, 2 rows each: 126 cycles, 378 bytes: 5.9 pages: 18. Blocks: 2 of rows, 9 * 2 of depth, in
    each 4 lines of 5 columns: strips of 4 (5 cycles) and 1 (2), and a change (2): 36 * 30, and the fill. Results: 20
    runs of 8 bytes: 40 cycles, 160 bytes: 2.5 pages: 8."""
    program = mapped_convolution(LAYER, ConvMapping(k=8, c=6, p=5, q=4, r=3, s=3), ARRAY)
    report = simulate(program)
    busy = {name: engine.busy for name, engine in report.engines.items()}
    assert busy["load_a"] == 108 + math.ceil(6.75 * 3)
    assert busy["load_b"] == 126 + math.ceil(378 / 64 * 3)
    assert busy["matrix"] == 10 + 36 * (4 * (5 + 2) + 2)
    assert busy["store"] == 40 + 8
    # The two loads run concurrently, each with a port of its own.
    assert report.cycles == 126 + 18 + 7 + busy["matrix"] + 5 + busy["store"] + 7


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (1, 3),  # limited by the issue of its instructions
        (4, 5),  # streams 1 + 4 cycles
        (5, 5 + 2),  # the short strip is issued while the full one streams
        (9, 5 + 5 + 2),
    ],
)
def test_the_issue_of_a_strip_overlaps_with_the_strips_before_it(columns, line):
    one = np.array(1)
    assert streamed_cycles(ARRAY.near_tile, 1, one, one, np.array(columns), one) == line + 2


def test_no_strip_takes_less_than_its_operations():
    fast = replace(ARRAY.near_tile, column_cycles=0.1)  # 4 columns x 16 operations at 16 per cycle
    one = np.array(1)
    assert streamed_cycles(fast, 1, one, one, np.array(4), one) == 4 + 2


def test_pages_count_for_rows_that_lie_far_apart():
    layer = ConvWorkload(n=1, h=1, w=1, ci=8, co=256, kh=1, kw=1, dtype="int8")
    program = mapped_convolution(layer, ConvMapping(k=4, c=8, p=1, q=1, r=1, s=1), ARRAY)
    # 64 tiles of 8 runs of 4 bytes, 256 bytes apart: one 64-byte page each.
    assert simulate(program).engines["load_a"].busy == 64 * (8 + 8 * 3)


@pytest.mark.slow
def test_the_chosen_mapping_is_among_the_fastest_of_all():
    machine = replace(ARRAY, near_tile=replace(ARRAY.near_tile, buf_a=200, buf_b=200, acc_max=256))
    layer = replace(LAYER, h=7, w=6, stride=(1, 1))
    whole = (layer.co, layer.ci, layer.wo, layer.ho, layer.kw, layer.kh)
    every = []
    for sizes in itertools.product(*([d for d in range(1, n + 1) if n % d == 0] for n in whole)):
        try:
            every.append(simulate(mapped_convolution(layer, ConvMapping(*sizes), machine), check=False).cycles)
        except HardwareError:
            continue
    chosen = best_mapping(layer, machine)
    own = simulate(mapped_convolution(layer, chosen, machine)).cycles
    assert own <= 1.05 * min(every) < 0.5 * max(every)
    assert predicted_cycles(layer, chosen, machine) == pytest.approx(own, rel=0.1)


def test_what_a_mapping_says():
    text = "L3[WIO] K2 C8 - L2[WI] N1 K10X - L1[O] K50 C16 C16X P7 - L0[W] Q2 P2 S3"
    assert parse_mapping(text) == ConvMapping(k=500, c=256, p=14, q=2, r=1, s=3)
    for wrong in ("L3[WIO] K2", "L3[WIO] K2 - L2[WI] Z3", "K2 - L2[WI] K3", ""):
        with pytest.raises(WorkloadError, match="expected at least two levels"):
            parse_mapping(wrong)


def test_what_does_not_fit_is_refused():
    whole = ConvMapping(k=8, c=6, p=5, q=4, r=3, s=3)
    small = replace(ARRAY, near_tile=replace(ARRAY.near_tile, buf_a=809))
    with pytest.raises(HardwareError, match=r"432 \+ 378 bytes of operands"):
        mapped_convolution(LAYER, whole, small)
    assert best_mapping(LAYER, small) != whole
    with pytest.raises(WorkloadError, match="p = 2; expected a divisor of 5"):
        mapped_convolution(LAYER, replace(whole, p=2), ARRAY)
    with pytest.raises(WorkloadError, match="without padding"):
        best_mapping(replace(LAYER, padding=(1, 1, 1, 1)), ARRAY)
    with pytest.raises(HardwareError, match="streamed"):
        best_mapping(LAYER, Hardware.load("vta"))


def test_levels_and_a_streaming_array_are_refused():
    level = Level(name="cluster", bytes=4096)
    with pytest.raises(HardwareError, match="'streamed' is not supported with storage levels"):
        replace(ARRAY, levels=(level, replace(level, name="unit")))


def test_decisions_of_plain_gemms_know_the_strips():
    """The decision's time of a multiplication on the engine is that of its instruction."""
    engine = ProductEngines(product_on(GemmWorkload(m=8, n=6, k=9, dtype="int8"), ARRAY), ARRAY)
    cycles = engine.products(np.array(8), np.array(6), np.array(9))
    assert int(cycles) == 10 + 2 * 3 * (5 + 3 + 2)  # strips of 4 and of 2 columns
