"""Models of a single convolution, channels first in and out, beside libraries that run networks, in turns.

    python -m benchmarks.single_layers --peer onnxruntime openvino --json results/layers.json

Each library has a process of its own, as in benchmarks.peer_networks. A part is our time beside theirs of the same
round, the median of all rounds; below 1 ours is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvm_tiling.measure import machine_record

from .network_files import INPUTS, OUTPUTS, Network, save
from .peer_networks import measure, print_entries
from .peers.network import NetworkPeer, missing
from .peers.network_onnxruntime import OnnxRuntimeNetwork
from .peers.network_torch import EagerNetwork
from .peers.onnx_model import model
from .peers.openvino_network import OpenVinoNetwork
from .result import earlier_entries, write_whole
from .zoo import Built

PEERS: dict[str, type[NetworkPeer]] = {peer.name: peer for peer in (OnnxRuntimeNetwork, OpenVinoNetwork, EagerNetwork)}
FORMAT, VERSION = "tvm-tiling-single-layers", 1


@dataclass(frozen=True)
class Layer:
    """A convolution of square kernels over square images."""

    ci: int
    co: int
    size: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1

    @property
    def attributes(self) -> dict[str, int | list[int]]:
        """Those of the ONNX node."""
        return {
            "kernel_shape": [self.kernel] * 2,
            "strides": [self.stride] * 2,
            "pads": [self.padding] * 4,
            "dilations": [self.dilation] * 2,
            "group": self.groups,
        }


LAYERS = {
    "pointwise_512_24": Layer(512, 24, 14),
    "pointwise_96_24": Layer(96, 24, 56),
    "pointwise_256_128": Layer(256, 128, 28),
    "pointwise_24_144": Layer(24, 144, 56),
    "pointwise_576_96": Layer(576, 96, 14),
    "pointwise_stride": Layer(256, 512, 56, stride=2),
    "depthwise_116": Layer(116, 116, 28, 3, padding=1, groups=116),
    "depthwise_72_5x5": Layer(72, 72, 56, 5, stride=2, padding=2, groups=72),
    "groups_4": Layer(64, 64, 56, 3, padding=1, groups=4),
    "groups_32": Layer(128, 128, 56, 3, padding=1, groups=32),
    "plain_64": Layer(64, 64, 56, 3, padding=1),
    "dilated_64": Layer(64, 64, 28, 3, padding=2, dilation=2),
    "dilated_256": Layer(256, 256, 28, 3, padding=2, dilation=2),
    "dilated_512": Layer(512, 512, 28, 3, padding=4, dilation=4),
    "dilated_aspp": Layer(512, 256, 33, 3, padding=12, dilation=12),
    "few_outputs": Layer(64, 3, 112, 3, padding=1),
    "stem_3": Layer(3, 32, 224, 3, stride=2, padding=1),
}


@dataclass(frozen=True)
class LayerNetwork(Network):
    """A model of one of LAYERS on disk."""

    @property
    def from_torch(self) -> bool:
        """False: we compile the ONNX model."""
        return False

    def build(self) -> Built:
        """The module of PyTorch; weights are those of the ONNX model."""
        import torch

        layer, weights = LAYERS[self.name], self._weights()
        module = torch.nn.Conv2d(
            layer.ci,
            layer.co,
            layer.kernel,
            layer.stride,
            layer.padding,
            layer.dilation,
            layer.groups,
            bias=False,
        ).eval()
        module.weight.data = torch.from_numpy(weights)
        return Built(module, tuple(map(torch.from_numpy, self.inputs())))

    def write(self) -> None:
        """Make the files, unless they are there."""
        if (self.folder / OUTPUTS).is_file():
            return
        import torch

        self.folder.mkdir(parents=True, exist_ok=True)
        layer = LAYERS[self.name]
        data = np.random.default_rng(1).standard_normal((self.batch, layer.ci, layer.size, layer.size))
        save(self.folder / INPUTS, [data.astype(np.float32)])
        built = self.build()
        with torch.inference_mode():
            result = built.module(*built.inputs).numpy()
        operands = {"x": self.inputs()[0]}, {"w": self._weights()}
        self.onnx.write_bytes(model("Conv", *operands, result, ("x", "w"), 17, **layer.attributes))
        save(self.folder / OUTPUTS, [result])

    def _weights(self) -> np.ndarray:
        layer = LAYERS[self.name]
        terms = layer.ci // layer.groups * layer.kernel**2
        drawn = np.random.default_rng(2).standard_normal((layer.co, layer.ci // layer.groups, *[layer.kernel] * 2))
        return (drawn / terms**0.5).astype(np.float32)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table and write all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=f"left out: all of {', '.join(LAYERS)}")
    parser.add_argument("--peer", nargs="+", choices=sorted(PEERS), default=list(PEERS), help="left out: all installed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one turn")
    parser.add_argument("--json", type=Path, help="written after each layer; layers that are in it are left out")
    given = parser.parse_args(arguments)
    names = given.layers or list(LAYERS)
    if unknown := [name for name in names if name not in LAYERS]:
        parser.error(f"unknown layers: {', '.join(unknown)}; known: {', '.join(LAYERS)}")
    peers = [PEERS[name] for name in given.peer if not missing(PEERS[name])]
    entries = earlier_entries(given.json, FORMAT, VERSION, "networks")
    known = {entry["network"] for entry in entries}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if name in known:
                continue
            entries.append(measure(LayerNetwork(name, 1, Path(folder) / name), peers, given.rounds, given.seconds))
            print_entries(entries[-1:])
            if given.json:
                record = {"format": FORMAT, "version": VERSION, "machine": machine_record(), "networks": entries}
                write_whole(given.json, json.dumps(record, indent=1))
    if len(entries) > 1:
        print_entries(entries)
    return 1 if any(entry["libraries"]["ours"]["status"] != "ok" for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
