"""The networks of the onnx package: unmodified, with recorded outputs, and with random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx.backend.test.runner import Runner

import tvm_tiling as tt
from benchmarks.onnx_networks import NETWORKS, with_random_weights

FOLDER = Path(onnx.backend.test.__file__).parent / "data" / "light"
QUICK = ("shufflenet",)
SLOW = tuple(name for name in NETWORKS if name not in QUICK)
# Tolerance of the onnx package's own comparison; Winograd rounds more than a direct sum, which 1e-3 allows.
RTOL, ATOL = 1e-3, 1e-7
# Of the largest output, through all layers.
TOLERANCE = 1e-3


def check_expected_output(name: str) -> None:
    """The unmodified network gives the recorded output for the onnx package's own input."""
    model = onnx.load(str(FOLDER / f"light_{name}.onnx"))
    initialised = {tensor.name for tensor in model.graph.initializer}
    inputs = {
        value.name: Runner.generate_dummy_data(value, seed=0, name=name, random=False)
        for value in model.graph.input
        if value.name not in initialised
    }
    executable = tt.compile(str(FOLDER / f"light_{name}.onnx"), cache=False)
    assert set(inputs) == set(executable.signature.input_names)
    expected = onnx.numpy_helper.to_array(onnx.load_tensor(str(FOLDER / f"light_{name}_output_0.pb")))
    np.testing.assert_allclose(executable.run(**inputs), expected, rtol=RTOL, atol=ATOL)


def check_beside_onnxruntime(name: str) -> None:
    """With random weights instead of its constants the network gives onnxruntime's results, for two inputs."""
    import onnxruntime

    model = with_random_weights(name)
    executable = tt.compile(model, cache=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for seed in (0, 1):
        x = np.random.default_rng(seed).standard_normal(executable.signature.input_shapes[0]).astype("float32")
        result = executable.run(x)
        wanted = session.run(None, {session.get_inputs()[0].name: x})
        for got, want in zip(result if isinstance(result, tuple) else (result,), wanted, strict=True):
            assert got.shape == want.shape and np.isfinite(want).all() and np.ptp(want) > 0
            assert np.abs(got - want).max() <= TOLERANCE * np.abs(want).max()
