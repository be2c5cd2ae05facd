"""One of the onnx package's networks; the other eight are in tests/slow."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from light_networks import QUICK, check_beside_onnxruntime, check_expected_output


@pytest.mark.parametrize("name", QUICK)
def test_the_output_beside_the_network(name):
    check_expected_output(name)


@pytest.mark.parametrize("name", QUICK)
def test_random_weights_beside_onnxruntime(name):
    check_beside_onnxruntime(name)
