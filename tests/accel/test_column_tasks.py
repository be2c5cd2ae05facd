"""Tasks that share the column engine: cycles, threads and stalls according to the formulas."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import pytest
from recurrent_steps import Cell, one_step

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.recurrent.tasks import Task
from tvm_tiling.hardware import Hardware, Memory, Queues, Vector

SIZES = [(512, 512, 8), (64, 512, 8), (256, 256, 16), (64, 64, 64), (128, 1024, 4), (16, 256, 16), (100, 90, 32)]
STEPS = 12


def machine(threads=8, multipliers=16384, **further):
    return Hardware.rnn(multipliers=multipliers, threads=threads, **further)


def lstm(size, hardware, **further):
    """Return (program of a step, Cx, Ch, lat) of an LSTM of (Lx, Lh, EP), by the formulas."""
    lx, lh, ep = size
    vp = min(4 * lh, hardware.column.multipliers // ep)
    blocks = math.ceil(4 * lh / vp)
    cell = Cell("lstm", lx, lh, ep, vp, **further)
    cycles = math.ceil(lx / ep) * blocks, math.ceil(lh / ep) * blocks
    return one_step(hardware, cell), *cycles, hardware.column.latency(ep)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_one_task_takes_ch_and_the_longer_of_cx_and_lat_a_step(size):
    hardware = machine()
    program, cx, ch, lat = lstm(size, hardware)
    report = tt.simulate([(program, STEPS, 0)])
    assert report.cycles == cx + ch + (STEPS - 1) * (ch + max(cx, lat)) + lat
    (task,) = report.tasks
    assert task.stalls["data"] == (STEPS - 1) * max(0, lat - cx) == task.stalled
    assert (task.busy, task.drain, task.start) == (STEPS * (cx + ch), lat, 0)
    assert report.idle == report.cycles - task.busy
    assert report.macs == STEPS * 4 * size[1] * (size[0] + size[1])
    assert report.utilisation == report.macs / (16384 * report.cycles)
    assert report.lower_bound <= report.cycles <= report.upper_bound


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_column_wise_order_reduces_the_stall_of_row_wise_order_from_lat_to_lat_less_cx(size):
    hardware = machine()
    by_columns, cx, _, lat = lstm(size, hardware)
    by_rows, *_ = lstm(size, hardware, rows=True)
    together = math.ceil((size[0] + size[1]) / size[2]) * (cx // math.ceil(size[0] / size[2]))
    columns, rows = (tt.simulate([(program, STEPS, 0)]) for program in (by_columns, by_rows))
    assert rows.cycles == STEPS * (together + lat)
    assert rows.tasks[0].stalls["data"] == (STEPS - 1) * lat
    assert columns.tasks[0].stalls["data"] == (STEPS - 1) * max(0, lat - cx)


@pytest.mark.values
@pytest.mark.parametrize("threads", range(2, 9))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_equal_threads_take_page_04s_rounds(size, threads):
    """T equal threads: a round of T steps = max(T * (Cx + Ch), Ch + max(Cx, lat)), plus one lat at the end. If the
    engine is never idle, these are all cycles; otherwise threads may conflict in the first rounds, once, for less than
    Cx."""
    program, cx, ch, lat = lstm(size, machine())
    report, longer = (tt.simulate([(program, steps, 0)] * threads) for steps in (STEPS, STEPS + 1))
    around = max(threads * (cx + ch), ch + max(cx, lat))
    assert longer.cycles - report.cycles == around
    met = report.cycles - (threads * (cx + ch) + (STEPS - 1) * around + lat)
    assert met == 0 or (0 < met < cx and threads * (cx + ch) < around)
    assert report.lower_bound <= report.cycles <= report.upper_bound
    for task in report.tasks:
        assert task.busy + task.stalled + task.drain == task.cycles and task.drain == lat


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_enough_threads_bring_the_utilisation_to_95_percent(size):
    """(Ch + max(Cx, lat)) / (Cx + Ch) threads suffice. The engine has exactly as many multipliers as a step needs."""
    lx, lh, ep = size
    lx, lh = (math.ceil(length / ep) * ep for length in (lx, lh))
    hardware = machine(multipliers=ep * min(4 * lh, 16384 // ep), threads=64)
    program, cx, ch, lat = lstm((lx, lh, ep), hardware)
    enough = math.ceil((ch + max(cx, lat)) / (cx + ch))
    steps = math.ceil(20 * lat / (enough * (cx + ch)))
    assert tt.simulate([(program, steps, 0)] * enough).utilisation >= 0.95
    if enough > 1:
        assert tt.simulate([(program, steps, 0)]).utilisation < 0.95


@pytest.mark.parametrize("tail", [16, 34, 42, 43, 80])
def test_worked_example_of_tasks_of_2_3_and_2_steps(tail):
    """Sequentially 7 steps and 4 stalls; threaded T1 T2 T3 T1 T2 T3 T2, without a stall if lat - Cx <= Cx + Ch."""
    lengths = (2, 3, 2)
    alone, threaded = machine(threads=1, latencies={"tail": tail}), machine(threads=3, latencies={"tail": tail})
    program, cx, ch, lat = lstm((256, 256, 16), alone)
    in_turn = tt.simulate([(program, steps, 0) for steps in lengths], hardware=alone)
    assert in_turn.stalls["data"] == 4 * (lat - cx)
    assert [task.waited for task in in_turn.tasks] == [0, in_turn.tasks[0].end, in_turn.tasks[1].end]
    assert in_turn.cycles == 7 * (cx + ch) + 4 * (lat - cx) + 3 * lat
    report = tt.simulate([(program, steps, 0) for steps in lengths], hardware=threaded)
    assert [name for name, _ in report.turns] == ["T1", "T2", "T3", "T1", "T2", "T3", "T2"]
    without_stall = lat - cx <= cx + ch
    assert without_stall == (tail <= 40)
    assert (report.cycles == 7 * (cx + ch) + lat) == without_stall
    assert (report.idle == lat) == without_stall


def step_cycles(hardware, lx, lh, ep, vp):
    """Return the cycles of a step in steady state, as measured, and those of its multiplications."""
    program = one_step(hardware, Cell("lstm", lx, lh, ep, vp))
    ten, eleven = (tt.simulate([(program, steps, 0)], hardware=hardware) for steps in (10, 11))
    return eleven.cycles - ten.cycles, eleven.tasks[0].busy - ten.tasks[0].busy, eleven.cycles


@pytest.mark.parametrize(("multipliers", "wanted"), [(16384, (16, 8, 4)), (65536, (64, 32, 16))])
def test_worked_examples_of_the_best_number_of_columns(multipliers, wanted):
    """Lx = Lh = 256, 512, 1024: EP = 16, 8, 4 with 16384 multipliers, 64, 32, 16 with 65536."""
    hardware = machine(multipliers=multipliers)
    for lh, best in zip((256, 512, 1024), wanted, strict=True):
        choices = {
            ep: step_cycles(hardware, lh, lh, ep, min(4 * lh, multipliers // ep))[0]
            for ep in hardware.column.column_counts
            if 2 <= ep <= 256
        }
        assert min(choices, key=lambda ep: (choices[ep], hardware.column.latency(ep))) == best


def test_worked_example_of_forced_pairs():
    """65536 multipliers: for vectors of 512, (32, 2048) beats (16, 4096), 32 against 64 cycles of multiplication; for
    1024, (16, 4096) beats (32, 2048) by its shallower adder tree."""
    hardware = machine(multipliers=65536)
    few, many = (step_cycles(hardware, 512, 512, *pair) for pair in ((32, 2048), (16, 4096)))
    assert (few[1], many[1]) == (32, 64) and few[0] < many[0]
    shallow, deep = (step_cycles(hardware, 1024, 1024, *pair) for pair in ((16, 4096), (32, 2048)))
    assert shallow[:2] == deep[:2] == (128, 128) and shallow[2] == deep[2] - 1


def test_worked_example_of_the_tail_of_an_adder_tree():
    """A 64-input tree with CAT-4 produces 1, 2 or 4 sums at EP 64, 32, 16, and nothing else."""
    hardware = Hardware.rnn(multipliers=4096, tree_inputs=64, tree_tail=4, threads=2)
    for ep in (16, 32, 64):
        _, cx, ch, lat = lstm((128, 128, ep), hardware)
        assert lat == 3 + int(math.log2(ep)) + 1 + 16
        assert step_cycles(hardware, 128, 128, ep, 4096 // ep)[0] == ch + max(cx, lat)
    for ep in (8, 128):
        with pytest.raises(tt.HardwareError, match="expected EP of 16, 32, 64"):
            tt.simulate([(one_step(hardware, Cell("lstm", 128, 128, ep, 16)), 2, 0)])


def test_two_dependent_products_of_a_gru_drain_each():
    """linear_before_reset = 0: the sums of n wait for r * h. Two drains per step, the first of them complete."""
    hardware = machine()
    lx = lh = 256
    program = one_step(hardware, Cell("gru after", lx, lh, 16, 256))
    cx, ch, lat = 16 * 3, 16, hardware.column.latency(16)
    eleven, ten = (tt.simulate([(program, steps, 0)]).cycles for steps in (11, 10))
    assert eleven - ten == 2 * ch + lat + ch + max(cx, lat)
    merged = one_step(hardware, Cell("gru before", lx, lh, 16, 1024))
    eleven, ten = (tt.simulate([(merged, steps, 0)]).cycles for steps in (11, 10))
    assert eleven - ten == 16 + max(16, lat)


# ---- arrivals, waiting, several engines ------------------------------------------------------------------------------


def test_a_task_starts_when_it_has_arrived_and_a_thread_is_free():
    hardware = machine(threads=2)
    program, *_ = lstm((256, 256, 16), hardware)
    alone = tt.simulate([(program, 3, 0)]).cycles
    report = tt.simulate([(program, 3, 1000), Task(program, 3, 10, "early"), (program, 3, 1000), (program, 3, 5000)])
    first, early, third, last = report.tasks
    assert [task.name for task in report.tasks] == ["T1", "early", "T3", "T4"]
    assert (early.start, early.end, early.cycles) == (10, 10 + alone, alone)
    assert first.start == third.start == 1000 and first.thread != third.thread
    assert (last.start, last.cycles, report.cycles) == (5000, alone, 5000 + alone)
    many = tt.simulate([(program, 3, 0)] * 5)
    assert many.tasks[2].start == min(task.end for task in many.tasks[:2])
    assert many.tasks[2].waited == many.tasks[2].start
    assert max(sum(t.start <= cycle < t.end for t in many.tasks) for cycle in range(many.cycles)) == 2


def test_a_thread_alone_gets_peak_speed_whatever_the_threads():
    one, eight = machine(threads=1), machine(threads=8)
    for size in SIZES[:3]:
        assert tt.simulate([(lstm(size, one)[0], 5, 0)]).cycles == tt.simulate([(lstm(size, eight)[0], 5, 0)]).cycles


def test_two_engines_run_different_threads():
    one, two = machine(threads=2), machine(threads=1, engines=2)
    program, *_ = lstm((512, 512, 8), two)
    alone = tt.simulate([(program, 5, 0)], hardware=one)
    both = tt.simulate([(program, 5, 0)] * 2, hardware=two)
    assert [task.engine for task in both.tasks] == [0, 1]
    assert both.cycles == alone.cycles and both.utilisation == pytest.approx(alone.utilisation)


def test_one_version_of_sums_makes_the_next_step_wait_for_the_drain():
    two = machine()
    one = dataclasses.replace(two, column=dataclasses.replace(two.column, versions=1))
    program, cx, ch, lat = lstm((256, 256, 16), two)
    report = tt.simulate([(program, STEPS, 0)], hardware=one)
    assert report.cycles == STEPS * (cx + ch + lat)
    assert report.tasks[0].stalled == (STEPS - 1) * lat and report.tasks[0].stalls["space"] > 0


def test_tasks_of_different_layers_share_the_engine():
    hardware = machine(threads=3)
    steps = [(lstm(size, hardware)[0], count, arrival) for size, count, arrival in
             zip(SIZES[:3], (5, 9, 7), (0, 40, 90), strict=True)]  # fmt: skip
    report = tt.simulate(steps)
    assert report.lower_bound <= report.cycles <= report.upper_bound
    assert max(report.cycles, 1) < sum(tt.simulate([task]).cycles for task in steps)
    assert report.busy == sum(task.busy for task in report.tasks) <= report.cycles


# ---- what a machine adds ---------------------------------------------------------------------------------------------


def test_a_vector_engine_of_its_own_adds_its_cycles_to_a_step():
    ideal = machine()
    slow = dataclasses.replace(ideal, vector=Vector(lanes=64, latency=2))
    program, _, ch, lat = lstm((256, 256, 16), ideal)
    ten, eleven = (tt.simulate([(program, steps, 0)], hardware=slow).cycles for steps in (10, 11))
    alus = program.instructions[program.instructions["op"] == Opcode.ALU]
    # Those that read the previous one's result wait for it for 2 cycles; all other results are available by then.
    waiting = sum(
        bool(one["c"] in (other["a"], other["b"]) and one["c_memory"] in (other["a_memory"], other["b_memory"]))
        for one, other in itertools.pairwise(alus)
    )
    assert 0 < waiting < len(alus)
    # One after the other in their queue, the last result 2 cycles later.
    assert eleven - ten == ch + lat + len(alus) * 256 // 64 + (waiting + 1) * 2


def test_tokens_ports_and_issue_are_those_of_the_description():
    ideal = machine(threads=4)
    described = dataclasses.replace(
        ideal, queues=Queues(depth=8, issue_cycles=2, token_cycles=3), memories={"external": Memory(bytes_per_cycle=16,
        latency=50, ports=1)},
    )  # fmt: skip
    program, *_ = lstm((256, 256, 16), ideal)
    report = tt.simulate([(program, 6, 0)] * 4, hardware=described)
    assert tt.simulate([(program, 6, 0)] * 4).cycles < report.cycles <= report.upper_bound
    assert report.lower_bound >= 4 * 6 * 2 * (256 + 256) // 16  # x arrives and h leaves through one port
    for task in report.tasks:
        assert task.busy + task.stalled + task.drain == task.cycles
    assert report.stalls["token"] > 0


def test_the_timeline_has_a_row_for_each_thread_and_no_overlap_on_the_engine(tmp_path):
    hardware = machine(threads=3)
    program, *_ = lstm((256, 256, 16), hardware)
    report = tt.simulate([(program, 4, 0), (program, 6, 30), (program, 3, 60), (program, 2, 70)])
    report.save_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [rows[0, thread] for thread in range(3)] == ["thread 0", "thread 1", "thread 2"]
    spans = [e for e in events if e["ph"] == "X"]
    assert len(spans) == len(program) * 15
    products = sorted((e["ts"], e["ts"] + e["dur"], e["tid"]) for e in spans if e["pid"] == 0)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(products))
    assert {tid for _, _, tid in products} == {0, 1, 2}
    assert max(e["args"]["result"] for e in spans) == report.cycles
    for task in report.tasks:
        assert {e["tid"] for e in spans if e["pid"] == 0 and e["args"]["task"] == task.name} == {task.thread}


def test_the_report_as_text_and_as_plain_values():
    hardware = Hardware.load("rnn16k")
    program, *_ = lstm((256, 256, 16), hardware)
    report = tt.simulate([(program, 4, 0), (program, 6, 30)])
    text = report.summary()
    assert f"rnn16k: {report.cycles} cycles" in text and "waits: data" in text
    assert len(text.splitlines()) == 3 + 2
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["cycles"] == report.cycles and len(plain["tasks"]) == 2
    assert plain["tasks"][1]["stalls"] == report.tasks[1].stalls
    assert plain["seconds"] == report.cycles / 1e9


# ---- refusals --------------------------------------------------------------------------------------------------------


def test_what_is_not_a_task_is_refused():
    hardware = machine()
    program, *_ = lstm((64, 64, 16), hardware)
    for tasks, said in (
        ([], "no tasks; expected at least one"),
        ([program], r"task 1 has type Program; expected \(program, steps, arrival\)"),
        ([(3, 4, 0)], "program has type int; expected a Program"),
        ([(program, 0, 0)], "steps = 0; expected a whole number of at least 1"),
        ([(program, 2.0, 0)], "steps = 2.0; expected"),
        ([(program, 2, -1)], "arrival = -1; expected a whole number of at least 0"),
    ):
        with pytest.raises(tt.SimulationError, match=said):
            tt.simulate(tasks)
    with pytest.raises(tt.HardwareError, match="neartile has no column engine for tasks to share"):
        tt.simulate([(program, 2, 0)], hardware="neartile")
    other, *_ = lstm((64, 64, 16), machine(threads=2, name="other"))
    with pytest.raises(tt.HardwareError, match="made for different machines, 'rnn' and 'other'; expected hardware="):
        tt.simulate([(program, 2, 0), (other, 2, 0)])
    assert tt.simulate([(program, 2, 0), (other, 2, 0)], hardware=hardware).cycles > 0


def test_a_program_without_gemms_is_not_a_time_step():
    build = ProgramBuilder(machine())
    build.append(Opcode.FILL, "vector", (4,), c=At("a", 0, (1,), "int16"), immediate=(0.0,))
    with pytest.raises(tt.SimulationError, match="COLMV instructions in 0 queues; expected the program of one time st"):
        tt.simulate([(build.build(), 2, 0)])


def test_anything_with_a_program_is_a_task():
    program, *_ = lstm((64, 64, 16), machine())

    @dataclasses.dataclass
    class Executable:
        program: tt.Program

    assert tt.simulate([(Executable(program), 3, 0)]).cycles == tt.simulate([(program, 3, 0)]).cycles
