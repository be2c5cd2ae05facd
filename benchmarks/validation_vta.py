"""Validate the simulator against published RTL cycle counts of ResNets on VTA. Run from a checkout: python -m
benchmarks.validation_vta

Simulated are the layers that VTA's own deployment of a ResNet offloads: all convolutions but the first, each with bias,
rounding shift and clipping, and the additions of shortcuts, one program for each distinct layer. The published counts
are those of the default configuration before and after the GEMM unit was pipelined.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tvm import te, topi

import tvm_tiling as tt
from tvm_tiling.accel.plain_convolution import plain_convolution
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.plain_text import plain_toml
from tvm_tiling.workload import ConvWorkload

PUBLISHED = Path(__file__).parent / "published"
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
NETWORKS = {
    "resnet18_v1": "resnet18",
    "resnet34_v1": "resnet34",
    "resnet18_v2": "resnet18",
    "resnet34_v2": "resnet34",
    "resnet50_v2": "resnet50",
}
"""Published networks by the network that is simulated: the versions differ in the position of batch normalisation."""


@dataclass(frozen=True)
class Layer:
    """A convolution of a square image; `shortcut` tells whether another tensor is added to its results."""

    size: int
    ci: int
    co: int
    kernel: int
    stride: int = 1
    shortcut: bool = False

    @property
    def workload(self) -> ConvWorkload:
        """The convolution."""
        return ConvWorkload(
            n=1,
            h=self.size,
            w=self.size,
            ci=self.ci,
            co=self.co,
            kh=self.kernel,
            kw=self.kernel,
            stride=(self.stride, self.stride),
            padding=(self.kernel // 2,) * 4,
            dtype="int8",
        )


def vta(gemm: str) -> Hardware:
    """Return VTA with its GEMM unit "before" pipelining or "pipelined"."""
    machine = Hardware.load(PUBLISHED / "vta_rtl.toml")
    tile = machine.near_tile
    assert tile is not None
    return machine if gemm == "pipelined" else replace(machine, near_tile=replace(tile, macs_of_bytes={"1": 64}))


def layers(network: str) -> list[Layer]:
    """Return the layers of a network from its first pooling to its last, in order."""
    found, size, channels = [], 56, 64
    for stage, blocks in enumerate(DEPTHS[network]):
        inner = 64 << stage
        outer = 4 * inner if network == "resnet50" else inner
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            small = size // stride
            if network == "resnet50":
                found += [Layer(size, channels, inner, 1), Layer(size, inner, inner, 3, stride)]
            else:
                found.append(Layer(size, channels, inner, 3, stride))
            if stride > 1 or channels != outer:
                found.append(Layer(size, channels, outer, 1, stride))
            found.append(Layer(small, inner, outer, 1 if network == "resnet50" else 3, shortcut=True))
            size, channels = small, outer
    return found


def cycles(layer: Layer, hardware: Hardware) -> int:
    """Return the simulated cycles of a layer with its fused epilogue."""
    _, sums = plain_convolution(layer.workload)
    bias = te.placeholder((layer.co,), name="bias", dtype="int32")
    scaled = te.compute(sums.shape, lambda n, y, x, o: ((sums(n, y, x, o) + bias(o)) + 128) >> 8, name="scaled")
    if layer.shortcut:
        other = te.placeholder(sums.shape, name="other", dtype="int8")
        added = te.compute(sums.shape, lambda *at: scaled(*at) + other(*at).astype("int32"), name="added")
    else:
        added = scaled
    result = topi.cast(topi.clip(added, 0, 127), "int8")
    return int(tt.simulate(tt.compile(result, target=hardware, cache=False).program, check=False).cycles)


def network_cycles(network: str, hardware: Hardware) -> int:
    """Return the simulated cycles of all layers of a network, one after the other."""
    own = layers(network)
    once = {layer: cycles(layer, hardware) for layer in dict.fromkeys(own)}
    return sum(once[layer] for layer in own)


def by_width(widths: Sequence[int] = (64, 128, 256, 512)) -> dict[int, int]:
    """Return the cycles of ResNet-18's layer C2 by the width of the memory port in bits."""
    machine = vta("pipelined")
    tile = machine.near_tile
    assert tile is not None
    found = {}
    for bits in widths:
        external = replace(machine.memories["external"], bytes_per_cycle=bits / 8)
        rates = {"external": bits / 8, "internal": bits / 8}
        wide = replace(
            machine, near_tile=replace(tile, bandwidth=rates), memories={**machine.memories, "external": external}
        )
        found[bits] = cycles(Layer(56, 64, 64, 3), wide)
    return found


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables of docs/validation.md."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    published = plain_toml((PUBLISHED / "published.toml").read_text())
    for gemm in ("before", "pipelined"):
        simulated = {network: network_cycles(network, vta(gemm)) for network in DEPTHS}
        for name, network in NETWORKS.items():
            rtl = published["vta_rtl"][name][gemm]
            print(f"{name} {gemm}: RTL {rtl}, simulated {simulated[network]}, {simulated[network] / rtl - 1:+.1%}")
    widths, table = by_width(), published["vta_memory_width"]
    for bits, own in widths.items():
        print(f"{bits} bits: RTL {table[f'bits_{bits}'] / table['bits_64']:.2f}, simulated {own / widths[64]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
