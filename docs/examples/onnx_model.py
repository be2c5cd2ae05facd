"""An ONNX model with a dynamic batch: compile for one size, run, and report each operator. Needs onnx."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tvm_tiling as tt

rng = np.random.default_rng(0)
weights = [
    numpy_helper.from_array(0.1 * rng.standard_normal((16, 3, 3, 3), "float32"), "kernels"),
    numpy_helper.from_array(np.zeros(16, "float32"), "bias"),
]
nodes = [
    helper.make_node("Conv", ["image", "kernels", "bias"], ["convolved"], pads=[1, 1, 1, 1], strides=[2, 2]),
    helper.make_node("Relu", ["convolved"], ["positive"]),
    helper.make_node("GlobalAveragePool", ["positive"], ["features"]),
]
image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ("batch", 3, 64, 64))
features = helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, None)
model = helper.make_model(helper.make_graph(nodes, "network", [image], [features], weights))

exe = tt.compile(model, batch=1)  # or a path: tt.compile("model.onnx", batch=1)
pixels = rng.random((1, 3, 64, 64), "float32")
print(exe.run(image=pixels).shape)
print(exe.report())
