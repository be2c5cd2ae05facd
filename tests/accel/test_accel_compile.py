"""tt.compile of a single operator for an accelerator: run, simulate, program."""

from __future__ import annotations

import numpy as np
import pytest
from operators import product

import tvm_tiling as tt
from tvm_tiling.match import prim_func_of


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return rng.integers(-9, 9, (40, 60)).astype(np.int8), rng.integers(-9, 9, (60, 50)).astype(np.int8)


def test_an_operator_is_simulated(arrays, tmp_path):
    a, b = arrays
    exe = tt.compile(product(40, 50, 60, "int8"), target="vsim/neartile")
    result, sim = exe.simulate(a, b)
    assert np.array_equal(result, a.astype(np.int32) @ b.astype(np.int32))
    assert np.array_equal(exe.run(B=b, A=a), result)
    assert sim.bytes == {"a": 2400, "b": 3000, "out": 8000}
    assert sim.lower_bound <= sim.cycles <= sim.upper_bound
    exe.program.save(tmp_path / "p.vsim")
    assert tt.simulate(tt.Program.load(tmp_path / "p.vsim")).cycles == sim.cycles


def test_every_representation_of_an_operator_gives_the_same_program():
    op = product(40, 50, 60, "int8")
    schedule = tt.tiling_schedule(op, target="vsim/neartile")
    programs = [
        tt.compile(form, target="vsim/neartile").program
        for form in (op, op.op, prim_func_of(op), schedule.mod, schedule, schedule.mod["main"])
    ]
    assert all(program == programs[0] for program in programs)


def test_a_changed_schedule_is_compiled_as_it_stands():
    schedule = tt.tiling_schedule(product(64, 64, 64, "int8"), target="vsim/neartile")
    before = tt.compile(schedule, target="vsim/neartile").program
    schedule.split(schedule.get_loops(schedule.get_sblock("C"))[-3], [None, 8])
    assert len(tt.compile(schedule, target="vsim/neartile").program) > len(before)


@pytest.mark.parametrize(
    ("inputs", "named", "said"),
    [
        ((0,), {}, r"inputs B are missing; expected all of A, B"),
        ((0, 0, 0), {}, r"the number of inputs is 3; expected at most 2: A, B"),
        ((0,), {"b": 0}, r"no input is named 'b'; expected A, B"),
        ((0,), {"A": 0}, r"input 'A' is given twice"),
        ((0, 0), {}, r"input 'A' has shape \(\); expected \(40, 60\)"),
    ],
)
def test_wrong_inputs_are_named(inputs, named, said):
    exe = tt.compile(product(40, 50, 60, "int8"), target="vsim/neartile")
    with pytest.raises(tt.WorkloadError, match=said):
        exe.run(*inputs, **named)
