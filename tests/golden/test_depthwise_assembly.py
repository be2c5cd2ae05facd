"""LLVM's code for a depthwise register tile: sums and weights in registers, whole vectors, no spills."""

from __future__ import annotations

import json
import platform

import pytest
import tvm
from tvm import te, topi

import tvm_tiling as tt

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="compiles for x86-64 and reads its assembly"
)


def compiled(layout: str, channels: int, size: int, kernel: int, stride: int, machine: str) -> tuple[dict, list[str]]:
    """Return (decision, instructions) of one layer with a border of half the kernel."""
    known = tt.Hardware.load(machine)
    shapes = {
        "NHWC": ((1, size, size, channels), (kernel, kernel, 1, channels), "HWIO"),
        "NCHW": ((1, channels, size, size), (channels, 1, kernel, kernel), "OIHW"),
    }
    shape_x, shape_w, layout_w = shapes[layout]
    x, w = te.placeholder(shape_x, "float32", "X"), te.placeholder(shape_w, "float32", "W")
    border = [kernel // 2] * 4
    op = topi.nn.conv(x, w, [stride] * 2, border, [1, 1], channels, layout, layout_w)
    sch = tt.tiling_schedule(op, known)
    lib = tvm.compile(sch.mod, target=tt.llvm_target(known))
    lines = [line.split("#")[0].strip() for line in lib.mod.inspect_source("asm").splitlines()]
    return json.loads(str(sch.mod["main"].attrs["tvm_tiling.decision"])), lines


@pytest.mark.pairs
@pytest.mark.parametrize("machine", ["icelake-server-2c", "zen4-server-8c"])
@pytest.mark.parametrize("layout, channels", [("NHWC", 96), ("NCHW", 24)])
@pytest.mark.parametrize("size, kernel, stride", [(56, 3, 1), (56, 3, 2), (14, 3, 1)])
def test_sums_stay_in_registers(layout, channels, size, kernel, stride, machine):
    taken, lines = compiled(layout, channels, size, kernel, stride, machine)
    assert taken["form"] == "depthwise"
    vectors = [line for line in lines if "%zmm" in line]
    assert [line for line in vectors if "(%rsp" in line] == []
    wide = [line for line in vectors if line.startswith("vfmadd")]
    points = taken["tile_rows"] * taken["tile_columns"] * taken["vectors"]
    assert len(wide) >= points * (kernel - 1) // (
        16 if layout == "NCHW" else 1
    )  # at a border some kernel positions are left out
    assert [line for line in lines if line.startswith("vgather") or line.startswith("vscatter")] == []


@pytest.mark.parametrize("kernel, stride", [(5, 1), (5, 2), (7, 1)])
def test_wide_kernels_keep_the_weights_of_a_row_beside_the_sums(kernel, stride):
    _, lines = compiled("NHWC", 96, 28, kernel, stride, "zen4-server-8c")
    assert [line for line in lines if "(%rsp" in line and "%zmm" in line] == []
    wide = [line for line in lines if line.startswith("vfmadd") and "%zmm" in line]
    assert len(wide) >= 13 * kernel  # at a border some are left out
