"""The map of a layer: loops, traffic of each block, and load counts of operands, counted over the instructions."""

from __future__ import annotations

import json

import pytest

import tvm_tiling as tt
from tvm_tiling.accel.report.layer_map import MapLoop, MapWork, layer_map
from tvm_tiling.accel.workload_program import workload_blocks, workload_program
from tvm_tiling.workload import ConvWorkload, GemmWorkload

PRODUCT = GemmWorkload(m=96, k=512, n=192, dtype="int8")
CONVOLUTION = ConvWorkload(n=1, h=14, w=14, ci=32, co=48, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8")


@pytest.mark.values
@pytest.mark.parametrize("workload", [PRODUCT, CONVOLUTION], ids=["product", "convolution"])
@pytest.mark.parametrize("machine", ["vta", "dla3", "neartile", "wfold16"])
def test_a_map_counts_what_the_simulated_program_does(workload, machine):
    hardware = tt.Hardware.load(machine)
    found = layer_map(workload_blocks(workload, hardware))
    program = workload_program(workload, hardware)
    report = tt.simulate(program)
    work = [line for line in found.lines if isinstance(line, MapWork)]
    assert sum(line.instructions for line in work) == report.instructions
    assert sum(line.macs for line in work) == report.macs == workload.macs
    for operand, moved in report.bytes.items():
        crossing = [line for line in work if "external" in (line.source, line.target) and line.operand == operand]
        assert sum(line.bytes for line in crossing) == moved
    for memory, use in report.memories.items():
        assert sum(line.bytes for line in work if line.target == memory) == use.written
    assert all(isinstance(line, MapWork) or line.turns > 1 for line in found.lines)
    # Depths form a tree: a line is at most one deeper than the loop before it.
    depth = 0
    for line in found.lines:
        assert line.depth <= depth
        depth = line.depth + 1 if isinstance(line, MapLoop) else depth
    assert {(r.memory, r.operand): r.bytes for r in found.reuse if r.memory == "external"} == {
        ("external", "out"): report.bytes["out"]
    }
    json.dumps(found.to_dict())


def test_the_reuse_of_a_gemm_by_hand():
    """B of 1024 x 256 stays in halves of 128 KiB while A, 64 x 1024, streams through for each."""
    found = layer_map(workload_blocks(GemmWorkload(m=64, k=1024, n=256, dtype="int8"), tt.Hardware.load("vta")))
    rows = {(row.memory, row.operand): row for row in found.reuse}
    assert (rows["b", "b"].bytes, rows["b", "b"].times) == (1024 * 256, 1)
    assert (rows["a", "a"].bytes, rows["a", "a"].times) == (2 * 64 * 1024, 2)
    assert rows["a", "a"].per_byte == 64 * 1024 * 256 / (2 * 64 * 1024)
