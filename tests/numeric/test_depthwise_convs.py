"""Depthwise convolutions against NumPy at awkward sizes, in every layout; exact on small integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convs import Conv, Source, arrays, blocked, topi_conv, topi_depthwise, topi_transposed
from test_convs import check, computed, result_of
from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.hardware.dot_instructions import fastest
from tvm_tiling.schedule import this_cpu

LAYOUTS = ["NHWC", "NCHW"]


def depthwise(channels: int, space: tuple[int, ...], kernel: tuple[int, ...], **more: object) -> Conv:
    """A depthwise convolution with a border of half the kernel by default."""
    times = int(more.pop("times", 1))
    before = tuple(k // 2 for k in kernel)
    known = {"before": before, "behind": before, "n": 1, **more}
    return Conv(space=space, kernel=kernel, ci=channels, co=channels * times, groups=channels, **known)


def in_layout(conv: Conv, layout: str) -> Source:
    weights = "HWIO" if layout == "NHWC" else "OIHW"
    return topi_conv(conv, layout, weights)


def exact(conv: Conv, source: Source, *, packed: bool = True) -> None:
    assert conv.possible
    assert check(conv, source, packed=packed, form="depthwise") in ("depthwise", None if packed else "depthwise")


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 2, 7, 16, 31, 33, 100])
def test_channels_of_any_number(channels, layout):
    conv = depthwise(channels, (7, 9), (3, 3))
    exact(conv, in_layout(conv, layout))


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("space", [(1, 1), (1, 9), (9, 1), (2, 3), (5, 8), (13, 31), (31, 37)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (7, 7), (1, 6), (4, 1)])
def test_images_and_kernels_of_any_size(space, kernel, layout):
    conv = depthwise(19, space, kernel)
    exact(conv, in_layout(conv, layout))


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stride", [(1, 2), (2, 1), (2, 2), (3, 3), (4, 5)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3), (5, 4)])
def test_strides_and_dilations(stride, dilation, layout):
    conv = depthwise(18, (23, 41), (3, 3), stride=stride, dilation=dilation, before=(2, 3), behind=(1, 0))
    exact(conv, in_layout(conv, layout))


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("border", [((0, 0), (0, 0)), ((2, 0), (0, 1)), ((0, 5), (4, 0)), ((6, 7), (8, 9))])
def test_borders_of_any_width(border, layout):
    before, behind = border
    conv = depthwise(17, (7, 19), (4, 5), before=before, behind=behind, n=2)
    exact(conv, in_layout(conv, layout))


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8"])
def test_types(dtype, layout):
    conv = depthwise(37, (9, 11), (3, 3), stride=(1, 2), dtype=dtype)
    exact(conv, in_layout(conv, layout))


LARGER = [pytest.param(kernel, marks=pytest.mark.slow) for kernel in ((5, 5), (3, 8))]


@pytest.mark.values
@pytest.mark.parametrize("kernel", [(3, 3), (1, 2), (2, 4), *LARGER])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("channels", [16, 40, 67])
def test_bytes_without_borders_multiply_taps_at_once(kernel, stride, channels):
    conv = depthwise(channels, (13, 22), kernel, stride=stride, before=(0, 0), behind=(0, 0), n=2, dtype="int8")
    source = in_layout(conv, "NHWC")
    assert conv.possible
    (x, weights), want = arrays(conv, source)
    ends = [np.where(array < 0, -128, 127).astype(array.dtype) for array in (x, weights)]
    shape = (2, *conv.points, channels)
    packed = tt.packed_operator(source.out, algorithm="depthwise")
    np.testing.assert_array_equal(result_of(packed, [x, weights], shape, "int32"), want)
    plain, _ = computed(source, ends, shape, packed=False, form="depthwise")
    np.testing.assert_array_equal(result_of(packed, ends, shape, "int32"), plain)
    dots = fastest(this_cpu().cpu, "int8", "int8", "int32").group == 4
    assert packed.tiling.taps_at_once == (4 if dots else None)


def test_bytes_at_the_ends_of_their_range():
    conv = depthwise(33, (5, 6), (3, 3), dtype="int8")
    source = in_layout(conv, "NHWC")
    inputs, _ = arrays(conv, source)
    inputs = [np.full_like(array, -128) for array in inputs]
    got, _ = computed(source, inputs, (1, 5, 6, 33), packed=True, form="depthwise")
    assert got.max() == 9 * 128 * 128
    assert got.min() == 4 * 128 * 128


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels, times", [(3, 2), (16, 2), (20, 3), (1, 5)])
def test_several_outputs_of_a_channel(channels, times, layout):
    conv = depthwise(channels, (6, 7), (3, 3), stride=(1, 2), times=times)
    exact(conv, topi_depthwise(conv, layout))


@pytest.mark.values
@pytest.mark.parametrize("channels, block", [(32, 4), (48, 8), (48, 16), (64, 32)])
@pytest.mark.parametrize("stride", [1, 2])
def test_blocks_of_channels(channels, block, stride):
    conv = depthwise(channels, (7, 10), (3, 3), stride=(stride, stride))
    exact(conv, blocked(conv, block, block))


@pytest.mark.values
@pytest.mark.parametrize("layout, weights", [("NWC", "WIO"), ("NCW", "OIW")])
@pytest.mark.parametrize("length, kernel", [(1, 3), (50, 5), (301, 3), (90, 31)])
def test_one_dimension(length, kernel, layout, weights):
    conv = depthwise(9, (length,), (kernel,))
    exact(conv, topi_conv(conv, layout, weights))


def test_kernels_wider_than_are_unrolled():
    conv = depthwise(9, (90,), (41,))
    exact(conv, topi_conv(conv, "NWC", "WIO"))


@pytest.mark.parametrize("layout, weights", [("NDHWC", "DHWIO"), ("NCDHW", "OIDHW")])
@pytest.mark.parametrize("stride", [(1, 1, 1), (2, 1, 2)])
def test_three_dimensions(layout, weights, stride):
    conv = depthwise(18, (4, 5, 6), (3, 3, 2), stride=stride, behind=(0, 1, 1))
    exact(conv, topi_conv(conv, layout, weights))


@pytest.mark.parametrize("stride, kernel", [(1, 3), (2, 3), (2, 4), (3, 2)])
def test_transposed(stride, kernel):
    conv = depthwise(
        6, (5, 7), (kernel, kernel), stride=(stride, stride), before=(1, 1), behind=(0, 1), transposed=True
    )
    exact(conv, topi_transposed(conv))


@pytest.mark.values
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [1, 7, 33, 48])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_weights_that_come_with_each_call(channels, dtype, layout):
    conv = depthwise(channels, (9, 10), (3, 3), dtype=dtype)
    exact(conv, in_layout(conv, layout), packed=False)


@pytest.mark.parametrize("layout, axis", [("NHWC", 3), ("NCHW", 1)])
def test_bias_and_activation_are_fused(layout, axis):
    conv = depthwise(33, (8, 9), (3, 3))
    source = in_layout(conv, layout)
    bias = te.placeholder((33,), "float32", "bias")
    out = te.compute(
        source.out.shape, lambda *i: te.max(source.out(*i) + bias[i[axis]], te.const(0, "float32")), "relu"
    )
    inputs, want = arrays(conv, source)
    ours = np.arange(-16, 17, dtype=np.float32)
    shape = [1] * 4
    shape[axis] = 33
    got, form = computed3(replace(source, out=out), bias, [*inputs, ours], want.shape)
    assert form == "depthwise"
    np.testing.assert_array_equal(got, np.maximum(want + ours.reshape(shape), 0))


def computed3(source: Source, bias: te.Tensor, inputs: list[np.ndarray], shape: tuple[int, ...]):
    """Return (result, algorithm) of a kernel that takes a bias after the weights."""
    import tvm

    import tvm_tiling as tt

    kernel = tt.packed_operator(te.create_prim_func([source.x, source.w, bias, source.out]), algorithm="depthwise")
    x, w, b = (tvm.runtime.tensor(array) for array in inputs)
    out = tvm.runtime.empty(shape, "float32")
    kernel(x, kernel.pack(w), b, out)
    return out.numpy(), kernel.tiling.form


def test_an_input_that_is_computed_is_read_in_the_order_of_its_layout():
    conv = depthwise(20, (6, 7), (3, 3))
    x = te.placeholder((1, 6, 7, 20), "float32", "X")
    doubled = te.compute(x.shape, lambda *i: x(*i) * te.const(2, "float32"), "doubled")
    w = te.placeholder((3, 3, 1, 20), "float32", "W")
    out = topi.nn.conv(doubled, w, (1, 1), conv.padding, (1, 1), 20, "NHWC", "HWIO")
    source = replace(in_layout(conv, "NHWC"), x=x, w=w, out=out)
    inputs, want = arrays(conv, source)
    got, _ = computed(source, inputs, want.shape, packed=True, form="depthwise")
    np.testing.assert_array_equal(got, 2 * want)
