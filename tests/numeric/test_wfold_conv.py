"""W-fold on the CPU against NumPy: exact on integers, at awkward sizes, for every granularity; folded extents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from convs import Conv, arrays, blocked, topi_conv
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from products import Guarded, native
from test_convs import check
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.decide.fold.cpu_wfold import decide_wfold_cpu
from tvm_tiling.decide.fold.folded_rows import FoldedRows
from tvm_tiling.decide.gemm.dot_engine import dot_engine
from tvm_tiling.lowering.prim_func import write_packed
from tvm_tiling.match import match_conv, prim_func_of
from tvm_tiling.schedule import this_cpu
from tvm_tiling.schedules.conv_wfold import WFoldEmitter

STEM = Conv(space=(9, 33), kernel=(3, 3), stride=(2, 2), before=(1, 1), behind=(1, 1), n=1, ci=3, co=7)
LAYOUTS = {"NHWC": "HWIO", "NCHW": "OIHW"}


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("co", [1, 3, 8, 31, 33])
@pytest.mark.parametrize("ci", [1, 3, 7, 31, 33])
def test_channels_of_any_number(ci, co, layout):
    conv = replace(STEM, ci=ci, co=co)
    check(conv, topi_conv(conv, layout, LAYOUTS[layout]), form="wfold")


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("space", [(1, 1), (1, 7), (7, 1), (31, 5), (2, 33)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 7), (5, 2)])
def test_images_and_kernels_of_any_size(space, kernel, dtype):
    border = tuple(k // 2 for k in kernel)
    conv = replace(STEM, space=space, kernel=kernel, stride=(1, 1), before=border, behind=border, dtype=dtype)
    check(conv, topi_conv(conv, "NHWC", "HWIO"), form="wfold")


@pytest.mark.values
@pytest.mark.parametrize("ws", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("channels", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_granularity_and_tile(ws, channels, dtype, layout):
    check_tile(ws, channels, dtype, layout, this_cpu().cpu)


@pytest.mark.values
@pytest.mark.parametrize("ws", [1, 2, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_channels_than_a_vector_holds(ws, layout):
    check_tile(ws, 8, "float32", layout, native(vector_bits=128).cpu)


def check_tile(ws, channels, dtype, layout, cpu):
    conv = replace(STEM, dtype=dtype)
    source = topi_conv(conv, layout, LAYOUTS[layout])
    program = match_conv(prim_func_of(source.out))
    found = decide_wfold_cpu(program.workload, cpu, input_run=1, output_run=1, prepacked=True)
    if found.lanes < ws:
        pytest.skip(f"vectors of {found.lanes} lanes")
    order = "mn" if ws in (2, 8) else "nm"
    shares = dict(threads_rows=1 + (ws > 4), threads_columns=1)
    tiling = replace(
        found, ws=ws, pci=64 // ws, columns=channels, tile_columns=2 * ws, inner_order=order, keep_rows=2, **shares
    )
    engine = dot_engine(program.workload, cpu)
    emitter = WFoldEmitter(program, tiling, engine)
    scheduled = write_packed(program, tiling, program.w, emitter, engine)
    module = tvm.compile(tvm.IRModule({"main": scheduled.main, "main_pack": scheduled.pack}), target=tt.llvm_target())
    (x, w), want = arrays(conv, source)
    image, kernels = (Guarded(a.shape, a.dtype.name).fill(a) for a in (x, w))
    packed, out = Guarded(scheduled.packed_shape, engine.operand), Guarded(want.shape, str(source.out.dtype))
    module["main_pack"](kernels.tensor, packed.tensor)
    module["main"](image.tensor, packed.tensor, out.tensor)
    np.testing.assert_array_equal(out.array, want)
    assert out.unchanged_around() and packed.unchanged_around() and image.unchanged()


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8"])
def test_types(dtype):
    conv = replace(STEM, dtype=dtype)
    check(conv, topi_conv(conv, "NHWC", "HWIO"), form="wfold")


def test_blocked_channels():
    conv = replace(STEM, ci=16, co=8)
    check(conv, blocked(conv, 8, 4), form="wfold")


def test_weights_packed_while_it_runs():
    for dtype in ("float32", "int8"):
        conv = replace(STEM, dtype=dtype, co=9)
        check(conv, topi_conv(conv, "NHWC", "HWIO"), packed=False, form="wfold")


def test_what_is_fused_behind():
    source = topi_conv(STEM, "NHWC", "HWIO")
    bias = te.placeholder((STEM.co,), "float32", "bias")
    out = topi.nn.relu(topi.add(source.out, bias))
    inputs, want = arrays(STEM, source)
    added = np.arange(STEM.co, dtype="float32") - 3
    func = te.create_prim_func([source.x, source.w, bias, out])
    sch = tt.tiling_schedule(func, algorithm="wfold")
    result = tvm.runtime.empty(want.shape, "float32")
    tensors = [tvm.runtime.tensor(a) for a in (*inputs, added)]
    tvm.compile(sch.mod, target=tt.llvm_target())["main"](*tensors, result)
    np.testing.assert_array_equal(result.numpy(), np.maximum(want + added, 0))


def test_folded_extents_are_shown():
    sch = tt.tiling_schedule(topi_conv(STEM, "NHWC", "HWIO").out, algorithm="wfold", weights="packed")
    found = decide_wfold_cpu(STEM.workload("NHWC"), this_cpu().cpu, input_run=3, output_run=7, prepacked=True)
    rows = FoldedRows.of(STEM.workload("NHWC"), 1, found.lanes, found.ws)
    text = sch.mod["main"].script()
    # A band contains rows of ws neighbours; the weights such a row per kernel position, block and channel.
    assert f"{rows.columns // rows.ws}, {rows.ws * rows.pci})" in text
    assert f"3, 2, {rows.bci}, {found.columns}, {rows.ws * rows.pci})" in text


@st.composite
def convs(draw) -> Conv:
    def each(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=2, max_size=2)))

    conv = Conv(
        space=(draw(st.integers(1, 8)), draw(st.integers(1, 40))),
        kernel=each(1, 7),
        stride=each(1, 4),
        before=each(0, 4),
        behind=each(0, 4),
        dilation=each(1, 2),
        n=draw(st.integers(1, 2)),
        ci=draw(st.integers(1, 9)),
        co=draw(st.integers(1, 9)),
        dtype=draw(st.sampled_from(["float32", "int8"])),
    )
    assume(conv.possible)
    return conv


@given(conv=convs(), layout=st.sampled_from(sorted(LAYOUTS)))
@settings(max_examples=10, deadline=None)
def test_any_convolution(conv, layout):
    check(conv, topi_conv(conv, layout, LAYOUTS[layout]), form="wfold")
