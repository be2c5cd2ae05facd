"""Column blocks of direct convolutions whose weights come from memory."""

from __future__ import annotations

from dataclasses import replace

import tvm_tiling as tt
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload

MACHINE = Hardware.load("icelake-server-2c")
LAYER = ConvWorkload(n=1, h=14, w=14, ci=256, co=1024, kh=1, kw=1, layout="NHWC")
BLOCK = 131072


def columns(block, weights="packed", layer=LAYER):
    cpu = MACHINE.cpu
    machine = replace(MACHINE, cpu=replace(cpu, costs=replace(cpu.kernel_costs, prefetched_block=block)))
    tiling = tt.decide(layer, machine, algorithm="direct", weights=weights)
    assert tiling.inner_order == "mn"
    return tiling.columns


def test_blocks_have_as_many_weights_as_are_prefetched_meanwhile():
    assert columns(0.0) > 2 * BLOCK // (4 * 256) > columns(float(BLOCK))
    assert 4 * 256 * columns(float(BLOCK)) <= BLOCK


def test_weights_that_are_packed_in_the_same_call_are_in_a_cache():
    assert columns(float(BLOCK), weights="plain") == columns(0.0, weights="plain")


def test_few_weights_are_one_block():
    few = replace(LAYER, ci=64, co=256)
    assert columns(float(BLOCK), layer=few) == columns(0.0, layer=few) == 256
