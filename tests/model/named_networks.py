"""ONNX models with named nodes, like those of exporters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 32, 32)


class Nodes:
    """Nodes and weights as they are added; `called` returns a node's name for its own part."""

    def __init__(self, called: Callable[[str], str] = str) -> None:
        self.called, self.rng = called, np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.uniform(-0.5, 0.5, shape).astype("float32"))

    def add(self, operator: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        """Add a node with one result, and return the result's name."""
        result = f"{name}:0"
        self.nodes.append(helper.make_node(operator, inputs, [result], self.called(name), **attributes))
        return result

    def model(self, inputs: dict[str, Sequence[int]], output: str, shape: Sequence[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "named",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, extents) for name, extents in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def squeezing(called: Callable[[str], str] = str) -> onnx.ModelProto:
    """Convolutions that squeeze and expand like SqueezeNet's, one with a batch norm, and a softmax."""
    net = Nodes(called)

    def conv(x: str, ci: int, co: int, kernel: int, name: str) -> str:
        inputs = [x, net.weight(co, ci, kernel, kernel), net.weight(co)]
        return net.add("Relu", [net.add("Conv", inputs, name, pads=[kernel // 2] * 4)], f"{name}/relu")

    x = net.add("MaxPool", [conv("x", 3, 16, 3, "stem")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    for fire in ("fire1", "fire2"):
        squeezed = conv(x, 16, 8, 1, f"{fire}/squeeze")
        sides = [conv(squeezed, 8, 8, kernel, f"{fire}/expand{kernel}") for kernel in (1, 3)]
        x = net.add("Concat", sides, f"{fire}/concat", axis=1)
    x = net.add("Conv", [x, net.weight(10, 16, 1, 1)], "last")
    norm = [net.weight(10), net.weight(10), net.weight(10), net.constant(np.ones(10, "float32"))]
    x = net.add("GlobalAveragePool", [net.add("BatchNormalization", [x, *norm], "norm")], "mean")
    return net.model({"x": SHAPE}, net.add("Softmax", [x], "softmax", axis=1), (1, 10, 1, 1))


def attention() -> onnx.ModelProto:
    """Two heads of 32 over 16 positions, as matrix multiplications."""
    net = Nodes()
    heads, flat = net.constant(np.array([1, 16, 2, 32])), net.constant(np.array([1, 16, 64]))
    turned = {}
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        product = net.add("MatMul", ["x", net.weight(64, 64)], name)
        cut = net.add("Reshape", [product, heads], f"{name}/heads")
        turned[name] = net.add("Transpose", [cut], f"{name}/turned", perm=order)
    scores = net.add("MatMul", [turned["q"], turned["k"]], "scores")
    scaled = net.add("Div", [scores, net.constant(np.float32(8))], "scale")
    result = net.add("MatMul", [net.add("Softmax", [scaled], "shares", axis=-1), turned["v"]], "mixed")
    result = net.add("Transpose", [result], "turned", perm=[0, 2, 1, 3])
    return net.model({"x": (1, 16, 64)}, net.add("Reshape", [result, flat], "joined"), (1, 16, 64))


def quantised() -> onnx.ModelProto:
    """Two equal convolutions between pairs of QuantizeLinear and DequantizeLinear."""
    net = Nodes()
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.int8(0))

    def pair(x: str, name: str) -> str:
        stored = net.add("QuantizeLinear", [x, scale, zero], f"{name}/quantize")
        return net.add("DequantizeLinear", [stored, scale, zero], f"{name}/dequantize")

    x = pair("x", "input")
    for name in ("first", "second"):
        kernels = net.constant(net.rng.integers(-9, 10, (16, 16, 3, 3)).astype("int8"))
        weights = net.add("DequantizeLinear", [kernels, scale, zero], f"{name}/weights")
        made = net.add("Relu", [net.add("Conv", [x, weights], name, pads=[1] * 4)], f"{name}/relu")
        x = pair(made, name)
    return net.model({"x": (1, 16, 8, 8)}, x, (1, 16, 8, 8))
