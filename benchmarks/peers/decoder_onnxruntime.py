"""A decoder in onnxruntime, whose output caches are the next step's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from ..language_graph import Decoder
from .decoder import Step
from .onnxruntime_peer import session_options


def feeds(sizes: Decoder, past: int, new: np.ndarray, caches: dict[str, np.ndarray] | None = None) -> dict:
    """Return the inputs of the model for `new` tokens after `past` ones, whose caches are given if there are any."""
    shape = (1, sizes.groups, 0, sizes.head)
    found = {"input_ids": new[None], "attention_mask": np.ones((1, past + len(new)), np.int64)}
    for number in range(sizes.layers):
        for part in ("key", "value"):
            name = f"{number}.{part}"
            found[f"past_key_values.{name}"] = caches[name] if caches else np.zeros(shape, np.float32)
    return found


class OnnxRuntimeDecoder:
    """A session on all usable cores."""

    name: ClassVar[str] = "onnxruntime"
    needs: ClassVar[tuple[str, ...]] = ("onnxruntime",)
    file: ClassVar[str] = "model.onnx"

    def __init__(self, folder: Path, sizes: Decoder) -> None:
        import onnxruntime

        self.sizes = sizes
        self.session = onnxruntime.InferenceSession(
            folder / self.file, session_options(), providers=["CPUExecutionProvider"]
        )

    def step(self, past: np.ndarray, new: np.ndarray) -> Step:
        caches = None
        if len(past):
            names = [f"{number}.{part}" for number in range(self.sizes.layers) for part in ("key", "value")]
            outputs = [f"present.{name}" for name in names]
            caches = dict(zip(names, self.session.run(outputs, feeds(self.sizes, 0, past)), strict=True))
        given = feeds(self.sizes, len(past), new, caches)
        return lambda: self.session.run(None, given)[0][0, -1]
