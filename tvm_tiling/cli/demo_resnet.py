"""The network of the demo: an 18-layer ResNet with seeded random weights, as the bytes of an ONNX file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
BLOCKS = (2, 2, 2, 2)  # residual blocks of two convolutions, in four stages
CLASSES = 1000


@dataclass
class _Graph:
    """A graph under construction; `rng` draws the weights."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator; returns the name of its output."""
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        return output

    def weight(self, values: np.ndarray) -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, ci: int, co: int, kernel: int, stride: int = 1) -> str:
        """A convolution with batch normalisation; its kernels preserve the variance of their input."""
        kernels = self.rng.standard_normal((co, ci, kernel, kernel)) * np.sqrt(2 / (ci * kernel * kernel))
        pad = kernel // 2
        y = self.node("Conv", x, self.weight(kernels), strides=[stride] * 2, pads=[pad] * 4)
        scale, shift, mean = (self.rng.uniform(low, high, co) for low, high in ((0.5, 1), (-0.1, 0.1), (-0.1, 0.1)))
        variance = self.rng.uniform(0.8, 1.2, co)
        return self.node("BatchNormalization", y, *map(self.weight, (scale, shift, mean, variance)))

    def block(self, x: str, ci: int, co: int, stride: int) -> str:
        """Two convolutions with a shortcut."""
        y = self.node("Relu", self.conv(x, ci, co, 3, stride))
        y = self.conv(y, co, co, 3)
        shortcut = x if ci == co and stride == 1 else self.conv(x, ci, co, 1, stride)
        return self.node("Relu", self.node("Add", y, shortcut))


def resnet_bytes(image: int = 128, channels: int = 32) -> bytes:
    """The ONNX file of a network for images of 1 x 3 x image x image in float32.

    The first stage has `channels` channels, and each further stage twice as many. The bytes are deterministic.
    """
    graph = _Graph(np.random.default_rng(0))
    x = graph.node("Relu", graph.conv("image", 3, channels, 7, 2))
    x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = channels
    for stage, blocks in enumerate(BLOCKS):
        for number in range(blocks):
            wider = channels << stage
            x = graph.block(x, width, wider, 2 if stage and number == 0 else 1)
            width = wider
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    dense = graph.rng.standard_normal((CLASSES, width)) / np.sqrt(width)
    x = graph.node("Gemm", x, graph.weight(dense), graph.weight(np.zeros(CLASSES)), transB=1)
    graph.nodes.append(helper.make_node("Softmax", [x], ["probabilities"], name="softmax"))
    made = helper.make_graph(
        graph.nodes,
        "small_resnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, image, image])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, CLASSES])],
        graph.weights,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    written: bytes = model.SerializeToString(deterministic=True)
    return written
