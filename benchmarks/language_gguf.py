"""Decoders with random weights as GGUF files in the layout of llama.cpp's converter."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from .language_graph import Decoder

TYPES = gguf.GGMLQuantizationType
OF_BITS = {4: TYPES.Q4_0, 8: TYPES.Q8_0}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder; `tied`: without a tensor of its own for the output layer."""

    architecture: str = "llama"
    layers: int = 2
    width: int = 256
    heads: int = 4
    groups: int = 2
    head: int = 64
    inner: int = 256
    words: int = 100
    most: int = 64
    base: float = 10000.0
    epsilon: float = 1e-5
    tied: bool = False
    letters: bool = False  # whether it has a tokenizer, of letters and bytes


LETTERS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *string.ascii_letters]
"""Return the tokens of such a tokenizer."""


def random_rows(rng: np.random.Generator, n: int, k: int, kind: TYPES) -> np.ndarray:
    """Return rows of a type whose scales preserve the magnitude of the values they are multiplied with."""
    scale = 1 / np.sqrt(k)
    if kind in (TYPES.F32, TYPES.F16, TYPES.BF16):
        weights = (rng.standard_normal((n, k)) * scale).astype(np.float32)
        return gguf.quants.quantize(weights, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    found = rng.integers(0, 256, (n, k // elements, size)).astype(np.uint8)
    halves, steps = _HALVES[kind]
    for place in halves:
        step = (scale / steps * (1 + 0.2 * rng.random(found.shape[:2]))).astype(np.float16)
        found[..., place : place + 2] = step[..., None].view(np.uint8)
    return found.reshape(n, -1)


# Offsets of the float16 values in a block, and the factor of its weights above one.
_HALVES = {
    TYPES.Q4_0: ((0,), 5),
    TYPES.Q4_1: ((0, 2), 9),
    TYPES.Q5_0: ((0,), 9),
    TYPES.Q5_1: ((0, 2), 18),
    TYPES.Q8_0: ((0,), 74),
    TYPES.Q2_K: ((80, 82), 20),
    TYPES.Q3_K: ((108,), 45),
    TYPES.Q4_K: ((0, 2), 300),
    TYPES.Q5_K: ((0, 2), 600),
    TYPES.Q6_K: ((208,), 1400),
}


def write_decoder(
    path: Path,
    sizes: Sizes,
    kind: TYPES,
    *,
    changed: dict[str, object] | None = None,
    seed: int = 0,
    floats: dict[str, np.ndarray] | None = None,
) -> None:
    """Return the file. `changed`: metadata of the architecture; None leaves an item out. `floats` receives the tensors
    as floats."""
    s, rng = sizes, np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, s.architecture)
    metadata = {
        "block_count": s.layers,
        "embedding_length": s.width,
        "feed_forward_length": s.inner,
        "context_length": s.most,
        "attention.head_count": s.heads,
        "attention.head_count_kv": s.groups,
        "attention.key_length": s.head,
        "attention.value_length": s.head,
        "attention.layer_norm_rms_epsilon": s.epsilon,
        "rope.freq_base": s.base,
        "rope.dimension_count": s.head,
        **(changed or {}),
    }
    for name, value in metadata.items():
        if isinstance(value, float):
            writer.add_float32(f"{s.architecture}.{name}", value)
        elif isinstance(value, str):
            writer.add_string(f"{s.architecture}.{name}", value)
        elif value is not None:
            writer.add_uint32(f"{s.architecture}.{name}", value)
    # llama.cpp reads a file without a vocabulary only if the file says so.
    writer.add_tokenizer_model("llama" if s.letters else "none")
    if s.letters:
        writer.add_token_list(LETTERS)
        writer.add_token_scores([0.0] * len(LETTERS))
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(LETTERS) - 259)])
        writer.add_bos_token_id(1)
    writer.add_vocab_size(s.words)
    writer.add_eos_token_id(2)

    def add(name: str, *shape: int) -> None:
        if len(shape) == 1:
            around = 0.0 if name.endswith("bias") else 1.0
            data = (around + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            writer.add_tensor(name, data)
        else:
            data = random_rows(rng, *shape, kind)
            writer.add_tensor(name, data, raw_dtype=kind)
        if floats is not None:
            floats[name] = data if len(shape) == 1 else gguf.quants.dequantize(data, kind).reshape(shape)

    add("token_embd.weight", s.words, s.width)
    add("output_norm.weight", s.width)
    if not s.tied:
        add("output.weight", s.words, s.width)
    for number in range(s.layers):
        name = f"blk.{number}"
        for part, heads in (("q", s.heads), ("k", s.groups), ("v", s.groups)):
            add(f"{name}.attn_{part}.weight", heads * s.head, s.width)
            if s.architecture == "qwen2":
                add(f"{name}.attn_{part}.bias", heads * s.head)
            if s.architecture == "qwen3" and part != "v":
                add(f"{name}.attn_{part}_norm.weight", s.head)
        add(f"{name}.attn_output.weight", s.width, s.heads * s.head)
        for part in ("attn_norm", "ffn_norm"):
            add(f"{name}.{part}.weight", s.width)
        for part in ("gate", "up"):
            add(f"{name}.ffn_{part}.weight", s.inner, s.width)
        add(f"{name}.ffn_down.weight", s.width, s.inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sizes_of(decoder: Decoder) -> Sizes:
    """Return the tensors of a decoder of language_graph.py, whose embedding table is also the weight of the output
    layer."""
    d = decoder
    return Sizes(
        architecture="qwen2",
        layers=d.layers,
        width=d.width,
        heads=d.heads,
        groups=d.groups,
        head=d.head,
        inner=d.inner,
        words=d.words,
        most=d.most,
        epsilon=1e-6,
        tied=True,
    )
