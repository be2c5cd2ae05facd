"""Speed of the functional and timing simulators: a fifth of the targets of benchmarks/accel.py.

Measured in processor time, so that other load on the machine does not fail a test.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from benchmarks import accel, accel_timing
from benchmarks.accel_cases import product
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.program.work import work
from tvm_tiling.accel.timing.cost import costs
from tvm_tiling.accel.timing.timing import ordering, time_queues
from tvm_tiling.hardware.machine import Machine

SHARE = 1 / 5


def least_of_its_own(function, times=5):
    """Return the minimum processor time of a call, over all its threads."""
    least = float("inf")
    for _ in range(times):
        start = time.process_time()
        function()
        least = min(least, time.process_time() - start)
    return least


@pytest.mark.parametrize("check", [True, False])
def test_int8_gemms_run_at_a_fifth_of_5_gmacs_and_more(check):
    case = product(512, 512, 512, 64, 64, 256)
    (result,) = run(case.program, case.inputs).values()
    np.testing.assert_array_equal(result, case.output)
    seconds = least_of_its_own(lambda: run(case.program, case.inputs, check=check))
    assert case.macs / seconds / 1e9 >= SHARE * accel.AIM


def test_a_fifth_of_5_million_instructions_and_more_are_timed_in_a_second():
    pytest.importorskip("numba")
    program = accel_timing.network(100_000)
    order, cost = ordering(program), costs(work(program), Machine(program.hardware))
    assert time_queues(program, order, cost, True).cycles == time_queues(program, order, cost, False).cycles
    seconds = least_of_its_own(lambda: time_queues(program, order, cost, True))
    assert len(program) / seconds / 1e6 >= SHARE * accel_timing.AIM
