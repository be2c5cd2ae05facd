"""A whole ONNX model in OpenVINO, in float32 or in OpenVINO's default precision."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tvm_tiling.runtime.threads import default_thread_count

from ..network_files import Network
from .network import NetworkPeer, Run

# OpenVINO's names of types. By default it computes float32 models in bf16 if the CPU has instructions for it.
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def available() -> bool:
    """Return whether OpenVINO is installed."""
    return importlib.util.find_spec("openvino") is not None


def openvino_network(
    content: bytes, inputs: Sequence[np.ndarray], precision: str | None = None
) -> Callable[[], list[np.ndarray]]:
    """Return a function that runs the model on these inputs with as many threads as this package uses, one run at a
    time, and returns its outputs, which the next run overwrites. `precision` is one of PRECISIONS; None selects
    OpenVINO's default."""
    import openvino

    core = openvino.Core()
    model = core.read_model(content)
    # Dynamic axes get the inputs' sizes.
    model.reshape({port: list(array.shape) for port, array in zip(model.inputs, inputs, strict=True)})
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": default_thread_count(),
    }
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = PRECISIONS[precision]
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    held = [np.ascontiguousarray(array) for array in inputs]  # the request holds them by address only
    for number, array in enumerate(held):
        request.set_input_tensor(number, openvino.Tensor(array, shared_memory=True))
    results = [request.get_output_tensor(number) for number in range(len(model.outputs))]

    def run(_held: object = held) -> list[np.ndarray]:
        request.infer()
        return [tensor.data for tensor in results]

    return run


class OpenVinoNetwork(NetworkPeer):
    """OpenVINO in float32."""

    name: ClassVar[str] = "openvino"
    needs: ClassVar[tuple[str, ...]] = ("openvino",)
    precision: ClassVar[str | None] = "float32"

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        return openvino_network(network.onnx.read_bytes(), network.inputs(), cls.precision)


class OpenVinoByDefault(OpenVinoNetwork):
    """OpenVINO in its default precision: bfloat16 where the CPU has instructions for it."""

    name: ClassVar[str] = "openvino-default"
    exact: ClassVar[bool] = False
    precision: ClassVar[str | None] = None
