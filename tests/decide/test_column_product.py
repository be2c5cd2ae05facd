"""Matrix-vector multiplications on the column engine: the number of columns and rows processed at once."""

from __future__ import annotations

import dataclasses
import math

import pytest

import tvm_tiling as tt
from tvm_tiling.hardware import Memory, Vector

RNN = tt.Hardware.load("rnn16k")


def vector_product(rows, depth, transposed=False, **further):
    size = {"m": 1, "n": rows} if transposed else {"m": rows, "n": 1}
    return tt.GemmWorkload(**size, k=depth, **{"dtype": "int16", **further})


@pytest.mark.parametrize(("rows", "depth"), [(1024, 512), (2048, 520), (100, 90), (1, 4096), (70000, 3), (5, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_choice_has_the_fewest_cycles_of_all(rows, depth, transposed):
    found = tt.decide(vector_product(rows, depth, transposed), RNN)
    column = RNN.column

    def cycles(ep, vp):
        return math.ceil(depth / ep) * math.ceil(rows / vp) + column.latency(ep)

    every = [cycles(ep, vp) for ep in column.column_counts for vp in {min(rows, 16384 // ep), 1, 16384 // ep}]
    assert found.cycles == cycles(found.ep, found.vp) == min(every)
    assert found.ep * found.vp <= 16384 and found.vp <= rows
    assert found.utilisation == rows * depth / (16384 * found.cycles)
    assert found.rows == rows and found.columns % found.ep in (0, depth)
    assert math.ceil(depth / found.columns) <= 8


def test_a_batch_takes_as_many_gemms_and_one_latency():
    one, five = (tt.decide(vector_product(512, 512, batch=batch), RNN) for batch in (1, 5))
    latency = RNN.column.latency(five.ep)
    assert five.cycles == 5 * math.ceil(512 / five.ep) * math.ceil(512 / five.vp) + latency
    assert five.cycles < 5 * one.cycles


@pytest.mark.parametrize("kilobytes", [64, 256, 4096])
def test_pieces_fit_their_memories_and_cost_no_cycles(kilobytes):
    small = dataclasses.replace(
        RNN, memories={"b": Memory(bytes=kilobytes * 1024), "acc": Memory(bytes=16384)}
    )  # fmt: skip
    workload = vector_product(5000, 3000)
    found = tt.decide(workload, small)
    assert found.versions * found.rows * found.columns * 2 <= kilobytes * 1024 and found.versions >= 2
    assert found.sums * found.rows * 4 <= 16384
    assert found.rows % found.vp == 0 and found.columns % found.ep == 0
    pieces = [(min(found.rows, 5000 - row), min(found.columns, 3000 - column))
              for row in range(0, 5000, found.rows) for column in range(0, 3000, found.columns)]  # fmt: skip
    taken = sum(math.ceil(rows / found.vp) * math.ceil(columns / found.ep) for rows, columns in pieces)
    assert taken + small.column.latency(found.ep) == found.cycles


def test_a_memory_without_room_for_two_blocks_is_named():
    tree = tt.Hardware.rnn(multipliers=1024, tree_inputs=64)
    tiny = dataclasses.replace(tree, memories={"b": Memory(bytes=1000)})
    with pytest.raises(
        tt.HardwareError, match=r"cannot hold two blocks of 64 x 16 elements .*'b' of at least 4096 bytes, 'acc' of 64"
    ):
        tt.decide(vector_product(512, 512), tiny)


def test_other_shapes_are_refused_by_the_units_that_are_there():
    with pytest.raises(
        tt.HardwareError,
        match=r"^rnn16k has no unit for a matrix multiplication of 20 x 40 by 40 x 30, only column; expected "
        r"matrix-vector multiplications \(m = 1 or n = 1\), or a machine with cpu, near_tile or w_fold$",
    ):
        tt.decide(tt.GemmWorkload(m=20, n=30, k=40), RNN)
    with pytest.raises(tt.HardwareError, match="rnn16k has no unit for a convolution, only column; expected matrix"):
        tt.decide(tt.ConvWorkload(n=1, h=8, w=8, ci=4, co=4, kh=3, kw=3), RNN)
    vector = tt.Hardware(name="alu", vector=Vector(lanes=8))
    with pytest.raises(
        tt.HardwareError, match=r"alu has no unit for a matrix multiplication .*, only vector; expected a machine with"
    ):
        tt.decide(vector_product(8, 8), vector)


def test_unsupported_types_modes_and_algorithms():
    narrow = dataclasses.replace(RNN, column=dataclasses.replace(RNN.column, dtypes=("int8", "int16")))
    assert tt.decide(vector_product(8, 8), narrow).op == "column"
    with pytest.raises(tt.HardwareError, match="rnn16k does not support operands of float32; expected int8, int16"):
        tt.decide(vector_product(8, 8, dtype="float32"), narrow)
    with pytest.raises(tt.HardwareError, match="mode = 'seed' does not apply"):
        tt.decide(vector_product(8, 8), RNN, mode="seed")
    with pytest.raises(tt.HardwareError, match="algorithm = 'pack' does not apply"):
        tt.decide(vector_product(8, 8), RNN, algorithm="pack")


def test_the_decision_is_explained():
    text = tt.decide(vector_product(1024, 512), RNN).explain()
    for name in ("columns at once (EP)", "rows at once (VP)", "columns per piece", "cycles", "utilisation"):
        assert f"    {name} " in text
    assert "matrix-vector multiplication tiling" in text
