"""A database made from ResNet-50 and BERT-base covers other networks: 80 percent of their shapes, half of MobileNetV2.

It is generated on a simulated machine with fast memory relative to its multipliers (benchmarks/roomy.toml), from their
shapes and boundary shapes by halving; no random shapes were needed.
"""

from __future__ import annotations

import pytest

from benchmarks.coverage import KNOWN, ROOMY, coverage, generate, shapes_of
from tvm_tiling.hardware import Hardware
from tvm_tiling.tuning.shapes.database import ShapeDatabase

pytestmark = pytest.mark.slow
HARDWARE = Hardware.load(str(ROOMY))


@pytest.fixture(scope="module")
def known():
    with ShapeDatabase("sqlite://") as db:
        generate(db, HARDWARE)
        assert db.check().ok
        yield db


@pytest.mark.parametrize(
    ("network", "least"), [("vgg16", 0.8), ("resnet101", 0.8), ("bert-large", 0.8), ("mobilenetv2", 0.5)]
)
def test_shapes_of_other_networks_are_supported(known, network, least):
    found = coverage(known, HARDWARE, network)
    assert found.share >= least, found.missed


def test_its_own_shapes_are_initial_entries(known):
    for network in KNOWN:
        assert set(coverage(known, HARDWARE, network).steps.values()) == {1}, network
        assert len(coverage(known, HARDWARE, network).steps) == len(shapes_of(network))


def test_what_mobilenet_misses_is_what_no_known_network_has(known):
    """Depthwise convolutions: as many groups as channels."""
    missed = coverage(known, HARDWARE, "mobilenetv2").missed
    assert missed and all(workload.groups == workload.ci for workload in missed)
