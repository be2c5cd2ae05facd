"""A machine kind is a row of decide/kinds.py and one of schedules/accel.py: everything else finds it there."""

import dataclasses
import json

import numpy as np
import pytest
from operators import product

import tvm_tiling as tt
from tvm_tiling.decide import kinds
from tvm_tiling.decide.known import tiling_for
from tvm_tiling.decide.near_tile import decide_near_tile
from tvm_tiling.decide.options import Options
from tvm_tiling.decide.surroundings import Surroundings
from tvm_tiling.decide.tiling import Reason
from tvm_tiling.schedules import accel, accel_gemm

MACHINE = dataclasses.replace(tt.Hardware.load("vta"), name="one-row-at-a-time")


def decide_rows(workload, hardware, options, around):
    """Like the existing kind, but with partitions of 16 rows."""
    tiling = decide_near_tile(workload, hardware, Options())
    rows = min(16, workload.m)
    reason = Reason("partition_m", rows, "this machine takes 16 rows at a time")
    load_b = -(-workload.m // rows)
    return dataclasses.replace(
        tiling, partition_m=rows, outer_order="mn", load_b=load_b, chunks=None, reasons=(*tiling.reasons, reason)
    )


def schedule_rows(program, hardware, options):
    return accel_gemm.apply(program, hardware, tiling_for(program.workload, hardware, options, Surroundings()))


@pytest.fixture
def kind(monkeypatch):
    row = kinds.MachineKind(
        name="rows",
        takes=lambda workload, hardware: hardware.name == MACHINE.name and isinstance(workload, tt.GemmWorkload),
        options={tt.GemmWorkload: ()},
        decide=decide_rows,
        rules=None,
    )
    monkeypatch.setattr(kinds, "KINDS", [row, *kinds.KINDS])
    monkeypatch.setitem(accel.SCHEDULES, "rows", schedule_rows)


@pytest.mark.usefixtures("kind")
def test_a_toy_kind_decides_schedules_and_runs():
    w = tt.GemmWorkload(m=70, n=48, k=96, dtype="int8")
    decision = tt.decide(w, MACHINE)
    assert decision.partition_m == 16 and "16 rows at a time" in decision.explain()
    assert tt.decide(w, "vta").partition_m == 70
    op = product(w.m, w.n, w.k, w.dtype)
    recorded = json.loads(tt.tiling_schedule(op, target=MACHINE).mod["main"].attrs["tvm_tiling.decision"])
    assert recorded["partition_m"] == 16
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-100, 100, shape, np.int8) for shape in ((w.m, w.k), (w.k, w.n)))
    out, report = tt.compile(op, target=MACHINE).simulate(a, b)
    np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32))
    assert report.bytes["b"] >= 5 * b.nbytes > tt.compile(op, target="vsim/vta").simulate(a, b)[1].bytes["b"]


@pytest.mark.usefixtures("kind")
def test_a_toy_kind_refuses_options_that_it_does_not_read():
    w = tt.GemmWorkload(m=8, n=8, k=8, dtype="int8")
    with pytest.raises(tt.HardwareError, match=r"mode = 'seed' does not apply to a gemm on one-row.*which is rows;"):
        tt.decide(w, MACHINE, mode="seed")
