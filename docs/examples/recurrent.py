"""An LSTM: its decisions, and four runs of the layer that share the cores."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tvm_tiling as tt

layer = tt.RnnWorkload(cell="lstm", steps=50, input_size=64, hidden_size=128)
print(tt.decide(layer, tt.Hardware.detect()).explain())
print(tt.decide(layer, tt.Hardware.load("rnn16k")).explain())  # a column engine: EP and VP, cycles per step, threads

rng = np.random.default_rng(0)
shapes = {"W": (1, 512, 64), "R": (1, 512, 128)}
weights = [numpy_helper.from_array(0.1 * rng.standard_normal(s, "float32"), name) for name, s in shapes.items()]
node = helper.make_node("LSTM", ["x", "W", "R"], ["y"], hidden_size=128)
x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", (50, 1, 64)), ("y", None)))
exe = tt.compile(helper.make_model(helper.make_graph([node], "g", [x], [y], weights)))
outputs = tt.run_many([(exe, rng.standard_normal((50, 1, 64), "float32")) for _ in range(4)])
assert outputs[0].shape == (50, 1, 1, 128)
