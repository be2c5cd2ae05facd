"""A decoder in llama.cpp, through llama-cpp-python, which builds it for this CPU."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from tvm_tiling.runtime.threads import default_thread_count

from ..language_graph import Decoder
from .decoder import Step


class LlamaDecoder:
    """Uses one context per step; tokens that a run appended are removed from the cache before the next run."""

    name: ClassVar[str] = "llama.cpp"
    needs: ClassVar[tuple[str, ...]] = ("llama_cpp", "gguf")
    file: ClassVar[str] = "model.gguf"

    def __init__(self, folder: Path, sizes: Decoder) -> None:
        self.path, self.words = folder / self.file, sizes.words

    def step(self, past: np.ndarray, new: np.ndarray) -> Step:
        import llama_cpp

        cores, every = default_thread_count(), len(past) + len(new)
        model = llama_cpp.Llama(
            str(self.path), n_ctx=every + 64, n_batch=every, n_threads=cores, n_threads_batch=cores, verbose=False
        )
        if len(past):
            model.eval(past.tolist())
        tokens = new.tolist()

        def run() -> np.ndarray:
            model.n_tokens = len(past)
            model.eval(tokens)
            return np.ctypeslib.as_array(llama_cpp.llama_get_logits(model.ctx), shape=(self.words,))

        return run
