"""A whole network in PyTorch: eager, and in its CPU compilers, Inductor and AMD's zentorch."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from ..network_files import Network, as_arrays
from .network import NetworkPeer, Run


class EagerNetwork(NetworkPeer):
    """PyTorch without a compiler."""

    name: ClassVar[str] = "torch"
    needs: ClassVar[tuple[str, ...]] = ("torch",)

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        import torch

        torch.set_num_threads(cores)
        built = network.build()

        def run() -> Any:
            with torch.inference_mode():
                return as_arrays(built.module(*built.inputs))

        return run


class InductorNetwork(NetworkPeer):
    """torch.compile with frozen weights and autotuned matrix multiplications."""

    name: ClassVar[str] = "inductor"
    needs: ClassVar[tuple[str, ...]] = ("torch",)
    programs: ClassVar[tuple[str, ...]] = ("g++",)
    options: ClassVar[dict[str, Any]] = {"mode": "max-autotune-no-cudagraphs"}

    @classmethod
    def convert(cls, network: Network) -> None:
        """Compile once: the files that it caches make loading fast."""
        cls.load(network, len(os.sched_getaffinity(0)))

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(network.folder.parent / "inductor")
        import torch
        from torch._inductor import config

        torch.set_num_threads(cores)
        config.freezing = True
        built = network.build()
        with torch.inference_mode():
            compiled = torch.compile(built.module, **cls.options)
            compiled(*built.inputs)

        def run() -> Any:
            with torch.inference_mode():
                return as_arrays(compiled(*built.inputs))

        return run


class ZentorchNetwork(InductorNetwork):
    """The same with zentorch, AMD's operators."""

    name: ClassVar[str] = "zentorch"
    needs: ClassVar[tuple[str, ...]] = ("torch", "zentorch")
    options: ClassVar[dict[str, Any]] = {"backend": "zentorch"}

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        import zentorch  # noqa: F401

        return super().load(network, cores)
