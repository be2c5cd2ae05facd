"""A whole network in onnxruntime with default settings, except for the number of threads."""

from __future__ import annotations

from typing import ClassVar

from ..network_files import Network
from .network import NetworkPeer, Run


class OnnxRuntimeNetwork(NetworkPeer):
    """A session of the CPU provider with all optimisations."""

    name: ClassVar[str] = "onnxruntime"
    needs: ClassVar[tuple[str, ...]] = ("onnxruntime",)

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(network.onnx), options, providers=["CPUExecutionProvider"])
        feed = {given.name: array for given, array in zip(session.get_inputs(), network.inputs(), strict=True)}
        return lambda: session.run(None, feed)
