"""Attention on a CPU: the decision's use of caches, registers and cores, for any shape."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.decide.vector.attention import AttentionShape, decide_attention
from tvm_tiling.hardware.description import Hardware

CPUS = {name: Hardware.load(name).cpu for name in ("zen4-server-8c", "neoverse-v1-16c")}
SIZES = st.integers(1, 3000)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(CPUS)), st.integers(1, 64), SIZES, SIZES, st.integers(1, 256), st.integers(1, 256))
def test_limits_hold_for_any_shape(name, batch, rows, keys, depth, width):
    cpu = CPUS[name]
    shape = AttentionShape(batch=batch, rows=rows, keys=keys, depth=depth, width=width)
    tiling = decide_attention(shape, cpu)
    l2 = cpu.cache(2)
    assert 1 <= tiling.block_rows <= rows
    assert tiling.block_rows == 1 or 4 * tiling.block_rows * keys <= cpu.kernel_costs.l2_scores * l2.size / l2.cores
    for tile in (tiling.scores, tiling.values):
        assert (tile.height + 1) * tile.vectors + 1 <= cpu.vector_registers and tile.height <= rows
    assert 1 <= tiling.threads_batch * tiling.threads_rows <= cpu.cores
    assert tiling.threads_batch <= batch and tiling.threads_rows <= -(-rows // tiling.block_rows)
    assert tiling.predicted_seconds >= 0
    assert json.loads(tiling.to_json())["block_rows"] == tiling.block_rows


def test_long_rows_make_low_blocks():
    cpu = CPUS["zen4-server-8c"]
    heights = [
        decide_attention(AttentionShape(batch=8, rows=512, keys=keys, depth=64, width=64), cpu).block_rows
        for keys in (64, 1024, 16384)
    ]
    assert heights == sorted(heights, reverse=True) and heights[0] > heights[-1]


def test_cores_share_the_batch_where_it_is_even_and_rows_where_not():
    cpu = CPUS["zen4-server-8c"]
    even = decide_attention(AttentionShape(batch=16, rows=384, keys=384, depth=64, width=64), cpu)
    few = decide_attention(AttentionShape(batch=1, rows=2048, keys=2048, depth=64, width=64), cpu)
    assert (even.threads_batch, even.threads_rows) == (cpu.cores, 1)
    assert few.threads_batch == 1 and few.threads_rows > 1


def test_small_work_stays_on_one_core():
    tiling = decide_attention(AttentionShape(batch=2, rows=4, keys=8, depth=8, width=8), CPUS["zen4-server-8c"])
    assert (tiling.threads_batch, tiling.threads_rows) == (1, 1)


@pytest.mark.parametrize("field", ["form", "block_rows", "scores", "values", "threads_batch", "threads_rows"])
def test_every_choice_has_its_reason(field):
    tiling = decide_attention(AttentionShape(batch=12, rows=128, keys=128, depth=64, width=64), CPUS["zen4-server-8c"])
    assert tiling.why(field) and tiling.why(field) in tiling.explain()
