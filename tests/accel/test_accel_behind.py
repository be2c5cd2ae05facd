"""Epilogues of convolutions with many operands: split into pieces if the output buffer is small."""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import by_numpy, convolution
from operators import random_inputs
from tvm import te, tirx

import tvm_tiling as tt
from tvm_tiling.accel.checks.hazards import check_hazards
from tvm_tiling.accel.functional.run import run
from tvm_tiling.accel.instructions.table import Opcode

CASES = {
    # Rows and columns of the image are one axis of the GEMM; a piece of it starts and ends within a row.
    "product of an image's points": {"h": 14, "w": 14, "ci": 64, "co": 256, "kh": 1, "kw": 1},
    # Output channels in blocks that do not divide them.
    "ragged channels": {"h": 56, "w": 56, "ci": 128, "co": 128, "stride": (2, 2), "padding": (1, 1, 0, 0)},
    "ragged groups": {"h": 20, "w": 19, "ci": 96, "co": 144, "groups": 3, "padding": (1, 1, 1, 1)},
}


def requantised(shape, residual=True):
    """Return a convolution in int32 requantised to 8 bits: a bias and a multiplier for each channel, and a residual."""
    sums = convolution(**shape, name="conv")
    co = int(sums.shape[3])
    bias, factor = (te.placeholder((1, 1, 1, co), name=name, dtype="int32") for name in ("bias", "factor"))
    more = te.placeholder(sums.shape, name="more", dtype="int32")

    def element(b, y, x, o):
        scaled = ((sums[b, y, x, o] + bias[0, 0, 0, o] + 16) >> 5) * factor[0, 0, 0, o]
        scaled = scaled + more[b, y, x, o] if residual else scaled
        return tirx.max(tirx.min((scaled + 512) >> 10, 127), -128).astype("int8")

    return te.compute(sums.shape, element, name="y")


@pytest.mark.values
@pytest.mark.parametrize("machine", ["vta", "wfold16"])
@pytest.mark.parametrize("case", CASES)
def test_results_are_exact_and_a_residual_is_read_once(case, machine):
    executable = tt.compile(requantised(CASES[case]), target=f"vsim/{machine}")
    check_hazards(executable.program)
    inputs = random_inputs(executable.program)
    result, sim = executable.simulate(**inputs)
    sums = by_numpy(inputs, **CASES[case])
    scaled = ((sums + inputs["bias"] + 16) >> 5) * inputs["factor"] + inputs["more"]
    np.testing.assert_array_equal(result, np.clip((scaled + 512) >> 10, -128, 127).astype(np.int8))
    assert len(np.unique(result)) > 50
    whole = result.nbytes + inputs["more"].nbytes
    vectors = sim.bytes["out"] - whole  # bias and multipliers, again for each piece
    assert vectors > 0 and vectors % (4 * 2) == 0 and vectors < whole


def rows_of(program, opcode, tensor=None):
    """Return its instructions of a kind, those that read the tensor of that name."""
    rows = program.instructions[program.instructions["op"] == opcode]
    if tensor is None:
        return rows
    (of,) = (t for t in program.tensors if t.name == tensor)
    here = (rows["a_memory"] == program.memory_number(of.memory)) & (rows["a"] >= of.address)
    return rows[here & (rows["a"] < of.address + of.bytes)]


def test_biases_stay_on_the_chip_while_parts_of_a_tile_go_by():
    program = tt.compile(requantised(CASES["product of an image's points"]), target="vsim/vta").program
    parts = len(rows_of(program, Opcode.GEMM))
    assert len(rows_of(program, Opcode.STORE)) == len(rows_of(program, Opcode.LOAD, "more")) == parts
    for vector in ("bias", "factor"):
        assert len(rows_of(program, Opcode.LOAD, vector)) <= parts / 3


def test_pieces_of_49_rows_are_of_one_size():
    """With two pieces of 25 rows, the store would read a row that the second one lacks and that was never written."""
    shape = {"h": 14, "w": 14, "ci": 1024, "co": 512, "kh": 1, "kw": 1}
    program = tt.compile(requantised(shape, residual=False), target="vsim/vta").program
    inputs = random_inputs(program)
    (result,) = run(program, inputs).values()
    scaled = ((by_numpy(inputs, **shape) + inputs["bias"] + 16) >> 5) * inputs["factor"]
    np.testing.assert_array_equal(result, np.clip((scaled + 512) >> 10, -128, 127).astype(np.int8))


def test_a_chain_is_computed_in_place():
    x = te.placeholder((64, 64), name="x", dtype="int32")
    y = te.compute((64, 64), lambda i, j: (((x[i, j] + 3) * 5 - 7) * 11 + 13) >> 2, name="y")
    program = tt.compile(y, target="vsim/neartile").program
    (result,) = run(program, {"x": np.arange(4096, dtype=np.int32).reshape(64, 64)}).values()
    np.testing.assert_array_equal(result.reshape(-1), (((np.arange(4096) + 3) * 5 - 7) * 11 + 13) >> 2)
    alu = rows_of(program, Opcode.ALU)
    final = np.isin(alu["c"], rows_of(program, Opcode.STORE)["a"])
    assert len(alu) > 2 * final.sum() and len(np.unique(alu["c"][~final])) == 1
