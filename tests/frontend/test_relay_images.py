"""Relay's operators on images and boxes, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from relay_cases import Case, check
from tvm import ir, relax

from tvm_tiling.frontend.relay.import_relay import read_relay

RNG = np.random.default_rng(0)
X1 = RNG.normal(size=(1, 2, 5)).astype("float32")
X2 = RNG.normal(size=(1, 2, 4, 6)).astype("float32")
X3 = RNG.normal(size=(1, 1, 2, 4, 3)).astype("float32")


def last(x):
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def along(x, axis, size, mode):
    """Resize one axis to `size` by linear interpolation."""
    extent = x.shape[axis]
    places = np.arange(size, dtype="f8")
    if mode == "half_pixel":
        places = (places + 0.5) * extent / size - 0.5
    elif mode == "asymmetric":
        places = places * extent / size
    else:
        places = places * (extent - 1) / (size - 1)
    low = np.floor(places)
    part = (places - low).reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    first, second = (np.clip(low + step, 0, extent - 1).astype(int) for step in (0, 1))
    return np.take(x, first, axis) * (1 - part) + np.take(x, second, axis) * part


def linear(x, size, mode="half_pixel"):
    for axis, wanted in enumerate(size, 2):
        x = along(x, axis, wanted, mode)
    return np.asarray(x, "float32")


def nearest(x, factors):
    for axis, factor in enumerate(factors, 2):
        x = x.repeat(factor, axis)
    return x


SIZES = [
    Case("image.resize1d(%x, size=[8], roi=[0f, 0f])", {"x": X1}, linear(X1, [8])),
    Case('image.resize2d(%x, size=[7, 9], roi=[0f, 0f, 0f, 0f], rounding_method="")', {"x": X2}, linear(X2, [7, 9])),
    Case(
        'image.resize2d(%x, size=[7, 9], coordinate_transformation_mode="align_corners")',
        {"x": X2},
        linear(X2, [7, 9], "align_corners"),
    ),
    Case(
        'image.resize2d(%x, size=[8, 12], layout="NHWC", method="nearest_neighbor", '
        'coordinate_transformation_mode="asymmetric", rounding_method="floor")',
        {"x": last(X2)},
        last(nearest(X2, (2, 2))),
    ),
    Case('dyn.image.resize2d(%x, %s, rounding_method="")', {"x": X2}, linear(X2, [7, 9]), {"s": np.array([7, 9])}),
    Case("image.resize3d(%x, size=[3, 5, 6])", {"x": X3}, linear(X3, [3, 5, 6])),
    Case("nn.upsampling(%x, scale_h=2f, scale_w=3f)", {"x": X2}, nearest(X2, (2, 3))),
    Case(
        'nn.upsampling(%x, scale_h=2f, scale_w=2f, method="bilinear", align_corners=True)',
        {"x": X2},
        linear(X2, [8, 12], "align_corners"),
    ),
    Case(
        'nn.upsampling(%x, scale_h=2f, scale_w=1.5f, method="bilinear", layout="NHWC")',
        {"x": last(X2)},
        last(linear(X2, [8, 9], "asymmetric")),
    ),
    Case("nn.upsampling3d(%x, scale_d=2f, scale_h=1f, scale_w=2f)", {"x": X3}, nearest(X3, (2, 1, 2))),
    Case(
        'nn.upsampling3d(%x, scale_d=2f, scale_h=1f, scale_w=2f, method="trilinear")',
        {"x": X3},
        linear(X3, [4, 4, 6]),
    ),
    # 0.7 had other names for the methods.
    Case('image.resize(%x, size=[7, 9], method="bilinear")', {"x": X2}, linear(X2, [7, 9])),
    Case(
        'image.resize(%x, size=[7, 9], coordinate_transformation_mode="asymmetric")',
        {"x": X2},
        linear(X2, [7, 9], "asymmetric"),
    ),
]

EVERY = np.stack(np.meshgrid(np.linspace(-1, 1, 6), np.linspace(-1, 1, 4), indexing="xy"))[None].astype("float32")
IDENTITY = np.array([[[1, 0, 0], [0, 1, 0]]], "float32")
FILTER = RNG.normal(size=(2, 2, 2)).astype("float32")


def dilation(x, w):
    n, c, h, v = x.shape
    out = np.full((n, c, h - 1, v - 1), -np.inf)
    for i in range(2):
        for j in range(2):
            out = np.maximum(out, x[:, :, i : h - 1 + i, j : v - 1 + j] + w[:, i, j][:, None, None])
    return out.astype("float32")


BOXES = np.array([[0, 0.0, 0.0, 5.0, 3.0]], "float32")
PIECES = [
    Case(
        "image.crop_and_resize(%x, %b, %i, crop_size=[4, 6])",
        {"x": X2, "b": np.array([[0, 0, 1, 1]], "float32"), "i": np.zeros(1, "int32")},
        X2,
    ),
    Case("image.grid_sample(%x, %g)", {"x": X2, "g": EVERY}, X2),
    Case("image.affine_grid(%x, target_shape=[4, 6])", {"x": IDENTITY}, EVERY),
    Case("image.dilation2d(%x, %w)", {"x": X2, "w": FILTER}, dilation(X2, FILTER)),
    Case(
        'image.dilation2d(%x, %w, data_layout="NHWC", kernel_layout="HWI")',
        {"x": last(X2), "w": np.ascontiguousarray(FILTER.transpose(1, 2, 0))},
        last(dilation(X2, FILTER)),
    ),
    Case(
        "vision.roi_pool(%x, %b, pooled_size=[2, 3], spatial_scale=1f)",
        {"x": X2, "b": BOXES},
        X2.reshape(1, 2, 2, 2, 3, 2).max((3, 5)),
    ),
    Case(
        "vision.roi_align(%x, %b, pooled_size=[1, 1], spatial_scale=1f, sample_ratio=1)",
        {"x": X2, "b": np.array([[0, 1.0, 1.0, 3.0, 3.0]], "float32")},
        X2[:, :, 2, 2][:, :, None, None],
    ),
]

CANDIDATES = np.array(
    [[[0, 0.9, 0, 0, 10, 10], [0, 0.8, 1, 1, 10, 10], [1, 0.7, 20, 20, 30, 30], [0, 0.05, 0, 0, 1, 1]]], "float32"
)
COUNTED = CANDIDATES.copy()
COUNTED[0, 3] = -1
KEPT = np.full_like(CANDIDATES, -1)
KEPT[0, 0], KEPT[0, 1] = CANDIDATES[0, 0], CANDIDATES[0, 2]
DETECTION = [
    Case(
        "vision.get_valid_counts(%x, 0.1f)",
        {"x": CANDIDATES},
        [np.array([3], "int32"), COUNTED, np.array([[0, 1, 2, -1]], "int32")],
    ),
    # Until 0.7 the threshold was an attribute.
    Case(
        "vision.get_valid_counts(%x, score_threshold=0.1f)",
        {"x": CANDIDATES},
        [np.array([3], "int32"), COUNTED, np.array([[0, 1, 2, -1]], "int32")],
    ),
    Case(
        "vision.non_max_suppression(%x, %n, %i, -1, 0.5f, return_indices=False, invalid_to_bottom=True)",
        {"x": COUNTED, "n": np.array([3], "int32"), "i": np.array([[0, 1, 2, -1]], "int32")},
        KEPT,
    ),
    Case(
        "vision.non_max_suppression(%x, %n, %i, max_output_size=-1, iou_threshold=0.5f, return_indices=False, "
        "invalid_to_bottom=True)",
        {"x": COUNTED, "n": np.array([3], "int32"), "i": np.array([[0, 1, 2, -1]], "int32")},
        KEPT,
    ),
    Case(
        "vision.non_max_suppression(%x, %n, iou_threshold=0.5f, return_indices=False, invalid_to_bottom=True)",
        {"x": COUNTED, "n": np.array([3], "int32")},
        KEPT,
    ),
]


@pytest.mark.parametrize("cases", [SIZES, PIECES, DETECTION], ids=["sizes", "pieces", "detection"])
def test_operators(cases):
    check(cases)


def test_corners_were_aligned_until_0_6():
    check(
        [
            Case("image.resize(%x, size=[7, 9])", {"x": X2}, linear(X2, [7, 9], "align_corners")),
            Case("image.resize(%x, size=[7, 9], align_corners=False)", {"x": X2}, linear(X2, [7, 9], "asymmetric")),
        ],
        header="v0.0.4",
        release="0.6.0",
    )


def test_anchors_are_constants():
    made = "vision.multibox_prior(%x, sizes=[0.5f, 0.25f], ratios=[1f, 4f])"
    text = f"def @main(%x: Tensor[(1, 3, 2, 4), float32]) {{ {made} }}".encode()
    module = read_relay(text, shapes={}, batch=None, params=None, where="anchors").imported.module
    constants = []
    relax.analysis.post_order_visit(
        module["main"], lambda node: constants.append(node) if isinstance(node, ir.GenericConst) else None
    )
    boxes = constants[0].value.numpy()
    assert boxes.shape == (1, 2 * 4 * 3, 4)
    # The centre of the first cell is (1/8, 1/4); the height of the second kind is 1/4, its width half of that in pixels
    # that are twice as wide as high.
    np.testing.assert_allclose(boxes[0, 1], [0.125 - 0.0625, 0.25 - 0.125, 0.125 + 0.0625, 0.25 + 0.125])
    np.testing.assert_allclose(boxes[0, 2], [0.125 - 0.25, 0.25 - 0.125, 0.125 + 0.25, 0.25 + 0.125])
