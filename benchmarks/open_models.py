"""Models with dynamic dimensions in ONNX, with random weights, for benchmarks.open_sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

Dim: TypeAlias = int | str


@dataclass(frozen=True)
class OpenModel:
    """A model with one input x, and the dynamic dimension that a benchmark varies.

    `shape` is x's shape with the names of dynamic dimensions. `varied` is the name of the dimension whose sizes are
    measured; `others` has the sizes of the others.
    """

    model: ModelProto
    shape: tuple[Dim, ...]
    varied: str
    others: Mapping[str, int] = field(default_factory=dict)

    def dims(self, size: int) -> dict[str, int]:
        """Return the size of each dynamic dimension."""
        return {**self.others, self.varied: size}

    def x(self, size: int) -> np.ndarray:
        """Return random values of x, float32."""
        dims = self.dims(size)
        shape = [dims[each] if isinstance(each, str) else each for each in self.shape]
        return np.random.default_rng(size).standard_normal(shape, np.float32)


class _Graph:
    """Builder of an ONNX graph with random weights."""

    def __init__(self) -> None:
        self._nodes: list[object] = []
        self._constants: dict[str, np.ndarray] = {}
        self._rng = np.random.default_rng(0)

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = np.asarray(value)
        return name

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def weights(self, *shape: int) -> str:
        """Return a tensor of `shape`, scaled by the number of elements of the reduction: all axes but the first."""
        summed = math.prod(shape[1:]) or 1
        return self.constant(self._rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(summed)))

    def linear(self, x: str, before: int, after: int, bias: bool = True) -> str:
        weights = self._rng.standard_normal((before, after), np.float32) / np.float32(math.sqrt(before))
        y = self.add("MatMul", x, self.constant(weights))
        return self.add("Add", y, self.weights(after)) if bias else y

    def norm(self, x: str, width: int) -> str:
        return self.add("LayerNormalization", x, self.weights(width), self.weights(width), axis=-1)

    def root_mean_square_norm(self, x: str, width: int) -> str:
        mean = self.add("ReduceMean", self.add("Mul", x, x), axes=[-1])
        root = self.add("Sqrt", self.add("Add", mean, self.number(1e-6)))
        return self.add("Mul", self.add("Div", x, root), self.weights(width))

    def gelu(self, x: str) -> str:
        bent = self.add("Add", self.add("Erf", self.add("Div", x, self.number(math.sqrt(2)))), self.number(1))
        return self.add("Mul", self.add("Mul", x, bent), self.number(0.5))

    def split_heads(self, x: str, width: int, heads: int, order: Sequence[int] = (0, 2, 1, 3)) -> str:
        parts = self.constant(np.array([0, 0, heads, width // heads]))
        return self.add("Transpose", self.add("Reshape", x, parts), perm=list(order))

    def attention(self, q: str, transposed_k: str, v: str, width: int, heads: int, mask: str = "") -> str:
        """Heads of softmax(q k' / sqrt(d) + mask) v, concatenated: batch x length x width."""
        scores = self.add("MatMul", q, transposed_k)
        scores = self.add("Div", scores, self.number(math.sqrt(width / heads)))
        if mask:
            scores = self.add("Add", scores, mask)
        joined = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        joined = self.add("Transpose", joined, perm=[0, 2, 1, 3])
        return self.add("Reshape", joined, self.constant(np.array([0, 0, width])))

    def encoder_layer(self, x: str, width: int, heads: int) -> str:
        """A layer as in BERT: attention and two matrix multiplications, each with a residual connection and a norm."""
        q, k, v = (self.linear(x, width, width) for _ in range(3))
        split = [self.split_heads(each, width, heads, order) for each, order in ((q, (0, 2, 1, 3)), (k, (0, 2, 3, 1)))]
        attended = self.attention(*split, self.split_heads(v, width, heads), width, heads)
        x = self.norm(self.add("Add", x, self.linear(attended, width, width)), width)
        wide = self.gelu(self.linear(x, width, 4 * width))
        return self.norm(self.add("Add", x, self.linear(wide, 4 * width, width)), width)

    def conv(
        self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1, gain: float = 1.0
    ) -> str:
        """A convolution with bias of `channels` (before, after), with borders that keep the size at stride 1. Weights
        are multiplied by `gain`."""
        before, after = channels
        weights = self.add("Mul", self.weights(after, before // groups, kernel, kernel), self.number(gain))
        sizes = {"pads": [kernel // 2] * 4, "strides": [stride, stride], "group": groups}
        return self.add("Conv", x, weights, self.weights(after), **sizes)

    def classes(self, x: str, channels: int) -> str:
        """1000 classes from the mean of each channel."""
        return self.linear(self.add("Flatten", self.add("GlobalAveragePool", x)), channels, 1000)

    def length(self, x: str) -> str:
        """The second dimension of x as a scalar."""
        return self.add("Gather", self.add("Shape", x), self.constant(np.array(1)), axis=0)

    def first_rows(self, table: str, count: str) -> str:
        axis = self.constant(np.array([0]))
        count = self.add("Unsqueeze", count, axis)
        return self.add("Slice", table, self.constant(np.array([0])), count, axis)

    def model(self, shape: Sequence[Dim], y: str, result: Sequence[Dim]) -> ModelProto:
        """Return the model with input x of `shape` and output `y` of `result`."""
        graph = helper.make_graph(
            self._nodes,
            "open",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, result)],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(n: int, k: int) -> OpenModel:
    """x w + b, k to n, for any number of rows."""
    graph, shape = _Graph(), ("batch", "length", k)
    return OpenModel(graph.model(shape, graph.linear("x", k, n), ("batch", "length", n)), shape, "length", {"batch": 1})


def encoder(width: int = 768, heads: int = 12, layers: int = 4) -> OpenModel:
    """Layers of BERT's encoder on embedded tokens, with attention as matrix multiplications and Gelu by erf."""
    graph, shape, x = _Graph(), ("batch", "length", width), "x"
    for _ in range(layers):
        x = graph.encoder_layer(x, width, heads)
    return OpenModel(graph.model(shape, x, shape), shape, "length", {"batch": 1})


def decoder(width: int = 1024, heads: int = 16, layers: int = 4, most: int = 512) -> OpenModel:
    """Layers of a Llama-like decoder on the embedded tokens of a prompt: RMS norms, rotary position embeddings, a
    causal mask computed from the length, and a gated feed-forward part of 2.75 times the width."""
    graph, shape, x = _Graph(), ("batch", "length", width), "x"
    part, inner = width // heads, 11 * width // 4
    length = graph.length(x)
    places = graph.add("Range", graph.constant(np.array(0)), length, graph.constant(np.array(1)))
    rows = graph.add("Unsqueeze", places, graph.constant(np.array([1])))
    seen = graph.add("GreaterOrEqual", rows, places)
    mask = graph.add("Where", seen, graph.number(0), graph.number(-1e9))
    angles = np.arange(most)[:, None] * 10000.0 ** (-np.arange(part // 2) / (part // 2))
    cosine, sine = (
        graph.first_rows(graph.constant(np.tile(each(angles), 2).astype(np.float32)), length)
        for each in (np.cos, np.sin)
    )

    def turned(value: str) -> str:
        low, high = (
            graph.add("Slice", value, *(graph.constant(np.array([bound])) for bound in (start, end, 3)))
            for start, end in ((0, part // 2), (part // 2, part))
        )
        swapped = graph.add("Concat", graph.add("Neg", high), low, axis=3)
        return graph.add("Add", graph.add("Mul", value, cosine), graph.add("Mul", swapped, sine))

    for _ in range(layers):
        normed = graph.root_mean_square_norm(x, width)
        q, k, v = (graph.split_heads(graph.linear(normed, width, width, False), width, heads) for _ in range(3))
        transposed = graph.add("Transpose", turned(k), perm=[0, 1, 3, 2])
        attended = graph.attention(turned(q), transposed, v, width, heads, mask)
        x = graph.add("Add", x, graph.linear(attended, width, width, False))
        normed = graph.root_mean_square_norm(x, width)
        gate, up = (graph.linear(normed, width, inner, False) for _ in range(2))
        gated = graph.add("Mul", graph.add("Mul", gate, graph.add("Sigmoid", gate)), up)
        x = graph.add("Add", x, graph.linear(gated, inner, width, False))
    return OpenModel(graph.model(shape, x, shape), shape, "length", {"batch": 1})


def speech_encoder(width: int = 384, heads: int = 6, layers: int = 4, most: int = 1500) -> OpenModel:
    """Whisper-like encoder: two convolutions of kernel size 3 over frames of 80 features, the second with stride 2,
    then encoder layers."""
    graph, shape = _Graph(), ("batch", 80, "frames")
    x = graph.gelu(graph.add("Conv", "x", graph.weights(width, 80, 3), graph.weights(width), pads=[1, 1]))
    x = graph.gelu(graph.add("Conv", x, graph.weights(width, width, 3), graph.weights(width), pads=[1, 1], strides=[2]))
    x = graph.add("Transpose", x, perm=[0, 2, 1])
    x = graph.add("Add", x, graph.first_rows(graph.weights(most, width), graph.length(x)))
    for _ in range(layers):
        x = graph.encoder_layer(x, width, heads)
    return OpenModel(graph.model(shape, x, ("batch", "length", width)), shape, "frames", {"batch": 1})


def resnet50(varied: str) -> OpenModel:
    """ResNet-50 with norms folded into the convolutions; `varied` is "batch", with images of 224 pixels, or "pixels",
    with batch 1."""
    pixels = 224 if varied == "batch" else "pixels"
    graph, shape = _Graph(), ("batch", 3, pixels, pixels)

    x = graph.add("Relu", graph.conv("x", (3, 64), 7, 2))
    x = graph.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = graph.add("Relu", graph.conv(x, (before, inner), 1))
            y = graph.add("Relu", graph.conv(y, (inner, inner), 3, stride))
            y = graph.conv(y, (inner, 4 * inner), 1, gain=0.5)
            beside = x if block else graph.conv(x, (before, 4 * inner), 1, stride)
            x = graph.add("Relu", graph.add("Add", y, beside))
            before = 4 * inner
    model = graph.model(shape, graph.classes(x, 2048), ("batch", 1000))
    return OpenModel(model, shape, varied, {} if varied == "batch" else {"batch": 1})


# Blocks of MobileNet v2: expansion, output channels, repetitions, stride of the first.
_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2() -> OpenModel:
    """MobileNet v2 with norms folded into the convolutions, batch 1, for square images of any size."""
    graph, shape = _Graph(), ("batch", 3, "pixels", "pixels")

    def relu6(x: str) -> str:
        return graph.add("Clip", x, graph.number(0), graph.number(6))

    x, before = relu6(graph.conv("x", (3, 32), 3, 2)), 32
    for expansion, after, repetitions, first in _INVERTED:
        for repetition in range(repetitions):
            inner, stride = expansion * before, 1 if repetition else first
            y = relu6(graph.conv(x, (before, inner), 1)) if expansion > 1 else x
            y = graph.conv(relu6(graph.conv(y, (inner, inner), 3, stride, inner)), (inner, after), 1)
            x, before = graph.add("Add", x, y) if repetition else y, after
    x = relu6(graph.conv(x, (before, 1280), 1))
    return OpenModel(graph.model(shape, graph.classes(x, 1280), ("batch", 1000)), shape, "pixels", {"batch": 1})


def lstm(hidden: int = 256) -> OpenModel:
    """An LSTM over a sequence of vectors as wide as its state, batch 1."""
    graph, shape = _Graph(), ("length", "batch", hidden)
    weights = (graph.weights(1, 4 * hidden, hidden), graph.weights(1, 4 * hidden, hidden), graph.weights(1, 8 * hidden))
    y = graph.add("LSTM", "x", *weights, hidden_size=hidden)
    return OpenModel(graph.model(shape, y, ("length", 1, "batch", hidden)), shape, "length", {"batch": 1})
