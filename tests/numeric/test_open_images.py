"""Convolutions over images with dynamic height and width, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi

import tvm_tiling as tt
from tvm_tiling.decide.conv.open_winograd import OpenConvTiling
from tvm_tiling.schedule import Options, hardware_of, llvm_target, schedule_for_weights

SIZES = ((1, 1), (1, 2), (2, 7), (3, 3), (4, 4), (5, 9), (8, 8), (13, 6), (33, 1), (31, 40))


def layer(ci, co, kernel=3, border=1, stride=1, dilation=1, images=1, width=None):
    """relu(conv(x) + bias), channels last, over images of dynamic height and, without a given width, dynamic width."""
    n = te.var("n", "int64") if images is None else images
    h, w = te.var("h", "int64"), te.var("w", "int64") if width is None else width
    x = te.placeholder((n, h, w, ci), name="x")
    k = te.placeholder((kernel, kernel, ci, co), name="k")
    bias = te.placeholder((co,), name="bias")
    y = topi.nn.conv2d_nhwc(x, k, stride, [border] * 4, dilation)
    y = te.compute(y.shape, lambda *at: te.max(y(*at) + bias[at[-1]], tirx.const(0, "float32")))
    return te.create_prim_func([x, k, bias, y])


def computed(x, k, bias, border, stride=1, dilation=1):
    x = np.pad(x.astype("float64"), ((0, 0), (border, border), (border, border), (0, 0)))
    span = (k.shape[0] - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(x, (span, span), (1, 2))
    windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    return np.maximum(np.einsum("nyxcij,ijco->nyxo", windows, k) + bias, 0)


def check(func, shape, sizes, border=1, stride=1, dilation=1, images=(1,), prepacked=True):
    """The schedule of a layer, run at all sizes."""
    rng = np.random.default_rng(0)
    scheduled, _ = schedule_for_weights(func, "main", hardware_of("llvm"), Options(), lambda _: prepacked)
    functions = {"main": scheduled.main}
    if scheduled.pack is not None:
        functions["pack"] = scheduled.pack.with_attr("global_symbol", "pack")
    library = tvm.compile(tvm.IRModule(functions), target=llvm_target(hardware_of("llvm")))
    k = rng.uniform(-1, 1, shape).astype("float32")
    bias = rng.uniform(-1, 1, shape[3]).astype("float32")
    weights = tvm.runtime.tensor(k)
    if scheduled.pack is not None:
        packed = tvm.runtime.tensor(np.zeros(scheduled.packed_shape, "float32"))
        library["pack"](weights, packed)
        weights = packed
    for n in images:
        for h, w in sizes:
            x = rng.uniform(-1, 1, (n, h, w, shape[2])).astype("float32")
            wanted = computed(x, k, bias, border, stride, dilation)
            out = tvm.runtime.tensor(np.full(wanted.shape, np.nan, "float32"))
            library["main"](tvm.runtime.tensor(x), weights, tvm.runtime.tensor(bias), out)
            np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    return scheduled


@pytest.mark.parametrize(("ci", "co"), [(32, 48), (20, 36)])
def test_every_size_by_winograd(ci, co):
    scheduled = check(layer(ci, co), (3, 3, ci, co), SIZES)
    assert isinstance(scheduled.tiling, OpenConvTiling) and scheduled.tiling.form == "winograd"
    assert scheduled.pack is not None


@pytest.mark.parametrize(("dilation", "border"), [(2, 2), (3, 1)])
def test_dilated_layers_of_every_size_by_winograd(dilation, border):
    sizes = [(h + 6, w + 6) for h, w in SIZES]
    func = layer(32, 48, border=border, dilation=dilation)
    scheduled = check(func, (3, 3, 32, 48), sizes, border=border, dilation=dilation)
    assert scheduled.tiling.form == "winograd"


def test_any_number_of_images():
    scheduled = check(layer(32, 32, images=None), (3, 3, 32, 32), SIZES[:6], images=(1, 3))
    assert scheduled.tiling.form == "winograd"


def test_weights_that_the_run_transforms():
    scheduled = check(layer(32, 32, border=0), (3, 3, 32, 32), SIZES[3:6], border=0, prepacked=False)
    assert scheduled.tiling.form == "winograd" and scheduled.pack is None


def test_open_height_alone():
    assert check(layer(32, 32, width=9), (3, 3, 32, 32), [(1, 9), (6, 9), (17, 9)]).tiling.form == "winograd"


@pytest.mark.parametrize(
    ("ci", "co", "options"),
    [
        (3, 16, {"kernel": 7, "border": 3, "stride": 2}),
        (5, 16, {"kernel": 3, "border": 2, "stride": 3}),
        (4, 20, {"kernel": 3, "border": 2, "dilation": 2}),
    ],
)
def test_windows_of_few_channels_are_copied_by_rows_of_taps(ci, co, options):
    kernel, given = options.pop("kernel"), options
    func = layer(ci, co, kernel, **given)
    assert check(func, (kernel, kernel, ci, co), SIZES, **given).tiling.form == "open"


@pytest.mark.parametrize(("channels", "kernel", "stride"), [(24, 3, 1), (17, 5, 2)])
def test_depthwise_convolutions_of_dynamic_size_are_scheduled_as_in_models(channels, kernel, stride):
    high, wide = te.var("h", "int64"), te.var("w", "int64")
    x = te.placeholder((1, high, wide, channels), name="x")
    k = te.placeholder((kernel, kernel, channels, 1), name="k")
    func = te.create_prim_func([x, k, topi.nn.depthwise_conv2d_nhwc(x, k, stride, kernel // 2, 1)])
    schedule = tt.tiling_schedule(func)
    assert "gemm" not in str(schedule.mod["main"].attrs["tvm_tiling.decision"])
    library = tvm.compile(schedule.mod, target=llvm_target(hardware_of("llvm")))
    rng = np.random.default_rng(0)
    kernels = rng.uniform(-1, 1, (kernel, kernel, channels, 1)).astype("float32")
    for h, w in SIZES:
        image = rng.uniform(-1, 1, (1, h, w, channels)).astype("float32")
        padded = np.pad(image.astype("float64"), ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
        wanted = np.einsum("nyxcij,ijc->nyxc", windows, kernels[..., 0])
        out = tvm.runtime.tensor(np.full(wanted.shape, np.nan, "float32"))
        library["main"](tvm.runtime.tensor(image), tvm.runtime.tensor(kernels), out)
        np.testing.assert_allclose(out.numpy(), wanted, atol=1e-5)


def test_a_requested_tile_of_a_depthwise_convolution_of_dynamic_size_is_a_matrix_multiplication():
    high = te.var("h", "int64")
    x, k = te.placeholder((1, high, 8, 16), name="x"), te.placeholder((3, 3, 16, 1), name="k")
    func = te.create_prim_func([x, k, topi.nn.depthwise_conv2d_nhwc(x, k, 1, 1, 1)])
    schedule = tt.tiling_schedule(func, microkernel=(4, 1))
    assert "gemm" in str(schedule.mod["main"].attrs["tvm_tiling.decision"])


def convolution(groups):
    """A depthwise or grouped convolution of dynamic image sizes."""
    x = te.placeholder((1, te.var("h", "int64"), te.var("w", "int64"), 32), name="x")
    if groups == 32:
        k = te.placeholder((3, 3, 32, 1), name="k")
        return te.create_prim_func([x, k, topi.nn.depthwise_conv2d_nhwc(x, k, 1, 1, 1)])
    k = te.placeholder((3, 3, 32 // groups, 32), name="k")
    return te.create_prim_func([x, k, topi.nn.group_conv2d_nhwc(x, k, 1, [1] * 4, 1, groups, "float32")])


def product():
    x, y = te.placeholder((te.var("m", "int64"), 64), name="x"), te.placeholder((64, 96), name="y")
    k = te.reduce_axis((0, 64))
    return te.create_prim_func([x, y, te.compute((x.shape[0], 96), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k))])


@pytest.mark.parametrize("func", [layer(32, 48), convolution(8), product()], ids=["winograd", "grouped", "product"])
def test_a_recorded_decision_is_taken(func):
    module = tt.tiling_schedule(func).mod
    again = tt.tiling_schedule(func, decision=str(module["main"].attrs["tvm_tiling.decision"])).mod
    tvm.ir.assert_structural_equal(again, module)


@pytest.mark.parametrize(
    ("func", "expected"),
    [(layer(32, 48), "OpenConv"), (convolution(8), "OpenConv"), (convolution(32), "OpenGemm"), (product(), "OpenGemm")],
    ids=["winograd", "grouped", "depthwise", "product"],
)
def test_a_decision_of_another_operator_is_refused(func, expected):
    decision = tt.decide(tt.GemmWorkload(m=64, n=64, k=64))
    with pytest.raises(tt.HardwareError, match=f"decision: GemmTiling for .*; expected {expected}Tiling"):
        tt.tiling_schedule(func, decision=decision)


def test_a_decision_of_another_algorithm_is_refused():
    recorded = str(tt.tiling_schedule(convolution(8)).mod["main"].attrs["tvm_tiling.decision"])
    with pytest.raises(tt.HardwareError, match="form = 'grouped' does not match a conv of this size"):
        tt.tiling_schedule(layer(32, 48), decision=recorded)
