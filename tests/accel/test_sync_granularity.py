"""An instruction multiplies what one synchronisation between the matrix and the vector engine covers."""

import dataclasses

import numpy as np
import pytest
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.accel.instructions.table import Opcode
from tvm_tiling.hardware.vector import Vector


def machine(granularity: int) -> tt.Hardware:
    vta = tt.Hardware.load("vta")
    return dataclasses.replace(vta, near_tile=dataclasses.replace(vta.near_tile, sync_granularity=granularity))


def product_with_relu(m: int, n: int, k: int):
    a, b = te.placeholder((m, k), "int8", "a"), te.placeholder((k, n), "int8", "b")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis].astype("int32") * b[axis, j].astype("int32"), axis=axis))
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.max(c[i, j], 0), "relu")])


def convolution_with_bias(size: int, ci: int, co: int, stride: int):
    x, w = te.placeholder((1, size, size, ci), "int8", "x"), te.placeholder((3, 3, ci, co), "int8", "w")
    bias = te.placeholder((co,), "int32", "bias")
    y = topi.nn.conv2d_nhwc(x, w, stride, 1, 1, out_dtype="int32")
    return te.create_prim_func([x, w, bias, te.compute(y.shape, lambda n, i, j, c: y[n, i, j, c] + bias[c], "sum")])


def multiplied(program) -> set[tuple[int, ...]]:
    """Return the extents of the multiplying instructions, without those of size 1."""
    rows = (row["extent"] for row in program.instructions if row["op"] == Opcode.GEMM)
    return {tuple(int(extent) for extent in row if extent > 1) for row in rows}


@pytest.mark.values
@pytest.mark.parametrize("size", [(256, 256, 256), (100, 130, 70), (512, 96, 2000)])
@pytest.mark.parametrize("granularity", [2, 64, 128, 1024])
def test_gemms_with_an_epilogue_are_made_in_synchronisations(size, granularity):
    m, n, k = size
    rng = np.random.default_rng(granularity)
    a, b = (rng.integers(-100, 100, shape, np.int8) for shape in ((m, k), (k, n)))
    exe = tt.compile(product_with_relu(m, n, k), target=machine(granularity))
    out, report = exe.simulate(a, b)
    np.testing.assert_array_equal(out, np.maximum(a.astype(np.int32) @ b.astype(np.int32), 0))
    covered = granularity // 2 * 16  # results: blocks of 1 x 16
    macs = max(int(np.prod(extents)) for extents in multiplied(exe.program))
    assert macs <= covered * k
    assert report.cycles >= report.lower_bound


def test_a_small_granularity_costs_instructions_and_a_large_one_overlap():
    programs = {g: tt.compile(product_with_relu(256, 256, 256), target=machine(g)).program for g in (2, 1024)}
    assert {extents[:-1] for extents in multiplied(programs[2])} == {(16,)}  # columns of one block, and a step of k
    assert len(programs[2].instructions) > 10 * len(programs[1024].instructions)


FILL, DRAIN, VECTOR, RATE = 5, 3, 2, 1024


@pytest.mark.parametrize("granularity", [2, 16, 1024])
def test_the_cycles_of_a_synchronisation_are_those_of_the_decision(granularity):
    """64 x 64 x 64 with relu, 256 multiply-accumulates and 16 lanes, m in parts of 56 and 8 rows. A small granularity
    costs fills of its multiplications; a large one costs the relu after the last of them."""
    tile = tt.Hardware.neartile(
        buf_a=1 << 16, buf_b=1 << 16, acc_max=1 << 18, bw_a=RATE, bw_b=RATE, macs_per_cycle=256, block_m=1, block_n=16
    )
    machine = dataclasses.replace(
        tile,
        near_tile=dataclasses.replace(
            tile.near_tile, sync_granularity=granularity, fill=FILL, drain=DRAIN, bw_out=float(RATE)
        ),
        vector=Vector(lanes=16, latency=VECTOR),
    )
    report = tt.simulate(tt.compile(product_with_relu(64, 64, 64), target=machine).program)
    load_b, last_store = 64 * 64 // RATE, 8 * 64 * 4 // RATE
    if granularity == 1024:  # all of a part of m: its relu takes 56 * 64 / 16 cycles, followed by that of the 8 rows
        products = [FILL + rows * 64 * 64 // 256 for rows in (56, 8)]
        first, last = 56 * 64 // 16, 8 * 64 // 16
        assert first > products[1] - last
        cycles = load_b + products[0] + DRAIN + first + last + VECTOR + last_store
    else:  # blocks of 16 columns: one row of them, or eight, are synchronised
        rows = granularity // 2
        products = [FILL + rows * 16 * 64 // 256] * (64 // rows * 4)
        cycles = load_b + sum(products) + DRAIN + rows * 16 // 16 + VECTOR + last_store
    assert report.engines["matrix"].busy == sum(products)
    assert report.engines["vector"].busy == 64 * 64 // 16
    assert report.cycles == cycles == {2: 2316, 16: 1203, 1024: 1168}[granularity]


def test_without_an_epilogue_there_is_nothing_to_synchronise():
    def program(granularity: int):
        return tt.decide(tt.GemmWorkload(m=256, n=256, k=256, dtype="int8"), machine(granularity)).chunks

    assert program(2) == program(1024)


@pytest.mark.parametrize("case", [(28, 32, 48, 1), (15, 30, 50, 2), (56, 64, 16, 1)])
def test_convolutions_with_an_epilogue_are_made_in_synchronisations(case):
    size, ci, co, stride = case
    rng = np.random.default_rng(size)
    x, w = (rng.integers(-20, 20, shape, np.int8) for shape in ((1, size, size, ci), (3, 3, ci, co)))
    bias = rng.integers(-99, 99, co, np.int32)
    wants, counts = [], []
    for granularity in (2, 128, 4096):
        exe = tt.compile(convolution_with_bias(*case), target=machine(granularity))
        out, _ = exe.simulate(x, w, bias)
        wants.append(out)
        counts.append(len(exe.program.instructions))
    padded = np.pad(x[0].astype(np.int32), ((1, 1), (1, 1), (0, 0)))
    points = range(0, size + 2 - 2, stride)
    want = [[np.tensordot(padded[i : i + 3, j : j + 3], w.astype(np.int32), 3) + bias for j in points] for i in points]
    for out in wants:
        np.testing.assert_array_equal(out[0], want)
    assert counts[0] > counts[1] >= counts[2]
