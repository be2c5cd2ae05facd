"""Costs of instructions on a machine: the formulas of the engines, calculated by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.program.work import work
from tvm_tiling.accel.timing.cost import costs
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.errors import HardwareError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.machine import Machine
from tvm_tiling.hardware.memory import Level, Memory
from tvm_tiling.hardware.queues import Queues
from tvm_tiling.hardware.vector import Vector
from tvm_tiling.hardware.vector_functions import Function

PLAIN = Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=4096, bw_a=16, bw_b=12.8, macs_per_cycle=256)
QUEUES = ("load_a", "load_b", "matrix", "vector", "store", "wfold", "column")


def alone(op, queue, extent, hardware=PLAIN, a=None, b=None, c=None, **further):
    """Return a program of one instruction whose operands are at address 0 of the memories given by name or (name,
    dtype)."""
    build = ProgramBuilder(hardware, queues=QUEUES)
    operands = {}
    for name, memory in (("a", a), ("b", b), ("c", c)):
        if memory is not None:
            memory, dtype = memory if isinstance(memory, tuple) else (memory, "int8")
            operands[name] = At(memory, 0, (0,) * (len(extent) - 1) + (1,), dtype)
    build.append(op, queue, extent, **operands, **further)
    return build.build()


def cost(program, hardware):
    """Return (busy, latency) of its first instruction."""
    found = costs(work(program), Machine(hardware))
    return int(found.busy[0]), int(found.latency[0])


def fold_cost(program, hardware):
    """Return (fill, busy, latency) of its first instruction."""
    return int(costs(work(program), Machine(hardware)).fill[0]), *cost(program, hardware)


def with_tile(**fields):
    return replace(PLAIN, near_tile=replace(PLAIN.near_tile, **fields))


def test_a_transfer_alone_takes_latency_and_its_bytes_over_the_bandwidth():
    machine = replace(PLAIN, memories={"external": Memory(latency=40)})
    program = alone(Opcode.LOAD, "load_a", (100,), machine, a="external", c="a")
    assert cost(program, machine) == (math.ceil(100 / 16), 40)
    assert simulate(program).cycles == 47
    assert cost(alone(Opcode.LOAD, "load_b", (128,), a="external", c="b"), PLAIN) == (10, 0)  # 128 / 12.8 exactly
    assert cost(alone(Opcode.LOAD, "load_b", (129,), a="external", c="b"), PLAIN) == (11, 0)


def test_the_slower_end_of_a_transfer_counts_and_both_latencies():
    machine = replace(PLAIN, memories={"external": Memory(latency=3), "a": Memory(bytes_per_cycle=2, latency=4)})
    assert cost(alone(Opcode.LOAD, "load_a", (64,), machine, a="external", c="a"), machine) == (32, 7)


def test_borders_are_not_moved_and_element_types_count():
    program = alone(Opcode.LOAD, "load_a", (1, 8, 8), a=("external", "int32"), c=("a", "int32"), pad=(1, 1, 1, 1))
    assert cost(program, PLAIN) == (16, 0)


def test_results_leave_without_limit_or_at_the_rate_given():
    program = alone(Opcode.STORE, "store", (64,), a=("acc", "int32"), c=("external", "int32"))
    assert cost(program, PLAIN) == (0, 0)
    assert cost(program, with_tile(bw_out=8.0)) == (32, 0)
    slow = replace(PLAIN, memories={"external": Memory(bytes_per_cycle=4)})
    assert cost(program, slow) == (64, 0)


@pytest.mark.parametrize(
    ("extent", "skipped", "padded"),
    [((8, 1, 8, 1, 1, 8), 2, 4), ((7, 1, 7, 1, 1, 7), 2, 4), ((9, 2, 5, 1, 3, 3), 4, 3 * 3 * 2), ((1,) * 6, 1, 1)],
)
def test_a_gemm_takes_its_blocks_and_the_pipelines_ends(extent, skipped, padded):
    program = alone(Opcode.GEMM, "matrix", extent, a="a", b="b", c=("acc", "int32"))
    block = {"block_m": 4, "block_n": 4, "block_k": 8, "fill": 5, "drain": 6}
    assert cost(program, with_tile(**block)) == (5 + skipped, 6)
    assert cost(program, with_tile(**block, partial_blocks="padded")) == (5 + padded, 6)


def test_gemms_of_wider_elements_may_be_slower():
    machine = with_tile(macs_of_bytes={"2": 64.0})
    for dtype, busy in (("int8", 4), ("int16", 16)):
        program = alone(Opcode.GEMM, "matrix", (8, 1, 8, 1, 1, 16), a=("a", dtype), b=("b", dtype), c=("acc", "int32"))
        assert cost(program, machine) == (busy, 0)
        assert simulate(program, machine, check=False).utilisation == 1.0


def test_vta_takes_a_cycle_for_each_row_of_16_by_16():
    machine = Hardware.load("vta")
    program = alone(Opcode.GEMM, "matrix", (7, 1, 32, 1, 1, 20), a="a", b="b", c=("acc", "int32"))
    fill = machine.near_tile.fill
    assert cost(program, machine)[0] - fill == 7 * 2 * 2


def test_the_vector_engine_takes_its_lanes_at_once():
    machine = replace(PLAIN, vector=Vector(lanes=16, latency=3, functions=("relu", "add")))
    program = alone(Opcode.ALU, "vector", (5, 7), machine, a="acc", c="acc", function=Function.RELU)
    assert cost(program, machine) == (3, 3)
    program = alone(Opcode.ALU, "vector", (5, 7), a="acc", c="acc", function=Function.TANH)
    with pytest.raises(
        HardwareError, match=r"does not support 'tanh', which instruction 0 \(ALU TANH.*expected add, relu"
    ):
        cost(program, machine)


def test_a_fill_is_of_the_vector_engine_or_a_transfer():
    machine = replace(PLAIN, vector=Vector(lanes=16, latency=3), memories={"a": Memory(bytes_per_cycle=8)})
    assert cost(alone(Opcode.FILL, "vector", (40,), c="a", immediate=(0.0,)), machine) == (3, 3)
    assert cost(alone(Opcode.FILL, "load_a", (40,), c="a", immediate=(0.0,)), machine) == (5, 0)


@pytest.mark.parametrize(
    ("ci", "co", "steps", "pieces"),
    [(16, 64, 36, 3), (48, 32, 54, 9)],  # worked examples of W-fold: a block of 16 points
)
def test_w_fold_takes_page_05s_steps(ci, co, steps, pieces):
    machine = Hardware.wfold()
    program = alone(Opcode.WCONV, "wfold", (co, 1, 16, 3, 3, ci), machine, a="b", b="a", c=("acc", "int32"))
    program.instructions["immediate"][0] = (16, 0)
    assert fold_cost(program, machine) == (3, steps + pieces, 0)  # three of four rows are formed a piece ahead
    roomy = replace(machine, w_fold=replace(machine.w_fold, first_buffer_rows=9))
    assert fold_cost(program, roomy) == (4, steps, 0)


def test_w_folds_ports_may_be_slower_than_its_multipliers():
    machine = Hardware.wfold()
    program = alone(Opcode.WCONV, "wfold", (64, 1, 16, 3, 3, 16), machine, a="b", b="a", c=("acc", "int8"))
    program.instructions["immediate"][0] = (16, 64)
    slow = replace(machine, w_fold=replace(machine.w_fold, output_rows_per_cycle=0.25))
    assert fold_cost(program, slow) == (0, 16 * 4, 4 + 36 + 2)  # 16 points of 64 channels, a row each, after the steps
    program.instructions["immediate"][0] = (16, 0)
    assert fold_cost(program, slow) == (3, 36 + 3, 0)  # they stay
    slow = replace(machine, w_fold=replace(machine.w_fold, input_rows_per_cycle=0.125))
    rows = 3 * math.ceil((16 + 2) / 4)
    assert sum(fold_cost(program, slow)) == rows * 8 + 8  # the last row arrives for the last two kernel positions
    program.instructions["immediate"][0] = (24, 0)
    with pytest.raises(HardwareError, match="PCI = 24 bytes; expected 0, 64, 32, 16, 8"):
        cost(program, machine)


def test_w_fold_without_a_granularity_takes_the_one_of_fewest_cycles():
    machine = Hardware.wfold()
    program = alone(Opcode.WCONV, "wfold", (64, 1, 64, 3, 3, 3), machine, a="b", b="a", c=("acc", "int32"))
    found = cost(program, machine)
    each = []
    for pci in machine.w_fold.granularities:
        program.instructions["immediate"][0] = (pci, 0)
        each.append(cost(program, machine))
    assert found == min(each) < max(each)


def test_a_column_multiplication_takes_the_cycles_of_the_formula():
    machine = Hardware.rnn(multipliers=16384)
    program = alone(Opcode.COLMV, "column", (2048, 1, 1, 1, 1, 520), machine, a=("b", "int16"), b=("a", "int16"),
                    c=("acc", "int32"), immediate=(8, 2048))  # fmt: skip
    assert cost(program, machine) == (65, machine.column.latency(8))
    program.instructions["immediate"][0] = (16, 2048)
    with pytest.raises(HardwareError, match=r"\(EP, VP\) = \(16, 2048\).*at most 16384"):
        cost(program, machine)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("lx", "lh"), [(512, 512), (64, 512), (256, 256)])
def test_steps_of_recurrent_layers_take_page_04s_formulas(lx, lh, threads):
    """step = Ch + max(Cx, lat): the x part of the next step overlaps the drain of this one. T sequences in turn: round
    = max(T * (Cx + Ch), Ch + max(Cx, lat))."""
    machine = Hardware.rnn(multipliers=16384)
    ep, vp, steps = 8, 2048, 12
    build = ProgramBuilder(machine, queues=("column", "vector"))
    for _ in range(steps * threads):
        for size in (lx, lh):
            build.append(
                Opcode.COLMV,
                "column",
                (4 * lh, 1, 1, 1, 1, size),
                a=At("b", 0, (size, 0, 0, 0, 0, 1), "int16"),
                b=At("a", 0, (0, 0, 0, 0, 0, 1), "int16"),
                c=At("acc", 0, (1,), "int32"),
                immediate=(ep, vp),
            )
        build.append(Opcode.NOP, "vector")
    program = build.build()
    rows = program.instructions
    # The h part of a step waits for the gates of the previous step of its sequence.
    rows["signal"][1::3, 1] = 1
    rows["wait"][2::3, 0] = 1
    rows["signal"][2 : -3 * threads : 3, 0] = 1
    rows["wait"][1 + 3 * threads :: 3, 1] = 1
    blocks = math.ceil(4 * lh / vp)
    cx, ch, lat = math.ceil(lx / ep) * blocks, math.ceil(lh / ep) * blocks, machine.column.latency(ep)
    report = simulate(program)
    starts = report.timing.start[1 :: 3 * threads]
    assert np.diff(starts).tolist() == [max(threads * (cx + ch), ch + max(cx, lat))] * (steps - 1)
    if threads == 1:
        assert report.cycles == cx + ch + (steps - 1) * (ch + max(cx, lat)) + lat
        assert report.engines["column"].stalls["token"] == (steps - 1) * max(0, lat - cx)


def two_loads(machine):
    build = ProgramBuilder(machine)
    for operand in ("a", "b"):
        build.append(
            Opcode.LOAD, f"load_{operand}", (256,), a=At("external", 0, (1,), "int8"), c=At(operand, 0, (1,), "int8")
        )
    return build.build()


def test_a_memory_with_one_port_serves_the_loads_in_turn():
    assert simulate(two_loads(PLAIN)).cycles == 20  # 256 / 12.8 and 256 / 16
    machine = replace(PLAIN, memories={"external": Memory(ports=1)})
    report = simulate(two_loads(machine))
    assert report.cycles == 36 == report.lower_bound
    assert (report.bound, report.memories["external"].busy) == ("port external", 36)
    assert report.stalls["load_b"]["port"] == 16
    assert simulate(two_loads(PLAIN), replace(PLAIN, memories={"external": Memory(ports=2)})).cycles == 20


def test_a_level_counts_with_all_its_instances():
    tile = replace(PLAIN.near_tile, macs_per_cycle=16.0)
    levels = (
        Level(name="cluster", bytes=1024, instances=2, bytes_per_cycle=8, latency=5),
        Level(name="array", bytes=64, instances=4, bytes_per_cycle=2),
    )
    machine = replace(PLAIN, near_tile=tile, levels=levels)
    program = alone(Opcode.LOAD, "load_a", (160,), machine, a="external", c="cluster.a")
    assert cost(program, machine) == (10, 5)
    program = alone(Opcode.LOAD, "load_a", (160,), machine, a="cluster.a", c="array.a")
    assert cost(program, machine) == (10, 0)  # 8 arrays with 2 bytes per cycle; the clusters' link is not on the path
    program = alone(Opcode.GEMM, "matrix", (16, 1, 16, 1, 1, 2), machine, a="array.a", b="array.b", c=("acc", "int32"))
    assert cost(program, machine) == (4, 0)
    assert simulate(program, check=False).utilisation == 1.0
    program = alone(Opcode.LOAD, "load_a", (513,), machine, a="external", c="array.a")
    with pytest.raises(HardwareError, match=r"513 bytes of memory 'array\.a', which has 512"):
        cost(program, machine)


def test_a_machine_without_the_room_the_engine_or_the_memory_is_refused():
    small = with_tile(buf_a=32)
    with pytest.raises(HardwareError, match="needs 100 bytes of memory 'a', which has 64"):
        cost(alone(Opcode.LOAD, "load_a", (100,), a="external", c="a"), small)
    program = alone(Opcode.GEMM, "matrix", (8, 1, 8, 1, 1, 8), a="a", b="b", c=("acc", "int32"))
    with pytest.raises(HardwareError, match=r"wfold16 has no near_tile, which instruction 0 \(GEMM"):
        cost(program, Hardware.load("wfold16"))
    with pytest.raises(HardwareError, match="not an accelerator"):
        simulate(program, "zen4-server-8c", check=False)
    program = alone(Opcode.LOAD, "load_a", (8,), a="external", c="cluster.a")
    with pytest.raises(HardwareError, match=r"no memory 'cluster\.a'"):
        cost(program, PLAIN)


def test_issue_depth_and_tokens_come_from_the_description():
    machine = replace(PLAIN, queues=Queues(depth=1, issue_cycles=4, token_cycles=7))
    build = ProgramBuilder(machine)
    near = At("a", 0, (1,), "int8")
    for _ in range(3):
        build.append(Opcode.LOAD, "load_a", (160,), a=At("external", 0, (1,), "int8"), c=near)
    build.append(Opcode.ALU, "vector", (160,), a=near, c=At("acc", 0, (1,), "int8"), function=Function.RELU)
    report = simulate(build.build())
    # Dispatched at 4, 8 and, when the second starts, 14; the fourth 4 later; its data at 34, the token at 41.
    assert report.timing.start.tolist() == [4, 14, 24, 41]
    assert report.stalls["vector"] == {"data": 16, "space": 0, "token": 7, "latency": 0, "port": 0, "dispatch": 18}
    assert report.cycles == 42


def test_w_fold_reads_its_input_again_for_each_block_of_output_channels():
    machine = Hardware.wfold()
    slow = replace(machine, w_fold=replace(machine.w_fold, input_rows_per_cycle=0.125))
    program = alone(Opcode.WCONV, "wfold", (128, 1, 16, 3, 3, 16), machine, a="b", b="a", c=("acc", "int32"))
    program.instructions["immediate"][0] = (16, 0)
    rows = 3 * math.ceil((16 + 2) / 4)
    assert cost(program, slow) == (rows * 8, 0)
    program.instructions["block"][0] = 4  # of 8 output channels of each sub-unit
    assert cost(program, slow) == (2 * rows * 8, 0)


def test_a_gemm_that_adds_to_sums_outside_its_engine_takes_the_vector_engines_cycles_for_them():
    machine = replace(with_tile(fill=5, drain=6), vector=Vector(lanes=16, latency=3))
    operands = {"a": "a", "b": "b", "extent": (8, 1, 20, 1, 1, 32)}
    blocks = 5 + 8 * 20 * 32 // 256
    for memory, accumulate, adding in (("acc", True, 0), ("out", False, 0), ("out", True, 10), ("external", True, 10)):
        program = alone(Opcode.GEMM, "matrix", hardware=machine, c=(memory, "int32"), accumulate=accumulate, **operands)
        assert cost(program, machine) == (blocks + adding, 6)  # 160 sums, 16 at a time
