"""The layers of the networks suite against the structure of the networks, and database lookups."""

from __future__ import annotations

import pytest

from benchmarks.coverage import ASKED, KNOWN, PRODUCTS, coverage, generate, shapes_of
from benchmarks.suite import load_suite
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.shapes.database import ShapeDatabase
from tvm_tiling.workload import ConvWorkload, GemmWorkload

CASES = load_suite("networks")


def conv(h, ci, co, k, s=1):
    p = k // 2
    return ConvWorkload(n=1, h=h, w=h, ci=ci, co=co, kh=k, kw=k, stride=(s, s), padding=(p, p, p, p), dtype="float32")


def test_resnet101_is_its_blocks_with_the_stride_in_the_middle():
    expected, size, channels = {conv(224, 3, 64, 7, s=2): 1}, 56, 64

    def add(layer):
        expected[layer] = expected.get(layer, 0) + 1

    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 23), (512, 3))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            add(conv(size, channels, width, 1))
            add(conv(size, width, width, 3, s=stride))
            if not block:
                add(conv(size, channels, 4 * width, 1, s=stride))
            size, channels = size // stride, 4 * width
            add(conv(size, width, channels, 1))
    found = {case.workload: case.times["resnet101"] for case in CASES if case.group == "resnet101"}
    assert found == expected
    assert sum(found.values()) == 104
    assert sum(times * w.macs for w, times in found.items()) / 1e9 == pytest.approx(7.799, abs=0.001)  # published: 7.8


@pytest.mark.parametrize(("group", "width"), [("bert-base", 768), ("bert-large", 1024)])
def test_dense_layers_of_a_transformer(group, width):
    """Widths are the model's or four times that; the pooler sees one token."""
    found = {(c.workload.m, c.workload.k, c.workload.n) for c in CASES if c.group == group}
    layers = {(width, width), (width, 4 * width), (4 * width, width)}
    assert found == {(tokens, k, n) for tokens in (128, 384) for k, n in layers} | {(1, width, width)}


def test_distinct_shapes_of_the_networks():
    counts = {network: len(shapes_of(network)) for network in PRODUCTS}
    assert counts == {
        "resnet50": 24,
        "resnet101": 24,
        "vgg16": 12,
        "mobilenetv2": 31,
        "bert-base": 11,
        "bert-large": 11,
    }
    assert set(KNOWN) | set(ASKED) == set(PRODUCTS)
    assert set(shapes_of("resnet50")) == set(shapes_of("resnet101"))  # the same layers, with more repeats
    assert all(w.dtype == "int8" and w.acc_dtype == "int32" for network in PRODUCTS for w in shapes_of(network))


def test_attention_takes_all_heads_at_once():
    for network, heads in (("bert-base", 12), ("bert-large", 16)):
        found = [w for w in shapes_of(network) if isinstance(w, GemmWorkload) and w.batch > 1]
        assert {(w.batch, w.m, w.k, w.n, w.trans_b) for w in found} == {
            (heads, tokens, 64, tokens, True) if keys else (heads, tokens, tokens, 64, False)
            for tokens in (128, 384)
            for keys in (True, False)
        }


def test_coverage_counts_what_is_covered():
    hardware = Hardware.load("vta")
    with ShapeDatabase("sqlite://") as db:
        nothing = coverage(db, hardware, "vgg16")
        assert (nothing.share, nothing.share_of_work, len(nothing.missed)) == (0, 0, 12)
        generate(db, hardware, networks=(), factors=(2,))
        db.generate(target=hardware, shapes=[shapes_of("vgg16")[-1]], limit=0, candidates=1, threshold=None)
        found = coverage(db, hardware, "vgg16")
        assert found.steps == {shapes_of("vgg16")[-1]: 1} and found.share == pytest.approx(1 / 12)
        assert 0 < found.share_of_work < 0.01
