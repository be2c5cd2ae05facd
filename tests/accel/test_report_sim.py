"""The simulator's report: consistent totals, bytes and energy by hand, one program on many machines, the timeline."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from accel_programs import MACHINE, product
from hypothesis import given, settings
from random_machines import machines, programs

from tvm_tiling.accel.checks.access import spans
from tvm_tiling.accel.checks.dependences import dependences
from tvm_tiling.accel.instructions.table import Opcode, uses
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.report import fill
from tvm_tiling.accel.report.trace import waits
from tvm_tiling.accel.timing.event_loop import DATA, LATENCY, SPACE, TOKEN
from tvm_tiling.accel.timing.simulate import Simulation, simulate
from tvm_tiling.accel.timing.timing import ordering
from tvm_tiling.errors import HardwareError, SimulationError
from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.energy import Energy
from tvm_tiling.hardware.memory import OFF_CHIP

EXACT = settings(max_examples=60, deadline=None)


@EXACT
@given(programs())
def test_bounds_hold_and_every_engines_cycles_add_up(program):
    report = simulate(program, check=False)
    assert report.lower_bound <= report.cycles <= report.upper_bound
    for engine in report.engines.values():
        assert engine.busy + engine.idle + sum(engine.stalls.values()) == report.cycles
        assert min(engine.busy, engine.idle, *engine.stalls.values()) >= 0
    assert 0 <= report.utilisation <= 1 and 0 <= report.overlap <= 1 and 0 <= report.roofline <= 1
    for memory in report.memories.values():
        assert memory.peak <= (memory.capacity or memory.peak)


@EXACT
@given(programs(), machines())
def test_a_program_is_timed_on_another_machine_as_if_made_for_it(program, other):
    simulation = Simulation(program)
    assert simulation.on(other) == simulate(replace(program, hardware=other), check=False)
    assert simulation.on() == simulate(program, check=False)


@EXACT
@given(programs())
def test_a_wait_is_for_data_where_the_latest_that_it_needs_wrote_what_it_reads(program):
    """By the bytes at both ends of a token, and by all bytes of the program in order."""
    order = ordering(program)
    depends = dependences(program.instructions)
    taker = np.repeat(np.arange(len(program)), np.diff(order.first))
    source = order.queue[order.producer]
    by_data, by_space = depends.data[taker, source], depends.space[taker, source]
    assert (np.maximum(by_data, by_space) == order.producer).all()
    assert order.kind.tolist() == np.where(by_data >= by_space, DATA, SPACE).tolist()


def tokens(program, moved):
    """Return the program without its tokens, with those of `moved`, pairs of instructions, instead."""
    rows = program.instructions.copy()
    rows["wait"], rows["signal"] = 0, 0
    for giver, taker in moved:
        rows["signal"][giver, rows["queue"][taker]] += 1
        rows["wait"][taker, rows["queue"][giver]] += 1
    return replace(program, instructions=rows)


def test_nops_that_carry_tokens_leave_the_cause_as_it_is():
    """A token given by a NOP after two loads and taken by a NOP before the multiplication; space likewise."""
    build = ProgramBuilder(MACHINE, queues=("load_a", "matrix"))
    vectors = {"a": At("a", 0, (0, 0, 0, 0, 0, 1), "int8"), "b": At("b", 0, (0, 0, 0, 0, 0, 1), "int8")}
    for _ in range(2):
        for buffer in ("a", "b"):
            build.append(
                Opcode.LOAD, "load_a", (160,), a=At("external", 0, (1,), "int8"), c=At(buffer, 0, (1,), "int8")
            )
        build.append(Opcode.NOP, "load_a")
        build.append(Opcode.NOP, "matrix")
        build.append(Opcode.GEMM, "matrix", (1, 1, 1, 1, 1, 160), **vectors, c=At("acc", 0, (), "int32"))
    program = tokens(build.build(), [(2, 3), (4, 5), (7, 8)])
    report = simulate(program)
    assert report.timing.start.tolist() == [0, 10, 20, 20, 20, 21, 31, 41, 41, 41]
    assert report.stalls["matrix"] == {"data": 40, "space": 0, "token": 0, "latency": 0, "port": 0, "dispatch": 0}
    assert report.stalls["load_a"] == {"data": 0, "space": 1, "token": 0, "latency": 0, "port": 0, "dispatch": 0}
    # A token without corresponding bytes is a wait for a token.
    apart = simulate(tokens(build.build(), [(2, 3), (4, 5), (7, 8), (4, 6)])).stalls["load_a"]
    assert apart["space"] == 1
    nothing = ProgramBuilder(MACHINE, queues=("load_a", "matrix"))
    nothing.append(Opcode.LOAD, "load_a", (160,), a=At("external", 0, (1,), "int8"), c=At("a", 0, (1,), "int8"))
    nothing.append(Opcode.NOP, "matrix")
    assert simulate(tokens(nothing.build(), [(0, 1)])).stalls["matrix"]["token"] == 10


def test_tiles_that_interleave_are_distinguished():
    """The left half of a matrix is read while the right one is loaded: their rows interleave without a common byte."""
    build = ProgramBuilder(MACHINE, queues=("load_a", "vector"))
    half = lambda column: At("a", column, (16, 1), "int8")  # noqa: E731
    source = At("external", 0, (8, 1), "int8")
    build.append(Opcode.LOAD, "load_a", (8, 8), a=source, c=half(0))
    build.append(Opcode.LOAD, "load_a", (8, 8), a=source, c=half(8))
    build.append(Opcode.ALU, "vector", (8, 8), a=half(0), c=At("acc", 0, (8, 1), "int8"))
    build.append(Opcode.LOAD, "load_a", (8, 8), a=source, c=half(0))
    build.append(Opcode.ALU, "vector", (8, 8), a=half(8), c=half(8))
    program = tokens(build.build(), [(0, 2), (2, 3), (1, 4)])
    order = ordering(program)
    assert order.kind.tolist() == [DATA, SPACE, DATA]


def test_bytes_are_those_that_cross_to_the_chip_by_operand():
    report = simulate(product(m=32, n=16, k=24, slots=2, block=8))
    assert report.bytes == {"a": 32 * 24, "b": 24 * 16, "out": 32 * 16 * 4}
    assert report.memories["external"].read == 32 * 24 + 24 * 16
    assert report.memories["external"].written == 32 * 16 * 4
    assert report.memories["a"].peak == 2 * 8 * 24
    assert report.memories["a"].capacity == 2 * 4096
    assert report.intensity == pytest.approx(report.macs / sum(report.bytes.values()))


def test_what_is_loaded_beside_the_operands_counts_as_its_tensor():
    build = ProgramBuilder(MACHINE)
    build.tensor("x", "int8", (64,), role="input", operand="a")
    scale = build.tensor("scale", "int8", (64,), role="input", operand="b")
    sums = build.tensor("sums", "int32", (16,), role="scratch", operand="out")
    for tensor, count in ((scale, 8), (sums, 4)):
        build.append(
            Opcode.LOAD,
            "load_a",
            (count,),
            a=At("external", tensor.address + tensor.bytes // 2, (1,), tensor.dtype),
            c=At("acc", 0, (1,), tensor.dtype),
        )
    assert simulate(build.build()).bytes == {"a": 0, "b": 8, "out": 16}


@pytest.mark.parametrize(("block_k", "blocks_k"), [(12, 2), (1, 3)])  # 256 multipliers are 8 deep
def test_energy_by_hand(block_k, blocks_k):
    energy = Energy(mac_pj={"1": 2.0}, byte_pj={"external": 100.0, "a": 1.0, "b": 3.0, "acc": 5.0}, vector_pj=7.0)
    tile = replace(MACHINE.near_tile, block_m=4, block_n=8, block_k=block_k)
    report = simulate(product(m=8, n=16, k=24, slots=1, block=8), replace(MACHINE, near_tile=tile, energy=energy))
    blocks_m, blocks_n = 2, 2
    assert report.energy == {
        "mac": 8 * 16 * 24 * 2.0,
        "vector": 8 * 16 * 7.0,
        "external": (8 * 24 + 24 * 16 + 8 * 16 * 4) * 100.0,
        "b": (24 * 16) * (1 + blocks_m) * 3.0,
        "a": (8 * 24) * (1 + blocks_n) * 1.0,
        # Sums of each block, which the first one does not read; ReLU in place; the store.
        "acc": (8 * 16 * 4) * (2 * blocks_k - 1 + 2 + 1) * 5.0,
    }
    assert report.energy_pj == pytest.approx(sum(report.energy.values()))


def one_product(accumulate, macs_per_cycle=256.0):
    tile = replace(MACHINE.near_tile, block_m=4, block_n=8, macs_per_cycle=macs_per_cycle)
    build = ProgramBuilder(replace(MACHINE, near_tile=tile))
    build.append(
        Opcode.GEMM, "matrix", (8, 1, 16, 1, 1, 24),
        a=At("a", 0, (24, 0, 0, 0, 0, 1), "int8"), b=At("b", 0, (0, 0, 24, 0, 0, 1), "int8"),
        c=At("acc", 0, (16, 0, 1), "int32"), accumulate=accumulate,
    )  # fmt: skip
    return simulate(build.build())


def test_sums_that_are_not_read_take_no_energy():
    pj = Energy().byte_pj["acc"]
    fresh, added = (one_product(accumulate).energy["acc"] for accumulate in (False, True))
    assert added - fresh == 8 * 16 * 4 * pj  # the sums that the multiplication adds to, read once
    column = Hardware.rnn(multipliers=64)
    build = ProgramBuilder(column)
    operands = {"a": At("b", 0, (4, 0, 0, 0, 0, 1), "int16"), "b": At("a", 0, (0, 0, 0, 0, 0, 1), "int16")}
    sums = At("acc", 0, (1,), "int32")
    build.append(Opcode.COLMV, "column", (8, 1, 1, 1, 1, 4), **operands, c=sums, immediate=(4, 8))
    assert simulate(build.build()).energy["acc"] == 8 * 4 * pj


def test_energy_falls_steadily_with_the_multipliers():
    """An engine of 4 x 8 blocks with depth d passes its sums 24 / d times: more multipliers never need more."""
    energy = [one_product(False, float(macs)).energy["acc"] for macs in range(32, 32 * 24 + 1, 16)]
    assert energy == sorted(energy, reverse=True)
    passes = [24 // deep for deep in (1, 2, 3, 4, 6, 8, 12, 24)]
    own = [one_product(False, 32.0 * deep).energy["acc"] for deep in (1, 2, 3, 4, 6, 8, 12, 24)]
    assert own == [8 * 16 * 4 * (2 * count - 1) * Energy().byte_pj["acc"] for count in passes]


def test_capacities_of_doubled_buffers_are_shown_as_such():
    report = simulate(product())
    assert report.memories["a"].capacity == 8192 and report.memories["a"].doubled
    assert not report.memories["acc"].doubled
    assert "2 x 4.00 KiB" in report.summary() and "8.00 KiB" not in report.summary()
    single = replace(MACHINE, near_tile=replace(MACHINE.near_tile, double_buffer=False))
    assert "2 x" not in simulate(product(), single).summary()


def test_utilisation_nears_page_01s_prediction_and_the_fill_shows():
    """Loads of A are the bottleneck: 24 cycles per block, where multiplications take 12. The rest is the pipeline's."""
    machine = replace(MACHINE, near_tile=replace(MACHINE.near_tile, bw_a=8.0))
    shares = []
    for blocks in (1, 4, 16, 64):
        report = simulate(product(m=8 * blocks, n=16, k=24, slots=2, block=8), machine)
        predicted = 0.5
        shares.append(report.utilisation / predicted)
        assert report.cycles == 24 * blocks + 12 + 1  # the last multiplication and its ReLU
    assert shares == sorted(shares) and shares[0] < 0.7 and shares[-1] > 0.99


def test_regions_are_from_their_first_start_to_their_last_result():
    build = ProgramBuilder(MACHINE)
    for name in ("first", "second"):
        build.region(name, workload=f"copy {name}")
        near = At("a", 0, (1,), "int8")
        build.append(Opcode.LOAD, "load_a", (160,), a=At("external", 0, (1,), "int8"), c=near)
        build.append(Opcode.ALU, "vector", (256,), a=near, c=At("acc", 0, (1,), "int8"))
    first, second = simulate(build.build()).regions
    assert (first.start, first.end, second.start, second.end) == (0, 11, 11, 22)
    assert (first.name, first.workload, first.instructions) == ("first", "copy first", 2)
    assert first.busy == {"load_a": 10, "load_b": 0, "matrix": 0, "vector": 1, "store": 0}


def test_overlap_is_the_share_of_busy_cycles_with_two_engines():
    build = ProgramBuilder(MACHINE)
    for operand, size in (("a", 320), ("b", 160)):
        source, near = At("external", 0, (1,), "int8"), At(operand, 0, (1,), "int8")
        build.append(Opcode.LOAD, f"load_{operand}", (size,), a=source, c=near)
    assert simulate(build.build()).overlap == 0.5


def test_the_report_as_text_and_json():
    report = simulate(product())
    text = report.summary()
    for word in (f"{report.cycles} cycles", "waits: space", "load_a", "external", "mac"):
        assert word in text
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["cycles"] == report.cycles
    assert plain["engines"]["matrix"]["stalls"] == report.stalls["matrix"]
    assert plain["regions"][0]["workload"] == "gemm 32 24 16"
    assert report.seconds is None
    timed = simulate(product(), replace(MACHINE, clock_mhz=500.0))
    assert timed.seconds == pytest.approx(timed.cycles / 500e6)


@EXACT
@given(program=programs())
def test_no_two_intervals_of_an_engine_overlap_in_the_timeline(program, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "t.json"
    report = simulate(program, check=False)
    report.save_trace(path)
    events = json.loads(path.read_text())["traceEvents"]
    shown = [event for event in events if event["ph"] == "X" and event["cat"] == "instruction"]
    assert len(shown) == len(program)
    for queue in range(len(program.queues)):
        own = [event for event in shown if event["tid"] == queue]
        assert [event["args"]["instruction"] for event in own] == np.flatnonzero(
            program.instructions["queue"] == queue
        ).tolist()
        for earlier, later in itertools.pairwise(own):
            assert earlier["ts"] + earlier["dur"] <= later["ts"]
    busy = {name: engine.busy for name, engine in report.engines.items()}
    assert busy == {
        name: sum(event["dur"] for event in shown if event["tid"] == queue) for queue, name in enumerate(program.queues)
    }


@EXACT
@given(program=programs())
def test_waits_in_the_timeline_are_the_engines_stalls_and_end_with_a_result(program):
    report = simulate(program, check=False)
    timing, queue = report.timing, program.instructions["queue"]
    waited = waits(queue, timing)
    for number, name in enumerate(program.queues):
        own = queue == number
        assert waited[own].sum() == sum(report.stalls[name].values())
        assert ((timing.cause[own] >= 0) == (waited[own] > 0)).all()
    for number in np.flatnonzero(timing.behind >= 0).tolist():
        assert timing.done[timing.behind[number]] <= timing.start[number]
        assert timing.cause[number] in (DATA, SPACE, TOKEN, LATENCY)
        assert (timing.cause[number] == LATENCY) == (queue[timing.behind[number]] == queue[number])


def held_by_bytes(program, timing, number, size):
    """Count, cycle by cycle, the bytes of a memory that will still be read."""
    rows, used = program.instructions, uses(program.instructions)
    touched = [[] for _ in range(size)]
    for operand in ("a", "b", "c"):
        low, high = spans(rows, operand)
        for place in np.flatnonzero(used.of(operand) & (rows[f"{operand}_memory"] == number)).tolist():
            anew = operand == "c" and not used.reads_c[place]
            for byte in range(int(low[place]), int(high[place])):
                touched[byte].append((int(timing.start[place]), anew, int(timing.end[place])))
    held = np.zeros(timing.cycles + 1, dtype=int)
    for byte in touched:
        stay = None
        for start, anew, end in sorted(byte):
            if anew:
                if stay:
                    held[stay[0] : min(stay[1], start)] += 1
                stay = (start, end)
            elif stay:
                stay = (stay[0], max(stay[1], end))
        if stay:
            held[stay[0] : stay[1]] += 1
    return held


@EXACT
@given(program=programs())
def test_a_buffer_is_as_full_as_its_bytes_walked_one_by_one(program):
    report = simulate(program, check=False)
    with mock.patch.object(fill, "PIECES", 1 << 40):  # one byte each
        found = fill.fills(program, report.timing)
    for number, memory in enumerate(program.memories):
        if memory.name in OFF_CHIP:
            assert memory.name not in found
            continue
        wanted = held_by_bytes(program, report.timing, number, memory.bytes)
        got = np.zeros_like(wanted)
        if memory.name in found:
            curve = found[memory.name]
            for time, held in zip(curve.times.tolist(), curve.bytes.tolist(), strict=True):
                got[time:] = held
        assert got.tolist() == wanted.tolist()


def test_in_larger_pieces_a_buffer_is_never_fuller_than_it_is_large():
    report = simulate(product())
    curves = fill.fills(report.program, report.timing)
    assert set(curves) == {"a", "b", "acc"}
    assert {name: int(curve.bytes.max()) for name, curve in curves.items()} == {"a": 384, "b": 384, "acc": 1024}
    assert all(curve.bytes[-1] == 0 and curve.times[-1] <= report.cycles for curve in curves.values())


def test_arrows_of_the_timeline_lead_from_results_to_what_waited_for_them(tmp_path):
    report = simulate(product())
    report.save_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    shown = {e["args"]["instruction"]: e for e in events if e["ph"] == "X" and e["cat"] == "instruction"}
    leaves, comes = ({e["id"]: e for e in events if e["ph"] == kind} for kind in "sf")
    assert set(leaves) == set(comes) == {n for n, e in shown.items() if "behind" in e["args"]}
    for number, arrow in comes.items():
        giver = shown[int(shown[number]["args"]["behind"].split()[0])]
        assert (arrow["tid"], arrow["ts"]) == (shown[number]["tid"], shown[number]["ts"])
        assert leaves[number]["tid"] == giver["tid"]
        assert giver["ts"] <= leaves[number]["ts"] <= giver["ts"] + giver["dur"]
    # The first multiplication waits for B, which takes longer than A.
    assert shown[2]["args"] | {"operator": ""} == {
        "instruction": 2, "result": 36, "operator": "", "waited": 24, "for": "data", "behind": "0 LOAD of load_b"
    }  # fmt: skip
    counters = {e["name"] for e in events if e["ph"] == "C"}
    assert counters == {"bytes in a", "bytes in b", "bytes in acc"}


def test_the_timeline_names_engines_and_operators(tmp_path):
    simulate(product()).save_trace(tmp_path / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]]
    assert names == ["neartile", "load_a", "load_b", "matrix", "vector", "store", "operators", "product"]
    (operator,) = [event for event in events if event.get("cat") == "operator"]
    assert (operator["name"], operator["ts"], operator["args"]["workload"]) == ("product", 0, "gemm 32 24 16")
    assert {event["name"] for event in events if event.get("cat") == "instruction"} == {"LOAD", "GEMM", "RELU", "STORE"}


def test_the_public_names_need_no_tvm(tmp_path):
    path = tmp_path / "p.vsim"
    product().save(path)
    code = (
        "import sys, tvm_tiling as tt\n"
        f"program = tt.Program.load({str(path)!r})\n"
        "print(tt.simulate(program).cycles, tt.simulate(program, hardware='neartile').hardware)\n"
        "assert not {'tvm', 'numba'} & {name.split('.')[0] for name in sys.modules}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == (f"{simulate(product()).cycles} neartile\n", "")


def test_an_empty_program_has_a_report():
    report = simulate(ProgramBuilder(MACHINE).build())
    assert (report.cycles, report.utilisation, report.roofline, report.overlap) == (0, 0.0, 1.0, 0.0)
    assert report.energy_pj == 0 and "0 cycles" in report.summary()


def test_what_is_no_program_or_no_machine_is_refused():
    with pytest.raises(SimulationError, match="has type str; expected a Program"):
        simulate("p.vsim")
    with pytest.raises(HardwareError, match="hardware = 3; expected a Hardware"):
        simulate(product(), 3)
    with pytest.raises(HardwareError, match="did you mean 'wfold16'"):
        simulate(product(), "wfold61")
