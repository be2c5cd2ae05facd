"""The configuration of a matrix multiplication for several storage levels: against counting, and against every
configuration."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import time

import pytest
from level_configs import compared, compared_convolutions, every_config, random_case, walked_loads

import tvm_tiling as tt
from tvm_tiling.decide.levels.level_gemm import decide_levels, level_product
from tvm_tiling.decide.levels.level_model import traffic_of
from tvm_tiling.decide.levels.search import best_blocks
from tvm_tiling.hardware.memory import Level

DLA3 = tt.Hardware.load("dla3")


def test_loads_are_those_that_walking_the_loops_counts():
    rng = random.Random(0)
    looked = 0
    for _ in range(40):
        p = level_product(*random_case(rng))
        for b in itertools.islice(every_config(p), rng.randrange(20), 6000, 17):
            if p.m % b.rows[0] or p.n % b.columns[0]:
                continue  # a block may stay by chance if the last one of a level is alone
            for level, found in enumerate(traffic_of(p, b)):
                assert walked_loads(p, b, level) == (found.load_a * p.m * p.k, found.load_b * p.n * p.k), b
                looked += 1
    assert looked > 500


def test_a_decision_is_near_the_best_of_all_configs():
    ratios = compared(range(1000, 1030), most=5000)
    assert len(ratios) > 12
    assert sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)
    assert sum(ratio <= 1.02 for ratio in ratios) >= 0.85 * len(ratios)


def test_blocks_fit_their_levels_and_are_multiples_of_each_other():
    rng = random.Random(7)
    for _ in range(40):
        workload, hardware = random_case(rng)
        p = level_product(workload, hardware)
        if best_blocks(p) is None:
            with pytest.raises(tt.HardwareError, match="nothing fits"):
                decide_levels(workload, hardware)
            continue
        d = decide_levels(workload, hardware)
        for config, level in zip(d.levels, hardware.levels, strict=True):
            size_a = -(-min(config.left[0], p.m) // config.across_m) * config.left[1]
            size_b = -(-min(config.right[1], p.n) // config.across_n) * config.right[0]
            if level.bytes is None:
                assert size_a * config.slots_a <= level.bytes_a and size_b * config.slots_b <= level.bytes_b
            else:
                assert size_a * config.slots_a + size_b * config.slots_b < level.bytes
            assert config.across_m * config.across_n == config.instances
            assert config.left[1] == config.right[0]
        for outer, inner in zip(d.levels, d.levels[1:], strict=False):
            assert outer.left[0] % inner.left[0] == outer.right[1] % inner.right[1] == 0
        assert d.levels[-1].left[0] % d.tile_m == d.levels[-1].right[1] % d.tile_n == 0


@pytest.mark.parametrize("size", [(1024, 1024, 1024), (4096, 1024, 1024), (128, 4096, 1024)], ids=str)
def test_large_gemms_keep_dla3_busy(size):
    m, n, k = size
    d = tt.decide(tt.GemmWorkload(m=m, n=n, k=k, dtype="int8"), DLA3)
    assert d.utilisation > 0.95
    assert [config.name for config in d.levels] == ["cluster", "unit", "array"]


def test_a_decision_takes_milliseconds():
    start = time.process_time()
    for m in (500, 700, 900):
        tt.decide(tt.GemmWorkload(m=m, n=1000, k=1000, dtype="int8"), DLA3)
    assert (time.process_time() - start) / 3 < 0.5  # some tens of milliseconds; machines that run tests are busy


def test_reasons_text_and_json():
    d = tt.decide(tt.GemmWorkload(m=256, n=256, k=4096, dtype="int8"), DLA3)
    told = json.loads(d.to_json())
    assert [config["name"] for config in told["levels"]] == ["cluster", "unit", "array"]
    assert told["levels"][0]["bytes_a"] == d.levels[0].bytes_a == d.load_a * 256 * 4096
    text = d.explain()
    for config in d.levels:
        assert config.name in text and d.why(config.reason) in text
    assert d.split_k and d.split_level in ("cluster", "unit", "array")
    assert f"{d.tile_k} elements" in d.why("split_level")


def test_convolutions_are_gemms_of_kernels_by_lines():
    conv = tt.ConvWorkload(n=1, h=28, w=28, ci=128, co=128, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8")
    d = tt.decide(conv, DLA3)
    assert d.utilisation > 0.8
    for config in d.levels:
        (rows, depth), (of_b, columns) = config.left, config.right
        assert depth == of_b and depth % 9 == 0 and columns % d.points == 0
        assert config.result[0] <= rows and config.result[1] <= columns
        assert config.bytes_a == config.load_a * 128 * 128 * 9
        assert config.bytes_b >= config.load_b * 28 * 28 * 128 * 0.99
    assert "rows of" in d.why("tile_n")


def test_a_convolution_of_one_tap_takes_what_its_gemm_takes():
    conv = tt.ConvWorkload(n=1, h=28, w=28, ci=256, co=128, kh=1, kw=1, dtype="int8")
    product = tt.GemmWorkload(m=128, n=784, k=256, dtype="int8")
    assert tt.decide(conv, DLA3).cycles <= 1.15 * tt.decide(product, DLA3).cycles


def test_a_convolution_is_near_the_best_of_all_configs():
    ratios = compared_convolutions(range(30), most=8000)
    assert len(ratios) > 12
    assert min(ratios) > 1 - 1e-9
    assert sum(ratio <= 1.05 for ratio in ratios) >= 0.95 * len(ratios)


def test_options_of_page_01_are_refused():
    w = tt.GemmWorkload(m=64, n=64, k=64, dtype="int8")
    for option in ({"mode": "seed"}, {"acc_factor": 0.25}, {"outer_preset": "nm"}):
        with pytest.raises(tt.HardwareError, match="does not apply to a gemm on dla3"):
            tt.decide(w, DLA3, **option)


def test_a_level_that_is_too_small_is_named():
    levels = (*DLA3.levels[:2], dataclasses.replace(DLA3.levels[2], bytes_b=64))
    with pytest.raises(tt.HardwareError, match=r"nothing fits; level 'array' has bytes_b = 64; expected at least 128"):
        tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype="int8"), dataclasses.replace(DLA3, levels=levels))
    shared = (Level(name="chip", bytes=100), *DLA3.levels[1:])
    with pytest.raises(tt.HardwareError, match=r"level 'chip' has 100 bytes; expected at least"):
        tt.decide(tt.GemmWorkload(m=64, n=64, k=64, dtype="int8"), dataclasses.replace(DLA3, levels=shared))
