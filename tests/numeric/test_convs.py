"""Scheduled convolutions against NumPy: every layout, dimension, type and algorithm, at awkward sizes; exact on
integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import tvm
from convs import Conv, Source, arrays, blocked, topi_conv, topi_depthwise, topi_transposed
from hypothesis import given, settings
from hypothesis import strategies as st
from products import Guarded
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.errors import TilingError
from tvm_tiling.schedule import PackedOperator, this_cpu

SMALL = Conv(space=(7, 9), kernel=(3, 3), before=(1, 1), behind=(1, 1), n=1, ci=7, co=33)
# Winograd's transforms round; everything else here is exact for sums of small integers.
ROUNDED = {"winograd": 1e-3}


def computed(source: Source, inputs: list[np.ndarray], shape: tuple[int, ...], *, packed: bool, form: str | None):
    """Return (result, algorithm) of our kernel."""
    if packed:
        kernel = tt.packed_operator(source.out, algorithm=form)
        return result_of(kernel, inputs, shape, str(source.out.dtype)), kernel.tiling.form
    sch = tt.tiling_schedule(source.out, algorithm=form)
    kernel = tvm.compile(sch.mod, target=tt.llvm_target())["main"]
    return result_of(kernel, inputs, shape, str(source.out.dtype)), form


def result_of(kernel: Callable[..., None], inputs: list[np.ndarray], shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return what a compiled kernel stores; only the result may change."""
    operands = [Guarded(array.shape, array.dtype.name).fill(array) for array in inputs]
    result = Guarded(shape, dtype)
    first, weights, out = (operand.tensor for operand in (*operands, result))
    kernel(first, kernel.pack(weights) if isinstance(kernel, PackedOperator) else weights, out)
    assert all(operand.unchanged() for operand in operands)
    assert result.unchanged_around()
    return result.array.copy()


def check(conv: Conv, source: Source, *, packed: bool = True, form: str | None = None) -> str | None:
    inputs, want = arrays(conv, source)
    got, taken = computed(source, inputs, want.shape, packed=packed, form=form)
    tolerance = ROUNDED.get(taken or "", 1e-3 if not packed and form is None else 0.0)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * max(1.0, np.abs(want).max()))
    return taken


@pytest.mark.values
@pytest.mark.parametrize("ci", [1, 7, 31, 33])
@pytest.mark.parametrize("co", [1, 7, 31, 33, 127])
def test_channels_of_any_number(ci, co):
    conv = replace(SMALL, ci=ci, co=co)
    check(conv, topi_conv(conv, "NHWC", "HWIO"), form="direct")


@pytest.mark.values
@pytest.mark.parametrize("space", [(1, 1), (1, 7), (7, 1), (13, 31), (31, 5), (2, 33)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 7), (5, 2)])
def test_images_and_kernels_of_any_size(space, kernel):
    before = tuple(k // 2 for k in kernel)
    conv = replace(SMALL, space=space, kernel=kernel, before=before, behind=before, ci=17, co=40)
    check(conv, topi_conv(conv, "NHWC", "HWIO"), form="direct")


@pytest.mark.values
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("kernels", ["HWIO", "OIHW", "OHWI"])
@pytest.mark.parametrize("packed", [True, False])
def test_layouts(layout, kernels, packed):
    conv = replace(SMALL, n=2, space=(9, 19), ci=18, co=20, stride=(2, 1))
    check(conv, topi_conv(conv, layout, kernels), packed=packed)


@pytest.mark.values
@pytest.mark.parametrize(("block", "block_out"), [(4, 4), (8, 16), (16, 16), (16, 8)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_blocked_layouts(block, block_out, dtype):
    conv = replace(SMALL, ci=32, co=48, dtype=dtype)
    check(conv, blocked(conv, block, block_out))


@pytest.mark.values
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3), (3, 2)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize(("before", "behind"), [((0, 0), (0, 0)), ((2, 0), (0, 3)), ((1, 4), (3, 1))])
def test_strides_dilation_and_asymmetric_padding(stride, dilation, before, behind):
    conv = Conv(
        space=(9, 11), kernel=(2, 3), stride=stride, dilation=dilation, before=before, behind=behind, ci=5, co=18
    )
    check(conv, topi_conv(conv, "NHWC", "HWIO"), form="direct")


@pytest.mark.values
@pytest.mark.parametrize(
    "conv",
    [
        Conv(space=(28, 28), kernel=(5, 5), ci=1, co=6),
        Conv(space=(28, 28), kernel=(5, 5), stride=(2, 2), n=2, ci=1, co=18, dtype="float64"),
        Conv(space=(2, 9), kernel=(1, 5), ci=1, co=33),
        Conv(space=(1, 3), kernel=(1, 3), ci=1, co=3),
        Conv(space=(4, 1), kernel=(3, 1), ci=2, co=3),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_runs_of_taps_of_one_channel_are_read_in_place(conv, layout):
    check(conv, topi_conv(conv, layout, "HWIO" if layout == "NHWC" else "OIHW"), form="direct")


def test_a_border_along_the_depth_of_a_single_plane():
    conv = Conv(space=(1, 1, 1), kernel=(1, 1, 1), behind=(1, 0, 0), n=1, ci=1, co=1)
    check(conv, topi_conv(conv, "NDHWC", "DHWIO"))


@pytest.mark.values
@pytest.mark.parametrize("groups", [2, 4, 8])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_groups(groups, layout):
    conv = replace(SMALL, ci=24, co=40, groups=groups, stride=(1, 2))
    check(conv, topi_conv(conv, layout, "HWIO" if layout == "NHWC" else "OIHW"))


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_depthwise(multiplier, layout):
    conv = replace(SMALL, n=2, ci=19, co=19 * multiplier, groups=19)
    check(conv, topi_depthwise(conv, layout))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_one_and_three_dimensions(dtype):
    for conv, layout, kernels in (
        (Conv(space=(23,), kernel=(5,), stride=(2,), before=(3,), behind=(1,), ci=9, co=21), "NWC", "WIO"),
        (Conv(space=(23,), kernel=(3,), dilation=(2,), before=(2,), behind=(2,), ci=9, co=21), "NCW", "OIW"),
        (Conv(space=(4, 5, 7), kernel=(3, 2, 3), before=(1, 0, 1), behind=(1, 1, 1), ci=6, co=17), "NDHWC", "DHWIO"),
        (
            Conv(space=(5, 5, 6), kernel=(2, 3, 3), stride=(2, 1, 2), before=(0, 1, 1), behind=(1, 1, 0)),
            "NCDHW",
            "OIDHW",
        ),
    ):
        typed = replace(conv, dtype=dtype)
        check(typed, topi_conv(typed, layout, kernels))


@pytest.mark.values
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (4, 1)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_transposed(stride, kernel, dtype):
    conv = Conv(space=(5, 6), kernel=kernel, stride=stride, before=(1, 0), behind=(0, 0), ci=5, co=18, transposed=True)
    conv = replace(conv, more=tuple(s - 1 for s in stride), dtype=dtype)
    check(conv, topi_transposed(conv))


@pytest.mark.parametrize(
    "conv",
    [
        Conv(space=(1, 2, 1), kernel=(2, 1, 1), stride=(1, 2, 1), n=1, ci=2, co=1, transposed=True),
        Conv(space=(3, 3, 1), kernel=(1, 2, 1), stride=(2, 1, 1), n=2, ci=21, co=51, transposed=True),
        Conv(space=(3, 4, 5), kernel=(2, 2, 3), stride=(3, 2, 1), more=(2, 1, 0), n=2, ci=3, co=5, transposed=True),
        Conv(space=(1, 1, 1), kernel=(1, 1, 1), stride=(2, 1, 1), more=(1, 0, 0), n=1, ci=1, co=1, transposed=True),
    ],
    ids=["columns", "planes", "planes and more behind", "one more plane than there is input"],
)
def test_transposed_in_three_dimensions_with_points_that_no_tap_reaches(conv):
    check(conv, topi_transposed(conv))


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kernel", [(6,), (4,), (2, 3)])
@pytest.mark.parametrize("stride", [2, 3])
def test_transposed_whose_dilation_skips_points(dtype, kernel, stride):
    """Kernel positions at multiples of the stride leave whole residues of the output without any."""
    every = (stride,) * len(kernel)
    space = (6,) * len(kernel)
    conv = Conv(space=space, kernel=kernel, stride=every, dilation=every, ci=3, co=9, dtype=dtype, transposed=True)
    check(conv, topi_transposed(conv))


def test_channels_in_groups_without_an_axis_to_walk_along():
    x, w = te.placeholder((5, 12), name="x"), te.placeholder((16, 3), name="w")
    c = te.reduce_axis((0, 3), "c")
    op = te.compute((5, 16), lambda n, co: te.sum(x[n, (co // 4) * 3 + c] * w[co, c], c), "grouped")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((5, 12), (16, 3)))
    out = tvm.runtime.empty((5, 16), "float32")
    library = tvm.compile(tt.tiling_schedule(op).mod, target=tt.llvm_target())
    library["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    want = np.einsum("ngc,goc->ngo", a.reshape(5, 4, 3), b.reshape(4, 4, 3)).reshape(5, 16)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.values
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8"])
@pytest.mark.parametrize("ci", [3, 16])
def test_types(dtype, ci):
    conv = replace(SMALL, ci=ci, co=20, dtype=dtype)
    check(conv, topi_conv(conv, "NHWC", "HWIO"), form="direct")


@pytest.mark.pairs
@pytest.mark.parametrize(
    "form", ["direct", "gemm", "depthwise", "winograd", "stride_fold", "wfold", "planes", "grouped"]
)
@pytest.mark.parametrize(
    "conv",
    [
        replace(SMALL, ci=3, co=20, stride=(2, 2), before=(1, 0), behind=(0, 1)),
        replace(SMALL, kernel=(1, 1), before=(0, 0), behind=(0, 0)),
        replace(SMALL, ci=21, co=21, groups=21),
        replace(SMALL, ci=21, co=35),
        replace(SMALL, ci=21, co=35, dtype="int8"),
        replace(SMALL, ci=5, co=35, dtype="int8", stride=(1, 3)),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_any_admissible_algorithm_can_be_forced(form, conv, packed):
    """Unsupported ones give the reason in one sentence."""
    source = topi_conv(conv, "NHWC", "HWIO") if conv.groups == 1 else topi_depthwise(conv, "NHWC")
    workload = conv.workload("NHWC")
    candidates = {c.form: c for c in tt.decide(workload, this_cpu()).candidates}
    if candidates[form].predicted_seconds is None:
        with pytest.raises(TilingError) as refused:
            tt.tiling_schedule(source.out, algorithm=form)
        assert str(refused.value) == candidates[form].why
        return
    assert check(conv, source, packed=packed, form=form) == form


@pytest.mark.values
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "conv",
    [
        replace(SMALL, n=2, space=(13, 37), ci=6, co=20, groups=2),
        replace(SMALL, space=(19, 35), ci=3, co=7, stride=(2, 2), before=(1, 0), behind=(0, 3)),
        replace(SMALL, space=(9, 20), kernel=(2, 4), dilation=(2, 3), before=(2, 5), behind=(3, 1), ci=5, co=6),
        replace(SMALL, space=(1, 3), kernel=(1, 3), ci=4, co=1, stride=(1, 3)),
    ],
    ids=str,
)
def test_channels_first_with_lanes_along_columns(conv, packed):
    assert check(conv, topi_conv(conv, "NCHW", "OIHW"), packed=packed, form="planes") == "planes"


def test_weights_in_several_column_blocks():
    conv = replace(SMALL, space=(9, 14), kernel=(1, 2), before=(0, 1), behind=(0, 0), ci=160, co=450)
    assert check(conv, topi_conv(conv, "NHWC", "HWIO"), packed=True, form="direct") == "direct"


@pytest.mark.values
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "conv",
    [
        replace(SMALL, n=2, space=(7, 61), ci=40, co=40, groups=10),
        replace(SMALL, space=(11, 19), ci=24, co=48, groups=6, stride=(2, 2), before=(1, 0), behind=(0, 3)),
        replace(
            SMALL, space=(9, 20), kernel=(2, 4), dilation=(2, 3), before=(2, 5), behind=(3, 1), ci=9, co=12, groups=3
        ),
        replace(SMALL, space=(5, 6), ci=48, co=48, groups=3),
    ],
    ids=str,
)
def test_channels_of_several_groups_share_a_vector(conv, packed):
    assert check(conv, topi_conv(conv, "NHWC", "HWIO"), packed=packed, form="grouped") == "grouped"


@settings(max_examples=7, deadline=None)
@given(data=st.data())
def test_random_convolutions(data):
    draw = data.draw
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    pair = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(2))  # noqa: E731
    conv = Conv(
        space=pair(1, 20),
        kernel=pair(1, 5),
        stride=pair(1, 3),
        before=pair(0, 3),
        behind=pair(0, 3),
        dilation=pair(1, 2),
        n=draw(st.integers(1, 2)),
        ci=groups * draw(st.integers(1, 40)),
        co=groups * draw(st.integers(1, 70)),
        groups=groups,
        dtype=draw(st.sampled_from(["float32", "int8"])),
    )
    if not conv.possible:
        return
    layout, kernels = draw(st.sampled_from([("NHWC", "HWIO"), ("NCHW", "OIHW")]))
    check(conv, topi_conv(conv, layout, kernels), packed=draw(st.booleans()))


@pytest.mark.values
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("form", [None, "direct"])
def test_bias_scale_activation_and_residual_are_fused(layout, form):
    conv = replace(SMALL, ci=9, co=37)
    source = topi_conv(conv, layout, "HWIO")
    channels = source.out.shape[3 if layout == "NHWC" else 1]
    scale, bias = (te.placeholder((channels,), name=name) for name in ("scale", "bias"))
    residual = te.placeholder(source.out.shape, name="residual")

    def channel(*at):
        return at[3] if layout == "NHWC" else at[1]

    normed = te.compute(source.out.shape, lambda *at: source.out[at] * scale[channel(*at)] + bias[channel(*at)])
    out = topi.nn.relu(te.compute(source.out.shape, lambda *at: normed[at] + residual[at], "added"))
    inputs, plain = arrays(conv, source)
    rng = np.random.default_rng(3)
    more = [rng.integers(-4, 5, [int(s) for s in t.shape]).astype("float32") for t in (scale, bias, residual)]
    shape = (1, 1, 1, -1) if layout == "NHWC" else (1, -1, 1, 1)
    want = np.maximum(plain * more[0].reshape(shape) + more[1].reshape(shape) + more[2], 0)
    sch = tt.tiling_schedule(out, algorithm=form, winograd=False)
    assert len(sch.mod.functions) == 1
    by_name = dict(zip(("X", "W", "scale", "bias", "residual"), (*inputs, *more), strict=True))
    arguments = [tvm.runtime.tensor(by_name[p.name]) for p in sch.mod["main"].params[:-1]]
    result = tvm.runtime.empty(want.shape, "float32")
    tvm.compile(sch.mod, target=tt.llvm_target())["main"](*arguments, result)
    np.testing.assert_array_equal(result.numpy(), want)


def test_int8_with_requantisation():
    conv = replace(SMALL, ci=20, co=37, dtype="int8")
    source = topi_conv(conv, "NHWC", "HWIO")
    scale = te.placeholder((conv.co,), name="scale")

    def requantised(n, y, x, c):
        value = te.round(source.out[n, y, x, c].astype("float32") * scale[c])
        return te.max(te.min(value, te.const(127.0, "float32")), te.const(-128.0, "float32")).astype("int8")

    out = te.compute(source.out.shape, requantised, "requantised")
    inputs, sums = arrays(conv, source)
    factors = np.random.default_rng(4).uniform(0.01, 0.1, conv.co).astype("float32")
    want = np.clip(np.round(sums.astype("float32") * factors), -128, 127).astype("int8")
    kernel = tt.packed_operator(out)
    tensors = dict(zip(("X", "W", "scale"), (*inputs, factors), strict=True))
    x, w, s = (tvm.runtime.tensor(tensors[name]) for name in ("X", "W", "scale"))
    result = tvm.runtime.empty(want.shape, "int8")
    order = [p.name for p in tt.tiling_schedule(out).mod["main"].params[:-1]]
    by_name = {"X": x, "W": kernel.pack(w), "scale": s}
    kernel(*(by_name[name] for name in order), result)
    np.testing.assert_array_equal(result.numpy(), want)
