"""ONNX models that are already quantised: pairs of operators and QLinear operators, compared with onnxruntime and
NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from integer_reference import reference
from onnx import TensorProto, helper, numpy_helper

import tvm_tiling as tt
from tvm_tiling.frontend import load_model
from tvm_tiling.model.quantise.quantise import quantised

SHAPE = (1, 3, 12, 12)


def float_network() -> onnx.ModelProto:
    """Convolutions with a residual, pooling and a classifier."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((8, 3, 3, 3)) * 0.3,
        "b0": rng.standard_normal(8) * 0.1,
        "w1": rng.standard_normal((8, 8, 3, 3)) * 0.2,
        "b1": rng.standard_normal(8) * 0.1,
        "w2": rng.standard_normal((8, 5)) * 0.5,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Add", ["c1", "r0"], ["s1"]),
        helper.make_node("Relu", ["s1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 5))],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def inputs(count):
    return [np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32) for seed in range(count)]


def quantised_by_onnxruntime(folder, form, per_channel, activations):
    """Return the network as onnxruntime quantises it."""
    ort = pytest.importorskip("onnxruntime.quantization")

    class Data(ort.CalibrationDataReader):
        def __init__(self):
            self.left = iter([{"x": x} for x in inputs(4)])

        def get_next(self):
            return next(self.left, None)

    source, target = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(float_network(), str(source))
    ort.quantize_static(
        str(source),
        str(target),
        Data(),
        quant_format=getattr(ort.QuantFormat, form),
        per_channel=per_channel,
        activation_type=getattr(ort.QuantType, activations),
        weight_type=ort.QuantType.QInt8,
    )
    return target


def by_onnxruntime(model, x):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


every_form = pytest.mark.parametrize(
    ("form", "per_channel", "activations"),
    [("QDQ", True, "QInt8"), ("QDQ", False, "QUInt8"), ("QOperator", False, "QUInt8"), ("QOperator", True, "QInt8")],
    ids=str,
)


@every_form
def test_quantised_models_are_taken_as_they_are(tmp_path, form, per_channel, activations):
    model = quantised_by_onnxruntime(tmp_path, form, per_channel, activations)
    executable = tt.compile(str(model), target="vsim/vta")
    computed = [o.workload for o in executable.report().operators if o.where == "accelerator"]
    assert sum("conv2d" in function for function in computed) == 2
    integers = quantised(load_model(str(model)), tt.Hardware.load("vta"), None)
    for x in inputs(3):
        got, want = executable.run(x), by_onnxruntime(model, x)
        np.testing.assert_array_equal(got, reference(integers, x))
        # With another rounding rule, an 8-bit result may differ by a step here and there.
        assert np.abs(got - want).max() <= 0.03 * np.abs(want).max()
