"""A whole network in ncnn, in float32, converted by pnnx."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from ..network_files import Network
from .network import NetworkPeer, Refused, Run

WEIGHTS, GRAPH = "model.ncnn.bin", "model.ncnn.param"


class NcnnNetwork(NetworkPeer):
    """Uses one extractor per run, as ncnn requires; half precision is off."""

    name: ClassVar[str] = "ncnn"
    needs: ClassVar[tuple[str, ...]] = ("ncnn", "pnnx")

    @classmethod
    def convert(cls, network: Network) -> None:
        if (network.folder / GRAPH).is_file():
            return
        import pnnx

        if network.batch != 1:
            raise Refused("ncnn does not support a batch axis")
        built = network.build()
        before = os.getcwd()
        os.chdir(network.folder)  # where pnnx writes
        try:
            pnnx.export(built.module, "model.pt", built.inputs, fp16=False)
        finally:
            os.chdir(before)

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        import ncnn

        net = ncnn.Net()
        net.opt.num_threads = cores
        for kind in ("packed", "storage", "arithmetic"):
            setattr(net.opt, f"use_fp16_{kind}", False)
        net.opt.use_bf16_storage = False
        if net.load_param(str(network.folder / GRAPH)) or net.load_model(str(network.folder / WEIGHTS)):
            raise Refused("ncnn cannot load the model converted by pnnx")
        inputs, outputs = net.input_names(), net.output_names()
        given = [ncnn.Mat(array[0]).clone() for array in network.inputs()]

        def run() -> Any:
            with net.create_extractor() as extractor:
                for name, matrix in zip(inputs, given, strict=True):
                    extractor.input(name, matrix)
                return [extractor.extract(name)[1].numpy()[None] for name in outputs]

        return run
