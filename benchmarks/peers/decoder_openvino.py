"""A decoder in OpenVINO, whose output caches are the next step's inputs. OpenVINO chooses the types and the
quantisation of activations."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from tvm_tiling.runtime.threads import default_thread_count

from ..language_graph import Decoder
from .decoder import Step
from .decoder_onnxruntime import feeds


class OpenVinoDecoder:
    """A request on all usable cores, which writes to the same outputs in every run."""

    name: ClassVar[str] = "openvino"
    needs: ClassVar[tuple[str, ...]] = ("openvino",)
    file: ClassVar[str] = "model.onnx"

    def __init__(self, folder: Path, sizes: Decoder) -> None:
        import openvino

        self.sizes, self.tensor = sizes, openvino.Tensor
        core = openvino.Core()
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_NUM_THREADS": default_thread_count(),
        }
        self.model = core.compile_model(core.read_model(folder / self.file), "CPU", settings)

    def step(self, past: np.ndarray, new: np.ndarray) -> Step:
        caches = None
        if len(past):
            results = self.model.create_infer_request().infer(feeds(self.sizes, 0, past))
            named = {port.get_any_name(): value for port, value in results.items()}
            caches = {name[8:]: value.copy() for name, value in named.items() if name.startswith("present.")}
        request = self.model.create_infer_request()
        for name, value in feeds(self.sizes, len(past), new, caches).items():
            request.set_tensor(name, self.tensor(np.ascontiguousarray(value)))
        logits = request.get_tensor("logits")

        def run() -> np.ndarray:
            request.infer()
            return logits.data[0, -1]

        return run
