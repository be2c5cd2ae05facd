"""Small decoders as GGUF files, and their results in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import language_gguf
from benchmarks.language_gguf import LETTERS, TYPES, Sizes, random_rows

__all__ = ["LETTERS", "TYPES", "Sizes", "logits_of", "random_rows", "write_decoder"]


def write_decoder(path: Path, sizes: Sizes, kind: TYPES, **further: Any) -> dict[str, np.ndarray]:
    """Return the file, and its tensors as floats."""
    found: dict[str, np.ndarray] = {}
    language_gguf.write_decoder(path, sizes, kind, **further, floats=found)
    return found


def logits_of(weights: dict[str, np.ndarray], sizes: Sizes, tokens: list[int], frequencies=None) -> np.ndarray:
    """Return [tokens, words] of a decoder in float64, by definition."""
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
