"""TIR of a convolution for the accelerator: on-chip buffers, blocks assigned to engines."""

from __future__ import annotations

import re

import pytest
from tvm import te, topi

import tvm_tiling as tt

LOOPS_OF_SUMS = re.compile(r"for ([\w, ]+) in T\.grid\([\d, ]+\):\s+with T\.sblock\(\"sums\"\)")


def script(machine, width=14, channels=32, stride=1):
    x = te.placeholder((1, 14, width, channels), name="x", dtype="int8")
    w = te.placeholder((3, 3, channels, 24), name="w", dtype="int8")
    op = topi.nn.conv2d_nhwc(x, w, (stride, stride), (1, 1, 1, 1), 1, out_dtype="int32")
    return tt.tiling_schedule(op, target=machine).mod.script()


def engines(text):
    return re.findall(r'with T\.sblock\("(\w+)"\):(?:(?!with T\.sblock).)*?"vsim\.engine": "(\w+)"', text, re.S)


def test_the_matrix_algorithm_reads_the_image_in_place():
    text = script("vsim/vta")
    assert engines(text) == [("image", "load"), ("kernels", "load"), ("sums", "matrix"), ("store", "store")]
    assert 'image_on_chip = T.sblock_alloc_buffer((1, 1, 16, 16, 1, 32), "int8", scope="global.b")' in text
    assert "image_on_chip[v_n, v_d + v_kd, v_y + v_kh, v_x + v_kw, v_g, v_c]" in text
    loops = LOOPS_OF_SUMS.search(text)[1].split(", ")
    assert [loop[0] for loop in loops[-6:]] == ["o", "y", "x", "k", "k", "c"]


@pytest.mark.parametrize("stride", [1, 2])
def test_w_fold_says_how_channels_are_config_and_reads_folded_columns(stride):
    text = script("vsim/wfold16", width=35, channels=14, stride=stride)
    assert engines(text) == [("kernels", "load"), ("image", "load"), ("sums", "wfold"), ("store", "store")]
    own = re.search(r'"vsim\.block": (\d+), "vsim\.engine": "wfold", "vsim\.loops": 6, "vsim\.pci": (\d+)', text)
    x = tt.ConvWorkload(
        n=1, h=14, w=35, ci=14, co=24, kh=3, kw=3, stride=(stride, stride), padding=(1, 1, 1, 1), dtype="int8"
    )
    decision = tt.decide(x, tt.Hardware.load("wfold16"))
    assert (int(own[1]) * 16, int(own[2])) == (decision.co_block, decision.pci)
    assert ("v_x * 2 + (v_kw * 2 + v_c // 14)" in text) == (stride == 2)
