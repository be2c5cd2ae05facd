"""Small decoders as GGUF files, written as llama.cpp's converter writes them, and what they compute in float64."""

from __future__ import annotations

import string
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

TYPES = gguf.GGMLQuantizationType


@dataclass(frozen=True)
class Sizes:
    """Of a decoder; `tied`: without a tensor for the last product."""

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
"""Tokens of such a tokenizer."""


def random_rows(rng: np.random.Generator, n: int, k: int, kind: TYPES) -> np.ndarray:
    """Rows of a type whose scales keep the magnitude of what they are multiplied by."""
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


# Where float16s lie in a block, and by what their weights are above one.
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
    path: Path, sizes: Sizes, kind: TYPES, *, changed: dict[str, object] | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """The file, and its tensors as floats. `changed`: metadata of the architecture; None leaves it out."""
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
    # llama.cpp reads a file without words only where it says so.
    writer.add_tokenizer_model("llama" if s.letters else "none")
    if s.letters:
        writer.add_token_list(LETTERS)
        writer.add_token_scores([0.0] * len(LETTERS))
        writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * (len(LETTERS) - 259)])
        writer.add_bos_token_id(1)
    writer.add_vocab_size(s.words)
    writer.add_eos_token_id(2)
    found: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int) -> None:
        if len(shape) == 1:
            around = 0.0 if name.endswith("bias") else 1.0
            found[name] = (around + 0.1 * rng.standard_normal(shape)).astype(np.float32)
            writer.add_tensor(name, found[name])
            return
        data = random_rows(rng, *shape, kind)
        found[name] = gguf.quants.dequantize(data, kind).reshape(shape)
        writer.add_tensor(name, data, raw_dtype=kind)

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
    return found


def logits_of(weights: dict[str, np.ndarray], sizes: Sizes, tokens: list[int], frequencies=None) -> np.ndarray:
    """[tokens, words] of a decoder in float64, by the definition."""
    s, w = sizes, {name: value.astype(np.float64) for name, value in weights.items()}
    count = len(tokens)
    x = w["token_embd.weight"][tokens]
    if frequencies is None:
        frequencies = s.base ** (-np.arange(s.head // 2) / (s.head // 2))
    angles = np.arange(count)[:, None] * frequencies

    def normed(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + s.epsilon) * w[name]

    def turned(x):
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        pairs = (x[..., 0::2], x[..., 1::2]) if s.architecture == "llama" else np.split(x, 2, axis=-1)
        both = pairs[0] * cosine - pairs[1] * sine, pairs[1] * cosine + pairs[0] * sine
        if s.architecture == "llama":
            return np.stack(both, axis=-1).reshape(x.shape)
        return np.concatenate(both, axis=-1)

    mask = np.triu(np.full((count, count), -np.inf), 1)
    for number in range(s.layers):
        name = f"blk.{number}"
        h = normed(x, f"{name}.attn_norm.weight")
        q, k, v = (h @ w[f"{name}.attn_{p}.weight"].T + w.get(f"{name}.attn_{p}.bias", 0.0) for p in "qkv")
        q, k, v = (each.reshape(count, -1, s.head) for each in (q, k, v))
        if s.architecture == "qwen3":
            q, k = normed(q, f"{name}.attn_q_norm.weight"), normed(k, f"{name}.attn_k_norm.weight")
        q, k = turned(q), turned(k)
        k, v = (np.repeat(each, s.heads // s.groups, axis=1) for each in (k, v))
        scores = np.einsum("ihe,jhe->hij", q, k) / np.sqrt(s.head) + mask
        weight = np.exp(scores - scores.max(-1, keepdims=True))
        y = np.einsum("hij,jhe->ihe", weight / weight.sum(-1, keepdims=True), v).reshape(count, -1)
        x = x + y @ w[f"{name}.attn_output.weight"].T
        h = normed(x, f"{name}.ffn_norm.weight")
        gate = h @ w[f"{name}.ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[f"{name}.ffn_up.weight"].T)) @ w[f"{name}.ffn_down.weight"].T
    return normed(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T
