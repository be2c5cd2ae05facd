"""Loop nests of GEMMs without split-K: predicted cycles equal the simulator's; the small first partition; and the work
during the arrival of the resident partition."""

from __future__ import annotations

import numpy as np
import pytest
from operators import product, simulated

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.accel.timing.simulate import simulate
from tvm_tiling.decide.gemm.product_time import ProductEngines
from tvm_tiling.decide.gemm.traffic import product_on
from tvm_tiling.decide.gemm.unsplit import unsplit_nest

ROOMY = tt.Hardware.neartile(buf_a=4096, buf_b=4096, acc_max=65536, bw_a=8, bw_b=8, macs_per_cycle=64)
NO_SUMS = tt.Hardware.neartile(buf_a=8192, buf_b=4096, acc_max=0, bw_a=4, bw_b=8, macs_per_cycle=64)


def nest_of(m, n, k, hardware, dtype="int8"):
    workload = tt.GemmWorkload(m=m, n=n, k=k, dtype=dtype)
    p, decision = product_on(workload, hardware), tt.decide(workload, hardware)
    assert not decision.split_k
    return p, decision, unsplit_nest(p, decision, hardware).nest


@pytest.mark.parametrize(
    ("size", "hardware"),
    [
        ((60, 200, 64), ROOMY),
        ((200, 60, 64), ROOMY),
        ((100, 90, 70), NO_SUMS),
        ((300, 37, 129), NO_SUMS),
        ((128, 256, 256), tt.Hardware.load("vta")),
        ((196, 512, 256), tt.Hardware.load("vta")),
        ((96, 96, 96), tt.Hardware.load("neartile")),
    ],
    ids=str,
)
def test_the_cycles_of_a_nest_are_those_of_the_simulator(size, hardware):
    p, _, nest = nest_of(*size, hardware)
    _, _, program, _, _ = simulated(product(*size, "int8"), hardware)
    assert ProductEngines(p, hardware).cycles(nest) == pytest.approx(simulate(program).cycles, rel=0.003)


def test_sums_of_a_group_are_open_while_what_stays_arrives():
    """With space for sums the first multiplication needs one step of k of both operands; without it, whole rows."""
    _, _, by_k = nest_of(60, 200, 64, ROOMY)
    assert by_k.depth < 64
    assert by_k.tile == by_k.step == 60
    _, _, by_tiles = nest_of(60, 200, 64, NO_SUMS)
    assert by_tiles.depth == 64
    assert by_tiles.tile < by_tiles.step


def test_a_small_partition_comes_first_where_others_would_wait_for_a_large_one():
    """Loads of B, which is read twice, take longest, and wait until A's first partition has arrived: 108 rows by 66
    start with 42."""
    hardware = tt.Hardware.neartile(buf_a=66 * 181, buf_b=2106, acc_max=5000, bw_a=2, bw_b=1, macs_per_cycle=128)
    _, decision, nest = nest_of(108, 91, 181, hardware)
    assert (decision.outer_order, decision.partition_m, decision.load_b) == ("mn", 66, 2)
    assert nest.backward
    _, _, program, inputs, result = simulated(product(108, 91, 181, "int8"), hardware)
    assert np.array_equal(result, inputs["A"].astype(np.int32) @ inputs["B"].astype(np.int32))
    assert simulate(program).bytes == {"a": 108 * 181, "b": 2 * 91 * 181, "out": 4 * 108 * 91}
    products = program.instructions[program.instructions["op"] == Opcode.GEMM]
    rows = products["extent"][:, 0]
    assert rows[0] <= 108 - nest.step < rows[-1] <= nest.step
