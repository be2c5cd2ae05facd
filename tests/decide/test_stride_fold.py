"""Stride-fold: the index map, its inverse, and the direct convolution."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conv_reference import convolution
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tiling.decide.conv.stride_fold import StrideFold
from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.workload import ConvWorkload


def conv(**fields):
    return ConvWorkload(**{"n": 1, "h": 1, "w": 8, "ci": 1, "co": 1, "kh": 1, "kw": 1, "dtype": "int8", **fields})


@st.composite
def layers(draw, most_stride=4, groups=1):
    """Small convolutions with strides 1 to 4, kernels of 1 to 7, any border, kernels dilated along W as well."""
    kh, kw = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    dilation = (draw(st.integers(1, 2)), draw(st.sampled_from((1, 1, 1, 2, 3))))
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 7), st.integers(0, 2), st.integers(0, 7)))
    need_h = dilation[0] * (kh - 1) + 1 - padding[0] - padding[2]
    need_w = dilation[1] * (kw - 1) + 1 - padding[1] - padding[3]
    return conv(
        n=draw(st.integers(1, 2)),
        h=max(1, need_h) + draw(st.integers(0, 3)),
        w=max(1, need_w) + draw(st.integers(0, 12)),
        ci=groups * draw(st.integers(1, 3)),
        co=groups * draw(st.integers(1, 3)),
        kh=kh,
        kw=kw,
        stride=(draw(st.integers(1, 3)), draw(st.integers(1, most_stride))),
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


def operands(w):
    rng = np.random.default_rng(w.w * 1000 + w.kw)
    x = rng.integers(-9, 10, (w.n, w.h, w.w, w.ci))
    return x, rng.integers(-9, 10, (w.co, w.kh, w.kw, w.ci // w.groups))


def compute(w, x, weights):
    return convolution(x, weights, w.stride, w.padding, w.dilation, w.groups)


@settings(max_examples=150, deadline=None)
@given(layers())
def test_the_folded_convolution_cropped_is_the_plain_one(w):
    x, weights = operands(w)
    fold = StrideFold(w)
    folded = fold.folded()
    assert (folded.stride, folded.dilation[1]) == ((w.stride[0], 1), 1)
    kernels = fold.fold_weights(weights)
    image = fold.fold_input(x)
    assert image.shape == (folded.n, folded.h, folded.w, folded.ci)
    assert kernels.shape == (folded.co, folded.kh, folded.kw, folded.ci)
    result = compute(folded, image, kernels)
    assert result.shape == (folded.n, folded.ho, folded.wo, folded.co)
    assert fold.surplus in (0, 1) and folded.wo == w.wo + fold.surplus
    np.testing.assert_array_equal(result[:, :, : w.wo], compute(w, x, weights))


@settings(max_examples=150, deadline=None)
@given(layers())
def test_arrays_fold_and_unfold_by_the_index_maps(w):
    x, weights = operands(w)
    fold = StrideFold(w)
    image, kernels = fold.fold_input(x), fold.fold_weights(weights)
    np.testing.assert_array_equal(fold.unfold_input(image), x)
    np.testing.assert_array_equal(fold.unfold_weights(kernels), weights)
    for x_folded in range(fold.width):
        for c_folded in range(fold.factor * w.ci):
            y, column, c = fold.unfold_index(0, x_folded, c_folded)
            assert fold.fold_index(y, column, c) == (0, x_folded, c_folded)
            expected = x[:, y, column, c] if 0 <= column < w.w else 0
            assert (image[:, 0, x_folded, c_folded] == expected).all()
    for kw_folded in range(fold.kernel_width):
        for c_folded in range(fold.factor * w.ci):
            tap = fold.unfold_tap(kw_folded, c_folded)
            expected = 0 if tap is None else weights[:, :, tap[0], tap[1]]
            assert (kernels[:, :, kw_folded, c_folded] == expected).all()


@settings(max_examples=150, deadline=None)
@given(layers())
def test_the_inverse_undoes_the_map(w):
    fold = StrideFold(w)
    _, left, _, right = w.padding
    for x in range(-left, w.w + right):
        for c in range(w.ci):
            assert fold.unfold_index(*fold.fold_index(0, x, c)) == (0, x, c)
            _, x_folded, c_folded = fold.fold_index(0, x, c)
            assert x_folded >= -fold.left and 0 <= c_folded < fold.factor * w.ci
    places = {fold.fold_tap(kw, c): (kw, c) for kw in range(w.kw) for c in range(w.ci)}
    assert len(places) == w.kw * w.ci
    for kw_folded in range(fold.kernel_width):
        for c_folded in range(fold.factor * w.ci):
            assert fold.unfold_tap(kw_folded, c_folded) == places.get((kw_folded, c_folded))


@settings(max_examples=100, deadline=None)
@given(layers())
def test_shapes_and_borders_are_page_05s(w):
    fold = StrideFold(w)
    sw, (_, left, _, right) = w.stride[1], w.padding
    if w.w % sw == 0:
        assert not fold.moves_data
        assert (fold.zeros, fold.left, fold.shift) == (-left % sw, math.ceil(left / sw), 0)
        assert fold.width == w.w // sw
        assert fold.right <= math.ceil(right / sw)
    else:
        assert fold.moves_data
        assert (fold.zeros, fold.left, fold.right, fold.shift) == (0, 0, 0, left)
        assert fold.width == math.ceil((w.w + left + right) / sw)
    assert fold.kernel_width == math.ceil((fold.zeros + w.dilation[1] * (w.kw - 1) + 1) / sw)


@settings(max_examples=50, deadline=None)
@given(layers(most_stride=1, groups=2))
def test_with_stride_1_groups_may_stay_and_only_dilation_is_expanded(w):
    fold = StrideFold(w)
    x, weights = operands(w)
    folded = fold.folded()
    assert fold.fold_input(x) is x or np.shares_memory(fold.fold_input(x), x)
    assert (folded.w, folded.ci, folded.wo) == (w.w, w.ci, w.wo)
    np.testing.assert_array_equal(compute(folded, x, fold.fold_weights(weights)), compute(w, x, weights))


@pytest.mark.parametrize("ci", [1, 3, 64])
def test_worked_example_of_4_by_5_stride_2(ci):
    w = conv(h=4, w=5, ci=ci, co=2, kh=3, kw=3, stride=(2, 2))
    fold = StrideFold(w)
    folded = fold.folded()
    assert (folded.h, folded.w, folded.ci) == (4, 3, 2 * ci)
    assert (folded.kh, folded.kw) == (3, 2)
    assert folded.stride == (2, 1)
    x = np.arange(4 * 5 * ci).reshape(4, 5, ci)
    image = fold.fold_input(x)
    # w0 w1 | w2 w3 | w4 and a column of zeros
    np.testing.assert_array_equal(image[:, 0], np.concatenate([x[:, 0], x[:, 1]], axis=-1))
    np.testing.assert_array_equal(image[:, 2], np.concatenate([x[:, 4], 0 * x[:, 4]], axis=-1))


def test_no_data_moves_where_the_stride_divides_the_width():
    w = conv(h=6, w=224, ci=3, co=64, kh=7, kw=7, stride=(2, 2), padding=(3, 3, 3, 3))
    fold = StrideFold(w)
    x = np.arange(6 * 224 * 3).reshape(6, 224, 3)
    assert np.shares_memory(fold.fold_input(x), x)
    assert (fold.zeros, fold.left, fold.kernel_width) == (1, 2, 4)
    assert (fold.folded().w, fold.folded().ci, fold.folded().wo) == (112, 6, 112)


def test_a_point_too_many_is_dropped():
    fold = StrideFold(conv(w=4, kw=2, stride=(1, 3)))
    assert (fold.workload.wo, fold.folded().wo, fold.surplus) == (1, 2, 1)


def test_depth_and_images_are_folded_along():
    w = conv(n=2, d=3, kd=2, h=4, w=6, ci=2, co=3, kh=3, kw=3, stride=(1, 2), padding=(1, 1, 1, 1))
    fold = StrideFold(w)
    x = np.arange(2 * 3 * 4 * 6 * 2).reshape(2, 3, 4, 6, 2)
    weights = np.arange(3 * 2 * 3 * 3 * 2).reshape(3, 2, 3, 3, 2)
    assert fold.fold_input(x).shape == (2, 3, 4, 3, 4)
    assert fold.fold_weights(weights).shape == (3, 2, 3, 2, 4)
    folded = fold.folded()
    assert (folded.do, folded.ho, folded.wo) == (w.do, w.ho, w.wo)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"groups": 2, "ci": 4, "co": 4, "stride": (1, 2)}, "groups = 2 would interleave the channels of groups"),
        ({"transposed": True, "stride": (2, 2)}, "a transposed convolution has no stride to fold"),
    ],
)
def test_what_cannot_be_folded(fields, text):
    with pytest.raises(UnsupportedOperator) as caught:
        StrideFold(conv(**fields))
    assert text in str(caught.value) and "expected " in str(caught.value) and "\n" not in str(caught.value)
