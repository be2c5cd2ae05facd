"""Layout changes on the accelerator: each element is loaded once, whatever reshapes surround a transposition."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

import tvm_tiling as tt


def moved(channels, height, width):
    """NCHW to NHWC as a layout pass generates it: image rows merged into one axis, and split again."""
    x = te.placeholder((1, channels, height, width), "int8", name="x")
    rows = topi.transpose(topi.reshape(x, (channels, height * width)), (1, 0))
    return te.create_prim_func([x, topi.reshape(rows, (1, height, width, channels))])


@pytest.mark.parametrize("shape", [(16, 28, 28), (3, 31, 17), (33, 7, 1)])
def test_a_transposition_between_reshapes_loads_its_operand_once(shape):
    exe = tt.compile(moved(*shape), target="vsim/vta")
    x = np.random.default_rng(1).integers(-128, 128, (1, *shape)).astype("int8")
    output, sim = exe.simulate(x)
    np.testing.assert_array_equal(output, x.transpose(0, 2, 3, 1))
    assert sim.bytes["a"] == x.size
    assert sim.bytes["out"] == x.size
