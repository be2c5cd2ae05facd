"""Programs with hazards, or with more bytes than their machine has, are refused wherever they are timed or run."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from accel_programs import MACHINE, product
from test_hazards import without_token

import tvm_tiling as tt
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.program.builder import At, ProgramBuilder
from tvm_tiling.accel.recurrent.layer import FixedPoint
from tvm_tiling.accel.recurrent.sequences import step_program
from tvm_tiling.accel.report.sweep import sweep
from tvm_tiling.cli.app import main
from tvm_tiling.errors import HardwareError, SimulationError

INPUTS = {"a": np.ones((40, 24), np.int8)}
HAZARD = "hazard: no token orders instruction"


@pytest.fixture
def hazard():
    """A multiplication that does not wait for B, and whose time is therefore too short."""
    legal = product(m=40, slots=2, block=8)
    gemms = np.flatnonzero(legal.instructions["op"] == Opcode.GEMM)
    return without_token(legal, int(gemms[0]), legal.queue_number("load_b"))[0]


def test_a_program_with_a_hazard_is_timed_where_that_is_asked_for_only(hazard):
    legal = tt.simulate(product(m=40, slots=2, block=8)).cycles
    for refused in (lambda: tt.simulate(hazard), lambda: next(sweep(hazard, MACHINE, {"near_tile.fill": [0]}))):
        with pytest.raises(SimulationError, match=HAZARD):
            refused()
    assert 0 < tt.simulate(hazard, check=False).cycles < legal
    (point,) = sweep(hazard, MACHINE, {"near_tile.fill": [0]}, check=False)
    assert point.report.cycles == tt.simulate(hazard, check=False).cycles


def test_a_program_with_a_hazard_is_run_where_that_is_asked_for_only(hazard):
    with pytest.raises(SimulationError, match=HAZARD):
        run(hazard, INPUTS)
    expected = run(product(m=40, slots=2, block=8), INPUTS)
    assert np.array_equal(run(hazard, INPUTS, check=False)["c"], expected["c"])  # in program order


def test_a_task_with_a_hazard_is_refused():
    machine = tt.Hardware.rnn(multipliers=1024)
    layer = tt.RnnWorkload(cell="lstm", steps=2, input_size=16, hidden_size=16, dtype="int16")
    step = step_program(layer, tt.decide(layer, machine), machine, FixedPoint())
    stores = np.flatnonzero(step.instructions["op"] == Opcode.STORE)
    broken = without_token(step, int(stores[0]), step.queue_number("vector"))[0]
    assert tt.simulate([(broken, 2, 0)], check=False).cycles > 0
    with pytest.raises(SimulationError, match=HAZARD):
        tt.simulate([(broken, 2, 0)])


def test_the_command_line_refuses_a_file_with_a_hazard(hazard, tmp_path, capsys):
    path = str(tmp_path / "hazard.vsim")
    hazard.save(path)
    for words in (["simulate", path], ["sweep", path, "--field", "near_tile.fill", "--values", "0"], ["report", path]):
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 1 and HAZARD in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["simulate", path, "--no-check"])
    assert not left.value.code and "cycles" in capsys.readouterr().out


def test_a_run_keeps_to_the_buffers_of_the_machine():
    """64 KiB do not fit the 32 KiB buffer of A."""
    machine = tt.Hardware.neartile(buf_a=16384, buf_b=4096, acc_max=4096, bw_a=16, bw_b=16, macs_per_cycle=256)
    build = ProgramBuilder(machine)
    x = build.tensor("x", "int8", (65536,), role="input", operand="a")
    y = build.tensor("y", "int8", (65536,), role="output", operand="out")
    far, near, back = (
        At(memory, place, (1,), "int8")
        for memory, place in (("external", x.address), ("a", 0), ("external", y.address))
    )
    build.append(Opcode.LOAD, "load_a", (65536,), a=far, c=near)
    build.append(Opcode.STORE, "store", (65536,), a=near, c=back)
    program = build.build()
    values = {"x": np.arange(65536).astype(np.int8)}
    with pytest.raises(HardwareError, match="needs 65536 bytes of memory 'a', which has 32768"):
        run(program, values)
    wide = dataclasses.replace(
        program, hardware=dataclasses.replace(machine, near_tile=dataclasses.replace(machine.near_tile, buf_a=32768))
    )
    assert np.array_equal(run(wide, values)["y"], values["x"])
