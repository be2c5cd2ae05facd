"""A whole network in ncnn, in float32, converted by pnnx."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from ..network_files import Network
from .network import NetworkPeer, Refused, Run

WEIGHTS, GRAPH = "model.ncnn.bin", "model.ncnn.param"


class NcnnNetwork(NetworkPeer):
    """An extractor for each run, as ncnn wants it; half precision is off."""

    name: ClassVar[str] = "ncnn"
    needs: ClassVar[tuple[str, ...]] = ("ncnn", "pnnx")

    @classmethod
    def convert(cls, network: Network) -> None:
        if (network.folder / GRAPH).is_file():
            return
        import pnnx

        if network.batch != 1:
            raise Refused("ncnn has no axis of images")
        built = network.build()
        with contextlib.chdir(network.folder):
            pnnx.export(built.module, "model.pt", built.inputs, fp16=False)

    @classmethod
    def load(cls, network: Network, cores: int) -> Run:
        import ncnn

        net = ncnn.Net()
        net.opt.num_threads = cores
        for kind in ("packed", "storage", "arithmetic"):
            setattr(net.opt, f"use_fp16_{kind}", False)
        net.opt.use_bf16_storage = False
        if net.load_param(str(network.folder / GRAPH)) or net.load_model(str(network.folder / WEIGHTS)):
            raise Refused("ncnn does not load what pnnx made")
        inputs, outputs = net.input_names(), net.output_names()
        given = [ncnn.Mat(array[0]).clone() for array in network.inputs()]

        def run() -> Any:
            with net.create_extractor() as extractor:
                for name, matrix in zip(inputs, given, strict=True):
                    extractor.input(name, matrix)
                return [extractor.extract(name)[1].numpy()[None] for name in outputs]

        return run
