"""Partial sums of split-K: added by the matrix engine if it holds them, else by the vector engine at its cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from operators import product, random_inputs
from tvm import s_tir, te

import tvm_tiling as tt
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode, marked, multiplies
from tvm_tiling.accel.program.isa import Flag
from tvm_tiling.accel.record.function import record
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.lowering.accel.moves import on_engine
from tvm_tiling.workload import GemmWorkload

NEARTILE, VTA = tt.Hardware.load("neartile"), tt.Hardware.load("vta")
M, N, K, PARTS = 16, 32, 96, 3


@pytest.mark.parametrize("hardware", [NEARTILE, VTA], ids=lambda hardware: hardware.name)
def test_a_schedule_leaves_partial_sums_in_the_accumulation_buffer(hardware):
    """The matrix engine accumulates while it multiplies: no vector instruction is needed, and none is recorded."""
    workload = GemmWorkload(m=128, n=128, k=32768, dtype="int8")
    assert tt.decide(workload, hardware).split_k
    program = workload_program(workload, hardware)
    rows = program.instructions
    adds = multiplies(rows) & ((rows["flags"] & Flag.ACCUMULATE) != 0)
    assert adds.any()
    memories = [memory.name for memory in program.memories]
    assert {memories[number] for number in rows["c_memory"][adds]} == {"acc"}
    assert not marked(rows, [row.unit == "vector" or row.name == "FILL" for row in Opcode]).any()
    # Sums leave once, complete.
    assert simulate(program).bytes["out"] == 128 * 128 * 4


def added_outside(hardware, scope):
    """Return (program, results, NumPy's results) of a GEMM whose K is split into PARTS by TVM's rfactor, added by the
    vector engine."""
    c = product(M, N, K, "int8")
    sch = s_tir.Schedule(te.create_prim_func([*c.op.input_tensors, c]), debug_mask="none")
    total = sch.get_sblock("C")
    part, _ = sch.split(sch.get_loops(total)[2], [PARTS, None])
    partial = sch.rfactor(part, 0)
    sch.set_scope(partial, 0, f"global.{scope}")
    for number, memory in enumerate("ab"):
        on_engine(sch, sch.cache_read(partial, number, f"global.{memory}"), "load", 2)
    on_engine(sch, sch.cache_write(total, 0, f"global.{scope}"), "store", 2)
    m, n, part, _ = sch.get_loops(partial)
    sch.reorder(part, m, n)
    on_engine(sch, partial, "matrix", 3)
    on_engine(sch, total, "vector", 3)
    program = record(sch.mod, hardware)
    inputs = random_inputs(program)
    (result,) = run(program, inputs).values()
    np.testing.assert_array_equal(result, inputs["A"].astype(np.int32) @ inputs["B"].astype(np.int32))
    return program


@pytest.mark.parametrize("scope", ["acc", "out"])
def test_partial_sums_that_the_vector_engine_adds_take_its_cycles(scope):
    """An initialisation of M * N zeros and PARTS * M * N additions, `lanes` at a time: 32 + 96 cycles with 16 lanes."""
    machine = replace(NEARTILE, vector=replace(VTA.vector, lanes=16, functions=("add",)))
    report = simulate(added_outside(machine, scope))
    assert report.engines["vector"].busy == 512 // 16 + 3 * 512 // 16 == 128
    assert report.engines["matrix"].busy == PARTS * 4  # 16 x 32 x 32 at 4096 per cycle: without the additions
    wider = replace(machine, vector=replace(machine.vector, lanes=64))
    assert simulate(added_outside(machine, scope), wider).engines["vector"].busy == 32


def test_partial_sums_take_the_queue_that_vta_has_for_both_engines():
    """A multiplication takes 4 cycles of fill and 16 * 2 * 2 blocks, in addition to 128 cycles of the sums."""
    assert simulate(added_outside(VTA, "acc")).engines["compute"].busy == PARTS * (4 + 64) + 128
