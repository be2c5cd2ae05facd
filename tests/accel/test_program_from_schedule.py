"""The program follows from the TIR of a schedule and nothing else: editing the schedule edits the program.

Each case edits the result of tiling_schedule for vsim/vta, whose every instruction costs a fill and a drain, by TVM's
own primitives or by another decision: instructions and cycles change accordingly, results do not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from convolutions import convolution
from operators import product, random_inputs

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.lowering.prim_func import DECISION
from tvm_tiling.match import match, prim_func_of
from tvm_tiling.schedules.accel_gemm import apply

VTA = tt.Hardware.load("vta")
OPERATORS = {
    "product": (product(96, 160, 200, "int8"), "C"),
    "convolution": (
        convolution(h=14, w=14, ci=48, co=40, padding=(1, 1, 1, 1), stride=(2, 1), name="y"),
        "sums",
    ),
}


def program_and_cycles(module):
    """Return (program, cycles, result) of a scheduled module after a check for hazards, with its queues in a random
    order."""
    program = record(module, VTA)
    check_hazards(program)
    (result,) = run(program, random_inputs(program), order=3).values()
    return program, simulate(program).cycles, result


def smaller_tile(schedule, block):
    """Split the innermost rows of a GEMM's tile, or columns of a convolution's, by four."""
    loops = schedule.get_loops(schedule.get_sblock(block))
    schedule.split(loops[-4 if block == "sums" else -3], [None, 4])


def other_order(schedule, block):
    """Split rows of a tile in two parts, columns in two, and reverse the order of the parts."""
    loops = schedule.get_loops(schedule.get_sblock(block))
    rows, columns = (loops[-5], loops[-4]) if block == "sums" else (loops[-3], loops[-2])
    over_rows, rows = schedule.split(rows, [2, None])
    over_columns, columns = schedule.split(columns, [2, None])
    schedule.reorder(over_columns, over_rows, rows, columns)


def single_buffers(schedule, block):
    """Loads wait until their buffer is no longer read: one version of every buffer."""
    for leaf in schedule.get_child_blocks(schedule.get_sblock("root")):
        if "vsim.versions" in schedule.get(leaf).annotations:
            schedule.unannotate(leaf, "vsim.versions")
            schedule.annotate(leaf, "vsim.versions", 1)


@pytest.mark.parametrize("edit", [smaller_tile, other_order, single_buffers])
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_edited_schedule_is_another_program_of_the_same_results(operator, edit):
    op, block = OPERATORS[operator]
    schedule = tt.tiling_schedule(op, target="vsim/vta")
    program, cycles, result = program_and_cycles(schedule.mod)
    edit(schedule, block)
    edited, other_cycles, same = program_and_cycles(schedule.mod)
    assert edited.instructions.tobytes() != program.instructions.tobytes()
    assert other_cycles != cycles
    np.testing.assert_array_equal(same, result)
    if edit is single_buffers:
        assert other_cycles > cycles


def test_another_decision_is_another_program_of_the_same_results():
    matched = match(prim_func_of(product(300, 1500, 200, "int8")), "main")
    decided = tt.decide(matched.workload, VTA)
    flipped = replace(decided, outer_order={"mn": "nm", "nm": "mn"}[decided.outer_order], chunks=None)
    smaller = replace(decided, partition_m=64, partition_n=64, tile_m=16, tile_n=16, chunks=None)
    found = [
        program_and_cycles(tvm.IRModule({"main": apply(matched, VTA, tiling).main}))
        for tiling in (decided, flipped, smaller)
    ]
    assert len({program.instructions.tobytes() for program, _, _ in found}) == 3
    assert len({cycles for _, cycles, _ in found}) == 3
    for _, _, result in found[1:]:
        np.testing.assert_array_equal(result, found[0][2])


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_noted_of_the_decision_does_not_matter(operator):
    """Attributes of the function name the operator in reports; its instructions are those of its loops and blocks."""
    schedule = tt.tiling_schedule(OPERATORS[operator][0], target="vsim/vta")
    func = schedule.mod["main"]
    program = record(func, VTA)
    for changed in (func.without_attr(DECISION), func.with_attr(DECISION, '{"tile_m": 1}')):
        assert record(changed, VTA).instructions.tobytes() == program.instructions.tobytes()
    text = tvm.script.from_source(schedule.mod.script())
    assert record(text, VTA).instructions.tobytes() == program.instructions.tobytes()
