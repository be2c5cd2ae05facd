"""Convolutions given as workloads: the generated operator, and its program."""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import by_numpy
from operators import random_inputs

import tvm_tiling as tt
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.plain_operator import plain_operator
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.match import match

SIZES = {"n": 2, "h": 9, "w": 18, "ci": 8, "co": 12, "kh": 3, "kw": 2, "dtype": "int8"}
CASES = [
    {"padding": (1, 0, 1, 1)},
    {"stride": (2, 2), "padding": (1, 1, 0, 1), "layout": "NCHW"},
    {"groups": 4, "dilation": (2, 2), "padding": (2, 1, 2, 1)},
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("machine", ["vta", "wfold16"])
def test_the_program_of_a_workload_gives_its_result(machine, case):
    workload = tt.ConvWorkload(**SIZES, **case)
    assert match(plain_operator(workload), "main").workload == workload
    program = workload_program(workload, tt.Hardware.load(machine))
    inputs = random_inputs(program)
    assert np.array_equal(run(program, inputs)["y"], by_numpy(inputs, **case))


@pytest.mark.parametrize("case", [{"transposed": True}, {"d": 3}, {"layout": "NCHW4c"}])
def test_what_is_not_written_is_named(case):
    with pytest.raises(tt.UnsupportedOperator, match="two-dimensional convolutions, not transposed, in NHWC, NCHW"):
        workload_program(tt.ConvWorkload(**SIZES, **case), tt.Hardware.load("vta"))


@pytest.mark.parametrize("machine", ["vta", "wfold16"])
def test_a_workload_is_compiled_run_and_simulated(machine):
    rng = np.random.default_rng(0)
    conv = tt.ConvWorkload(**SIZES, padding=(1, 0, 1, 1))
    x, w = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((2, 9, 18, 8), (3, 2, 8, 12)))
    result, report = tt.compile(conv, target=f"vsim/{machine}").simulate(x, w)
    assert np.array_equal(result, by_numpy({"x": x, "w": w}, padding=(1, 0, 1, 1)))
    assert (
        report.macs == conv.macs
        and report.cycles == tt.simulate(workload_program(conv, tt.Hardware.load(machine))).cycles
    )
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((33, 40), (20, 40)))
    product = tt.GemmWorkload(m=33, n=20, k=40, trans_b=True, dtype="int8")
    assert np.array_equal(
        tt.compile(product, target=f"vsim/{machine}").run(a, b), a.astype(np.int32) @ b.T.astype(np.int32)
    )


def test_a_workload_for_a_cpu_is_refused_in_one_sentence():
    with pytest.raises(tt.TilingError, match="GemmWorkload"):
        tt.compile(tt.GemmWorkload(m=4, n=4, k=4))
