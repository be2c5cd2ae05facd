"""A decoder in the layout of onnxruntime-genai's model builder: block-quantised weights, caches as inputs and outputs.

All weights are random. Shapes are those of published models: Qwen2 0.5B, Llama 3.2 1B, and a Llama-like one with 542
million parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder. `bits` and `block` describe its weights, 32 bits are floats; `level` is accuracy_level, where
    4 allows rows to be quantised to 8 bits. `biased`: queries, keys and values have biases."""

    layers: int
    width: int
    heads: int
    groups: int
    inner: int
    words: int
    most: int = 4096
    biased: bool = False
    bits: int = 4
    block: int = 32
    level: int = 0

    @property
    def head(self) -> int:
        """Number of elements of a head."""
        return self.width // self.heads

    @property
    def weights(self) -> int:
        """Number of weights of all matrix multiplications."""
        kv = self.groups * self.head
        layer = 2 * self.width * self.width + 2 * self.width * kv + 3 * self.width * self.inner
        return self.layers * layer + self.width * self.words

    def bytes_of_a_step(self, past: int, scale: int = 4) -> float:
        """Bytes of weights, of scales with `scale` bytes each, and of caches that one token after `past` others
        reads."""
        caches = 2 * 4 * self.layers * self.groups * self.head * past
        return self.weights * (4.0 if self.bits == 32 else self.bits / 8 + scale / self.block) + caches


DECODERS = {
    "qwen2-0.5b": Decoder(24, 896, 14, 2, 4864, 151936, biased=True),
    "llama-3.2-1b": Decoder(16, 2048, 32, 8, 8192, 128256),
    "llama-542m": Decoder(16, 1536, 24, 24, 4096, 32000),
    "small": Decoder(2, 128, 4, 2, 256, 500, most=1024),
}


class _Graph:
    def __init__(self, sizes: Decoder) -> None:
        self.d = sizes
        self.nodes: list[object] = []
        self.constants: list[TensorProto] = []
        self.rng = np.random.default_rng(0)

    def add(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        names = [name, *(f"{name}_{place}" for place in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def gain(self) -> str:
        return self.constant((1 + 0.1 * self.rng.standard_normal(self.d.width)).astype(np.float32))

    def product(self, x: str, k: int, n: int) -> str:
        """Multiply x by random weights of k x n; the result keeps x's magnitude."""
        d, scale = self.d, 1 / np.sqrt(k)
        if d.bits == 32:
            weights = self.rng.standard_normal((k, n), np.float32) * np.float32(scale)
            return self.add("MatMul", x, self.constant(weights))
        blocks, steps = -(-k // d.block), 4.6 if d.bits == 4 else 74.0
        values = self.rng.integers(0, 256, (n, blocks, d.block * d.bits // 8), np.uint8)
        scales = self.rng.random(n * blocks, np.float32) * np.float32(0.4 * scale / steps) + np.float32(scale / steps)
        operands = [x, self.constant(values), self.constant(scales)]
        sizes = {"K": k, "N": n, "bits": d.bits, "block_size": d.block, "accuracy_level": d.level}
        return self.add("MatMulNBits", *operands, domain=DOMAIN, **sizes)

    def layer(
        self, number: int, x: str, skip: str, lengths: str, total: str, tables: tuple[str, str]
    ) -> tuple[str, str]:
        """Return (the layer's contribution to its residual input, that input)."""
        d, kv = self.d, self.d.groups * self.d.head
        if skip:
            normed = self.add(
                "SkipSimplifiedLayerNormalization", x, skip, self.gain(), outputs=4, domain=DOMAIN, epsilon=1e-6
            )
            x = f"{normed}_3"
        else:
            normed = self.add("SimplifiedLayerNormalization", x, self.gain(), axis=-1, epsilon=1e-6)
        parts = [self.product(normed, d.width, size) for size in (d.width, kv, kv)]
        if d.biased:
            bias = [self.constant(0.1 * self.rng.standard_normal(size, np.float32)) for size in (d.width, kv, kv)]
            parts = [self.add("Add", *both) for both in zip(parts, bias, strict=True)]
        past = [f"past_key_values.{number}.{name}" for name in ("key", "value")]
        attended = self.add(
            *("GroupQueryAttention", *parts, *past, lengths, total, *tables),
            outputs=3,
            domain=DOMAIN,
            num_heads=d.heads,
            kv_num_heads=d.groups,
            do_rotary=1,
        )
        for place, name in enumerate(("key", "value"), 1):
            self.nodes[-1].output[place] = f"present.{number}.{name}"  # type: ignore[attr-defined]
        attended = self.product(attended, d.width, d.width)
        normed = self.add(
            "SkipSimplifiedLayerNormalization", x, attended, self.gain(), outputs=4, domain=DOMAIN, epsilon=1e-6
        )
        x = f"{normed}_3"
        gate, up = (self.product(normed, d.width, d.inner) for _ in range(2))
        gated = self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)
        return self.product(gated, d.inner, d.width), x


def decoder(sizes: Decoder) -> ModelProto:
    """Return the model: input_ids, attention_mask and caches to logits and caches."""
    d, g = sizes, _Graph(sizes)
    one, axis = g.constant(np.array(1)), g.constant(np.array([1]))
    lengths = g.add("Sub", g.add("ReduceSum", "attention_mask", axis, keepdims=0), one)
    lengths = g.add("Cast", lengths, to=TensorProto.INT32)
    total = g.add("Cast", g.add("Gather", g.add("Shape", "attention_mask"), one, axis=0), to=TensorProto.INT32)
    angles = np.arange(d.most)[:, None] * 10000.0 ** (-np.arange(d.head // 2) / (d.head // 2))
    tables = (g.constant(np.cos(angles).astype(np.float32)), g.constant(np.sin(angles).astype(np.float32)))
    words = g.constant(g.rng.standard_normal((d.words, d.width), np.float32))
    x, skip = g.add("Gather", words, "input_ids", axis=0), ""
    for number in range(d.layers):
        skip, x = g.layer(number, x, skip, lengths, total, tables)
    normed = g.add("SkipSimplifiedLayerNormalization", x, skip, g.gain(), outputs=4, domain=DOMAIN, epsilon=1e-6)
    logits = g.product(normed, d.width, d.words)
    g.nodes[-1].output[0] = logits = "logits"  # type: ignore[attr-defined]
    whole, real = TensorProto.INT64, TensorProto.FLOAT
    caches = [f"{number}.{name}" for number in range(d.layers) for name in ("key", "value")]
    inputs = [("input_ids", whole, ["batch", "length"]), ("attention_mask", whole, ["batch", "total"])]
    inputs += [(f"past_key_values.{name}", real, ["batch", d.groups, "past", d.head]) for name in caches]
    outputs = [(logits, real, ["batch", "length", d.words])]
    outputs += [(f"present.{name}", real, ["batch", d.groups, "total", d.head]) for name in caches]
    ends = [[helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    graph = helper.make_graph(g.nodes, "decoder", *ends, g.constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def with_weights(sizes: Decoder, bits: int, block: int = 32, level: int = 0) -> Decoder:
    """Return the decoder with other weights."""
    return replace(sizes, bits=bits, block=block, level=level)
