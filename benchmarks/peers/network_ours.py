"""A whole network compiled by tvm_tiling: a PyTorch module through torch.export, the onnx package's networks from
files."""

from __future__ import annotations

from typing import Any, ClassVar

import tvm_tiling as tt

from ..network_files import Network
from .network import NetworkPeer, Run


class OurNetwork(NetworkPeer):
    """An executable of this package."""

    name: ClassVar[str] = "ours"
    needs: ClassVar[tuple[str, ...]] = ("tvm",)

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        executable = tt.compile(_model(network), threads=cores, cache=False)
        inputs = network.inputs()

        def run() -> Any:
            result = executable.run(*inputs)
            return result if isinstance(result, tuple) else (result,)

        return run


def _model(network: Network) -> Any:
    if not network.from_torch:
        return network.onnx
    import torch

    built = network.build()
    return torch.export.export(built.module, built.inputs)
