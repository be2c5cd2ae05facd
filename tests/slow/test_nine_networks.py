"""Eight of the nine networks that come with the onnx package, which take minutes; the other one is in tests/model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))  # whose networks are used here

from light_networks import SLOW, check_beside_onnxruntime, check_expected_output

pytestmark = pytest.mark.slow


def test_there_are_eight():
    assert len(SLOW) == 8


@pytest.mark.parametrize("name", SLOW)
def test_the_output_beside_the_network(name):
    check_expected_output(name)


@pytest.mark.parametrize("name", SLOW)
def test_random_weights_beside_onnxruntime(name):
    check_beside_onnxruntime(name)
