"""A decoder in onnxruntime-genai, which updates caches in its own buffers in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np

from tvm_tiling.runtime.threads import default_thread_count

from ..language_graph import Decoder
from .decoder import Step


def _config(sizes: Decoder, file: str) -> dict:
    """Return the contents of the model's genai_config.json."""
    parts = {"key": "key", "value": "value"}
    return {
        "model": {
            "type": "llama",
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "vocab_size": sizes.words,
            "context_length": sizes.most,
            "decoder": {
                "session_options": {"intra_op_num_threads": default_thread_count(), "provider_options": []},
                "filename": file,
                "head_size": sizes.head,
                "hidden_size": sizes.width,
                "num_attention_heads": sizes.heads,
                "num_key_value_heads": sizes.groups,
                "num_hidden_layers": sizes.layers,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    **{f"past_{part}_names": f"past_key_values.%d.{name}" for part, name in parts.items()},
                },
                "outputs": {
                    "logits": "logits",
                    **{f"present_{part}_names": f"present.%d.{name}" for part, name in parts.items()},
                },
            },
        },
        "search": {"max_length": sizes.most, "past_present_share_buffer": True, "do_sample": False},
    }


class GenaiDecoder:
    """A generator that is rewound to the past after each run."""

    name: ClassVar[str] = "genai"
    needs: ClassVar[tuple[str, ...]] = ("onnxruntime_genai",)
    file: ClassVar[str] = "model.onnx"

    def __init__(self, folder: Path, sizes: Decoder) -> None:
        import onnxruntime_genai

        (folder / "genai_config.json").write_text(json.dumps(_config(sizes, self.file)))
        self.genai, self.model = onnxruntime_genai, onnxruntime_genai.Model(str(folder))

    def step(self, past: np.ndarray, new: np.ndarray) -> Step:
        given = self.genai.GeneratorParams(self.model)
        given.set_search_options(max_length=len(past) + len(new) + 1, batch_size=1)
        generator = self.genai.Generator(self.model, given)
        if len(past):
            generator.append_tokens(past.astype(np.int32))
        tokens = new.astype(np.int32)

        def run() -> np.ndarray:
            generator.rewind_to(len(past))
            generator.append_tokens(tokens)
            return generator.get_logits()[0, -1]

        return run
