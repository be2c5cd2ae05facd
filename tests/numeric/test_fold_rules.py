"""Stride-fold and W-fold as transformations of plain schedules: exact, recorded in the trace, folded extents in the
text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
from convs import Conv, Source, arrays, run, topi_conv, topi_depthwise
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tvm import relax, s_tir, te, tirx, topi
from tvm.s_tir import meta_schedule

from tvm_tiling import TilingError, UnsupportedOperator
from tvm_tiling.decide.conv.stride_fold import StrideFold
from tvm_tiling.lowering.fold_moves import fold_strides, fold_width
from tvm_tiling.match import prim_func_of
from tvm_tiling.schedules.fold_rules import FoldStrides, FoldWidth

STEM = Conv(space=(8, 9), kernel=(3, 3), stride=(2, 2), before=(1, 1), behind=(1, 1), n=1, ci=3, co=5)
KERNELS = ("OHWI", "HWIO")


def source_of(conv: Conv, kernels: str = "OHWI") -> Source:
    return topi_conv(conv, "NHWC", kernels)


def convolution(sch: s_tir.Schedule) -> s_tir.schedule.SBlockRV:
    """Return the reduction block."""
    root = sch.get_sblock("root")
    return next(b for b in sch.get_child_blocks(root) if sch.get(b).init is not None)


def same(conv: Conv, source: Source, sch: s_tir.Schedule) -> None:
    inputs, result = arrays(conv, source)
    got = run(sch.mod["main"], inputs, result.shape, str(source.out.dtype))
    np.testing.assert_array_equal(got.astype(result.dtype), result)


def replays(source: Source, sch: s_tir.Schedule) -> None:
    again = s_tir.Schedule(prim_func_of(source.out))
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


def buffers(sch: s_tir.Schedule) -> list[tuple[int, ...]]:
    """Return the shapes of the schedule's allocations."""
    root = sch.get(sch.get_sblock("root"))
    return [tuple(int(e) for e in buffer.shape) for buffer in root.alloc_buffers]


def extents(sch: s_tir.Schedule) -> list[int]:
    return [int(v.dom.extent) for v in sch.get(convolution(sch)).iter_vars]


@pytest.mark.parametrize("kernels", KERNELS)
def test_stride_fold_of_a_stem(kernels):
    source = source_of(STEM, kernels)
    sch = s_tir.Schedule(prim_func_of(source.out))
    fold_strides(sch, convolution(sch))
    # One copy of the image: 11 padded columns are 6 folded ones of 6 channels; 3 kernel columns are 2.
    assert buffers(sch)[0] == (1, 10, 6, 6) and len(buffers(sch)) == 2
    assert sorted(buffers(sch)[1]) == sorted((5, 3, 2, 6))
    assert extents(sch) == [1, 4, 5, 5, 3, 2, 6]
    assert "1, 10, 6, 6" in sch.mod.script()
    same(STEM, source, sch)
    replays(source, sch)


def test_an_image_without_border_is_copied_once():
    conv = Conv(space=(7, 12), kernel=(2, 4), stride=(1, 4), n=1, ci=2, co=3)
    source = source_of(conv)
    sch = s_tir.Schedule(prim_func_of(source.out))
    fold_strides(sch, convolution(sch))
    assert buffers(sch) == [(1, 7, 3, 8), (3, 2, 1, 8)]
    same(conv, source, sch)


def test_folded_weights_are_expected_as_stride_fold_lays_them():
    source = source_of(STEM)
    sch = s_tir.Schedule(prim_func_of(source.out))
    fold_strides(sch, convolution(sch), weights="folded")
    assert buffers(sch) == [(1, 10, 6, 6)]
    assert [int(e) for e in sch.mod["main"].params[1].shape] == [5, 3, 2, 6]
    (x, w), result = arrays(STEM, source)
    # The fold of the padded image itself: no zeros in front of the kernel.
    fold = StrideFold(replace(STEM.workload("NHWC"), h=10, w=11, padding=(0, 0, 0, 0)))
    got = run(sch.mod["main"], [x, fold.fold_weights(w)], result.shape, "float32")
    np.testing.assert_array_equal(got, result)


def test_w_fold_of_a_stem():
    conv = replace(STEM, space=(8, 30), ci=4)
    source = source_of(conv)
    sch = s_tir.Schedule(prim_func_of(source.out))
    block = convolution(sch)
    fold_strides(sch, block)
    fold_width(sch, block, pci=8, ws=4)
    # 15 output columns are 4 rows of 4 points, 8 folded channels one block; the surplus point is cropped.
    assert (1, 10, 5, 1, 32) in buffers(sch)
    assert extents(sch) == [1, 4, 4, 4, 5, 3, 2, 1, 8]
    same(conv, source, sch)
    replays(source, sch)


def test_epilogues_stay():
    conv = replace(STEM, stride=(1, 1))
    source = source_of(conv)
    rectified = topi.nn.relu(source.out)
    sch = s_tir.Schedule(te.create_prim_func([source.x, source.w, rectified]))
    fold_width(sch, convolution(sch), pci=2, ws=4)
    inputs, result = arrays(conv, source)
    np.testing.assert_array_equal(run(sch.mod["main"], inputs, result.shape, "float32"), np.maximum(result, 0))


@pytest.mark.parametrize("kernels", KERNELS)
def test_of_relax(kernels):
    builder = relax.BlockBuilder()
    shape = {"OHWI": (5, 3, 3, 3), "HWIO": (3, 3, 3, 5)}[kernels]
    x, w = (relax.Var(name, relax.TensorType(s, "float32")) for name, s in (("x", (1, 8, 9, 3)), ("w", shape)))
    with builder.function("main", [x, w]):
        call = relax.op.nn.conv2d(x, w, strides=2, padding=1, data_layout="NHWC", kernel_layout=kernels)
        builder.emit_func_output(builder.emit(call))
    module = relax.transform.LegalizeOps()(builder.get())
    sch = s_tir.Schedule(next(f for f in module.functions.values() if isinstance(f, tirx.PrimFunc)))
    block = convolution(sch)
    fold_strides(sch, block)
    fold_width(sch, block, pci=8, ws=2)
    same(STEM, source_of(STEM, kernels), sch)


@st.composite
def convs(draw) -> Conv:
    def each(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=2, max_size=2)))

    conv = Conv(
        space=each(1, 14),
        kernel=each(1, 7),
        stride=each(1, 4),
        before=each(0, 4),
        behind=each(0, 4),
        n=draw(st.integers(1, 2)),
        ci=draw(st.integers(1, 9)),
        co=draw(st.integers(1, 4)),
        dtype=draw(st.sampled_from(["float32", "int8"])),
    )
    assume(conv.possible)
    return conv


@given(conv=convs(), kernels=st.sampled_from(KERNELS), pci=st.sampled_from([1, 2, 3, 4, 8]), ws=st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_any_convolution(conv, kernels, pci, ws):
    source = source_of(conv, kernels)
    sch = s_tir.Schedule(prim_func_of(source.out))
    block = convolution(sch)
    fold_strides(sch, block)
    same(conv, source, sch)
    try:
        fold_width(sch, block, pci, ws)
    except UnsupportedOperator as error:
        assert "columns" in str(error)
        return
    same(conv, source, sch)
    replays(source, sch)


def test_rule_adds_the_folded_space():
    source = source_of(STEM)
    sch = s_tir.Schedule(prim_func_of(source.out))
    for rule, shape in ((FoldStrides(), (1, 10, 6, 6)), (FoldWidth(row=8), (1, 10, 3, 3, 8))):
        plain, folded = rule.apply(sch, convolution(sch))
        assert plain.same_as(sch) and shape in buffers(folded)
        same(STEM, source, folded)
        replays(source, folded)


def test_rules_leave_what_they_do_not_serve():
    unfolded = source_of(replace(STEM, stride=(2, 1)))
    sch = s_tir.Schedule(prim_func_of(unfolded.out))
    assert len(FoldStrides().apply(sch, convolution(sch))) == 1
    a, b = te.placeholder((4, 5)), te.placeholder((5, 6))
    for op in (
        topi.nn.matmul(a, b),
        topi_depthwise(replace(STEM, ci=4, co=4, groups=4), "NHWC").out,
        topi_conv(STEM, "NCHW", "OIHW").out,
        source_of(replace(STEM, dilation=(1, 2))).out,
    ):
        sch = s_tir.Schedule(prim_func_of(op))
        assert len(FoldStrides().apply(sch, convolution(sch))) == 1


def test_refusals():
    def refused(conv: Conv, reason: str, fold=fold_strides, **arguments) -> None:
        sch = s_tir.Schedule(prim_func_of(source_of(conv).out))
        with pytest.raises(UnsupportedOperator, match=reason):
            fold(sch, convolution(sch), **arguments)

    refused(replace(STEM, dilation=(1, 2)), "dilated by 2")
    refused(STEM, "stride 2 along W", fold_width, pci=4, ws=2)
    refused(replace(STEM, stride=(1, 1)), "ws from 1 to the row's 11 columns", fold_width, pci=4, ws=12)
    refused(STEM, "expected 'plain', 'folded'", weights="packed")
    refused(replace(STEM, groups=3, co=6), "NHWC images in one group")
    assert issubclass(UnsupportedOperator, TilingError)


@pytest.mark.slow
def test_in_a_space_of_metaschedule():
    source = source_of(STEM)
    module = tvm.IRModule({"main": prim_func_of(source.out).with_attr("global_symbol", "main")})
    tiles = meta_schedule.schedule_rule.MultiLevelTiling(
        structure="SSRSRS", tile_binds=None, max_innermost_factor=16, vector_load_lens=None, reuse_read=None
    )
    context = meta_schedule.TuneContext(
        mod=module,
        target=tvm.target.Target({"kind": "llvm", "num-cores": 2}),
        space_generator=meta_schedule.space_generator.PostOrderApply(
            sch_rules=[FoldStrides(), tiles], postprocs=[], mutator_probs={}
        ),
        task_name="stem",
    )
    space = context.generate_design_space()
    assert [(1, 10, 6, 6) in buffers(sch) for sch in space] == [False, True]
    for sch in space:
        assert "SSRSRS" in sch.mod.script()
        again = s_tir.Schedule(module)
        sch.trace.apply_to_schedule(again, remove_postproc=True)
        same(STEM, source, again)
