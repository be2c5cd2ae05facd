"""A decoder of random weights as a GGUF file, written as llama.cpp's converter writes one of the architecture qwen2."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .language_graph import Decoder

_STEPS = {"Q4_0": 5, "Q8_0": 74}  # of a weight that is as large as most
TYPES = {4: "Q4_0", 8: "Q8_0"}


def write_decoder(path: Path, sizes: Decoder) -> None:
    """The file, its table of words also the last product's weights."""
    import gguf

    d, kind, rng = sizes, getattr(gguf.GGMLQuantizationType, TYPES[sizes.bits]), np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(d.layers)
    writer.add_context_length(d.most)
    writer.add_embedding_length(d.width)
    writer.add_feed_forward_length(d.inner)
    writer.add_head_count(d.heads)
    writer.add_head_count_kv(d.groups)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    # llama.cpp reads a file without words only where it says so.
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(d.words)
    writer.add_eos_token_id(2)

    def vector(name: str, size: int, around: float) -> None:
        writer.add_tensor(name, (around + 0.1 * rng.standard_normal(size)).astype(np.float32))

    def table(name: str, n: int, k: int) -> None:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        rows = rng.integers(0, 256, (n, k // elements, size), np.uint8)
        step = (k**-0.5 / _STEPS[kind.name] * (1 + 0.2 * rng.random(rows.shape[:2]))).astype(np.float16)
        rows[..., :2] = step[..., None].view(np.uint8)
        writer.add_tensor(name, rows.reshape(n, -1), raw_dtype=kind)

    table("token_embd.weight", d.words, d.width)
    vector("output_norm.weight", d.width, 1.0)
    for number in range(d.layers):
        name = f"blk.{number}"
        for part, heads in (("q", d.heads), ("k", d.groups), ("v", d.groups)):
            table(f"{name}.attn_{part}.weight", heads * d.head, d.width)
            vector(f"{name}.attn_{part}.bias", heads * d.head, 0.0)
        table(f"{name}.attn_output.weight", d.width, d.heads * d.head)
        for part in ("attn_norm", "ffn_norm"):
            vector(f"{name}.{part}.weight", d.width, 1.0)
        for part in ("gate", "up"):
            table(f"{name}.ffn_{part}.weight", d.inner, d.width)
        table(f"{name}.ffn_down.weight", d.width, d.inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
