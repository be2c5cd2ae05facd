"""Nothing is free on a preset; reports of a machine whose description omits a rate say so, and its work counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.recurrent.layer import FixedPoint
from tvm_tiling.accel.recurrent.sequences import step_program
from tvm_tiling.accel.report.report import headline
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.decide.rnn.step import FUNCTIONS, step_cycles
from tvm_tiling.hardware.vector_functions import Function

ACCELERATORS = ("vta", "neartile", "dla3", "wfold16", "rnn16k", "rnn64k")


def programs(name):
    hardware = tt.Hardware.load(name)
    if hardware.column is not None:
        for cell in ("lstm", "gru", "rnn"):
            yield tt.compile(tt.RnnWorkload(cell=cell, steps=3, input_size=32, hidden_size=48, dtype="int16"), hardware)
        return
    layer = tt.ConvWorkload(n=1, h=14, w=14, ci=16, co=32, kh=3, kw=3, padding=(1, 1, 1, 1), dtype="int8")
    for workload in (tt.GemmWorkload(m=64, k=64, n=64, dtype="int8"), layer):
        for epilogue in ("", "relu"):
            yield workload_program(workload, hardware, epilogue=epilogue)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_nothing_is_free_on_a_preset(name):
    for program in programs(name):
        report = tt.simulate(getattr(program, "program", program))
        assert report.free == {} and len(headline(report)) == 3
        assert sum(time.busy for engine, time in report.engines.items() if engine.startswith("store")) > 0


def test_results_that_leave_take_their_bytes_over_the_rate():
    """1024 x 64 x 1024 in float16: 4 MiB of sums at 64 bytes per cycle, in parallel with 16384 cycles of
    multiplication."""
    hardware = tt.Hardware.load("neartile")
    report = tt.simulate(workload_program(tt.GemmWorkload(m=1024, k=64, n=1024, dtype="float16"), hardware))
    assert report.engines["store"].busy == report.lower_bound == 1024 * 1024 * 4 // 64
    # Before the first result: A and B of the first tile, and its multiplication; after the last one the memory's
    # latency.
    assert report.cycles == 65536 + report.stalls["store"]["data"] + 100
    assert report.stalls["store"]["data"] < 2304


def test_a_machine_without_a_rate_for_results_says_so_first():
    bare = tt.Hardware.neartile(
        buf_a=1 << 19, buf_b=1 << 19, acc_max=1 << 18, bw_a=64, bw_b=64, macs_per_cycle=4096, block_m=16, block_n=16
    )
    program = workload_program(tt.GemmWorkload(m=64, k=64, n=64, dtype="float16"), bare)
    report = tt.simulate(program)
    assert report.free == {"transfers from acc to external": f"{64 * 64 * 4} bytes"}
    assert headline(report)[1] == (
        "incomplete machine description: it gives no rate for transfers from acc to external (16384 bytes), which "
        "took no cycles"
    )
    assert report.to_dict()["free"] == report.free
    whole = replace(bare, near_tile=replace(bare.near_tile, bw_out=64.0))
    assert tt.simulate(program, whole).free == {}


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("before", [False, True])
def test_a_step_takes_the_functions_of_its_tail(cell, before):
    """As many as the decision counts, one after the other: a step is Ch + max(Cx, latency + functions)."""
    hardware = tt.Hardware.rnn(multipliers=4096)
    slow = replace(hardware, column=replace(hardware.column, tail_lanes=32))
    layer = tt.RnnWorkload(
        cell=cell, steps=9, input_size=64, hidden_size=128, dtype="int16", linear_before_reset=before and cell == "gru"
    )
    program = step_program(layer, tt.decide(layer, slow), slow, FixedPoint())
    functions = int((program.instructions["op"] == Opcode.ALU).sum())
    kind = "gru of the product" if before and cell == "gru" else cell
    assert functions == sum(FUNCTIONS[kind])
    one, two = (tt.simulate([(program, steps, 0)]).cycles for steps in (8, 9))
    decided = tt.decide(layer, slow)
    step = step_cycles(layer, slow.column, 64, decided.ep, decided.vp)
    assert sum(step.tails) == functions * 128 // 32
    assert two - one == decided.cycles_per_step == step.column_wise


def test_vector_functions_of_a_tail_without_lanes_are_named():
    hardware = tt.Hardware.rnn(multipliers=4096)
    build = ProgramBuilder(hardware)
    here = At("acc", 0, (1,), "int16")
    build.append(Opcode.ALU, "vector", (40,), a=here, c=here, function=Function.RELU)
    assert tt.simulate(build.build()).free == {"vector functions": "40 elements"}
