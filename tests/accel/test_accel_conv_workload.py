"""Convolutions given as workloads: the operator that is written, and its program."""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import by_numpy
from operators import random_inputs

import tvm_tiling as tt
from tvm_tiling.accel.functional import run
from tvm_tiling.accel.plain_convolution import plain_convolution
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
    assert match(plain_convolution(workload), "main").workload == workload
    program = workload_program(workload, tt.Hardware.load(machine))
    inputs = random_inputs(program)
    assert np.array_equal(run(program, inputs)["y"], by_numpy(inputs, **case))


@pytest.mark.parametrize("case", [{"transposed": True}, {"d": 3}, {"layout": "NCHW4c"}])
def test_what_is_not_written_is_named(case):
    with pytest.raises(tt.UnsupportedOperator, match="plain convolutions of two dimensions in NHWC, NCHW"):
        workload_program(tt.ConvWorkload(**SIZES, **case), tt.Hardware.load("vta"))
