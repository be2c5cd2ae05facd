"""The layers of the conv suite against published figures and the structure of the networks."""

from __future__ import annotations

import pytest

from benchmarks import shape
from benchmarks.shape import ShapeError
from benchmarks.suite import load_suite
from tvm_tiling.workload import ConvWorkload

CASES = [case for case in load_suite("conv") if case.workload.dtype == "float32"]

# Number of distinct convolutions and their multiply-accumulates: the published totals (4.09, 0.300, 15.5, 1.58, 5.71,
# 0.82 and 0.35 giga) without the dense layers at the end.
NETWORKS = {
    "resnet50": (53, 23, 4.0871),
    "mobilenetv2": (52, 30, 0.2995),
    "vgg16": (13, 9, 15.3466),
    "googlenet": (57, 49, 1.5816),
    "inceptionv3": (94, 43, 5.7112),
    "squeezenet1.0": (26, 22, 0.8189),
    "squeezenet1.1": (26, 18, 0.3492),
}


def layers(network):
    return {case.workload: case.times[network] for case in CASES if network in case.times}


def conv(h, ci, co, k, s=1, g=1):
    p = k // 2
    return ConvWorkload(
        n=1, h=h, w=h, ci=ci, co=co, kh=k, kw=k, stride=(s, s), padding=(p, p, p, p), groups=g, dtype="float32"
    )


def test_every_network_of_the_page_is_there():
    assert {network for case in CASES for network in case.times} == set(NETWORKS)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_has_all_its_convolutions(network):
    found = layers(network)
    convolutions, distinct, giga_macs = NETWORKS[network]
    assert (sum(found.values()), len(found)) == (convolutions, distinct)
    assert sum(times * w.macs for w, times in found.items()) / 1e9 == pytest.approx(giga_macs, abs=1e-4)


def count(convolutions):
    found = {}
    for w in convolutions:
        found[w] = found.get(w, 0) + 1
    return found


def test_resnet50_is_its_blocks_with_the_stride_in_the_middle():
    expected, size, channels = [conv(224, 3, 64, 7, s=2)], 56, 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            expected += [conv(size, channels, width, 1), conv(size, width, width, 3, s=stride)]
            if not block:
                expected.append(conv(size, channels, 4 * width, 1, s=stride))
            size, channels = size // stride, 4 * width
            expected.append(conv(size, width, channels, 1))
    assert layers("resnet50") == count(expected)


def test_mobilenetv2_is_its_blocks():
    expected, size, channels = [conv(224, 3, 32, 3, s=2)], 112, 32
    for expansion, width, blocks, first in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for block in range(blocks):
            inner, stride = channels * expansion, 1 if block else first
            if expansion > 1:
                expected.append(conv(size, channels, inner, 1))
            expected.append(conv(size, inner, inner, 3, s=stride, g=inner))
            size, channels = size // stride, width
            expected.append(conv(size, inner, width, 1))
    assert layers("mobilenetv2") == count([*expected, conv(7, 320, 1280, 1)])


def test_googlenet_is_its_table():
    expected = [conv(224, 3, 64, 7, s=2), conv(56, 64, 64, 1), conv(56, 64, 192, 3)]
    for size, channels, *branches in (
        (28, 192, 64, 96, 128, 16, 32, 32),
        (28, 256, 128, 128, 192, 32, 96, 64),
        (14, 480, 192, 96, 208, 16, 48, 64),
        (14, 512, 160, 112, 224, 24, 64, 64),
        (14, 512, 128, 128, 256, 24, 64, 64),
        (14, 512, 112, 144, 288, 32, 64, 64),
        (14, 528, 256, 160, 320, 32, 128, 128),
        (7, 832, 256, 160, 320, 32, 128, 128),
        (7, 832, 384, 192, 384, 48, 128, 128),
    ):
        one, three_in, three, five_in, five, pool = branches
        expected += [conv(size, channels, one, 1), conv(size, channels, three_in, 1), conv(size, three_in, three, 3)]
        expected += [conv(size, channels, five_in, 1), conv(size, five_in, five, 5), conv(size, channels, pool, 1)]
    assert layers("googlenet") == count(expected)


@pytest.mark.parametrize(
    ("network", "sizes", "first"),
    [
        ("squeezenet1.0", (54, 54, 54, 27, 27, 27, 27, 13), 96),
        ("squeezenet1.1", (55, 55, 27, 27, 13, 13, 13, 13), 64),
    ],
)
def test_squeezenet_is_its_fire_modules(network, sizes, first):
    expected, channels = [], first
    for size, squeeze in zip(sizes, (16, 16, 32, 32, 48, 48, 64, 64), strict=True):
        expected += [conv(size, channels, squeeze, 1), conv(size, squeeze, 4 * squeeze, 1)]
        expected.append(conv(size, squeeze, 4 * squeeze, 3))
        channels = 8 * squeeze
    stem = next(w for w in layers(network) if w.ci == 3)
    assert (stem.co, stem.kh, stem.padding) == (first, 7 if first == 96 else 3, (0, 0, 0, 0))
    assert layers(network) == count([stem, *expected, conv(13, 512, 1000, 1)])


def test_kinds_that_the_page_asks_for():
    groups = {case.group: [] for case in CASES}
    for case in CASES:
        groups[case.group].append(case.workload)
    assert all(w.ci == 3 and w.stride == (2, 2) for w in groups["stem"])
    assert all(w.groups == w.ci == w.co for name in ("depthwise", "depthwise-wide") for w in groups[name])
    assert all(1 < w.groups < w.ci for w in groups["grouped"])
    assert all(w.dilation != (1, 1) for w in groups["dilated"])
    assert all(case.packed and case.workload.n == 1 for case in CASES)


def test_int8_is_asked_of_all_of_resnet50():
    int8 = {case.workload for case in load_suite("conv") if case.workload.dtype == "int8" and "resnet50" in case.times}
    assert len(int8) == len(layers("resnet50"))


def test_the_short_set_has_a_layer_of_nearly_every_kind():
    short = [case for case in CASES if case.short]
    assert 12 <= len(short) <= 15
    missing = {case.group for case in CASES} - {case.group for case in short}
    assert missing == {"squeezenet1.0", "depthwise-wide"}


def test_notation():
    w = shape.workload(
        {"h": 17, "w": 9, "ci": 8, "co": 6, "k": [1, 7], "p": [0, 3], "s": 2, "d": [1, 2], "g": 2}, "int8"
    )
    assert (w.n, w.h, w.w, w.ci, w.co, w.kh, w.kw, w.groups, w.dtype) == (1, 17, 9, 8, 6, 1, 7, 2, "int8")
    assert (w.stride, w.padding, w.dilation) == ((2, 2), (0, 3, 0, 3), (1, 2))
    assert shape.text(w) == "17x9x8->6 k1x7 s2 p0x3 d1x2 g2"
    plain = shape.workload({"h": 5, "ci": 1, "co": 2, "k": 1, "n": 3}, "float32")
    assert shape.text(plain) == "3x5x5x1->2 k1"
    uneven = shape.workload({"h": 5, "ci": 1, "co": 2, "k": 2, "p": [1, 0, 0, 1]}, "float32")
    assert shape.text(uneven) == "5x5x1->2 k2 p1x0x0x1"
    with pytest.raises(ShapeError, match="must be one number or"):
        shape.workload({"h": 5, "ci": 1, "co": 2, "k": 2, "p": [1, 0, 0]}, "float32")
