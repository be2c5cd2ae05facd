"""AlexNet's convolutions on Eyeriss beside the times of its silicon. Run from a checkout:
python -m benchmarks.validation_eyeriss

Each layer is run pass by pass under its published mapping. Published processing times leave out what DRAM takes: the
simulated ones have a DRAM without a limit. Silicon codes images and results on their way to and from DRAM. The
simulator does not: its bytes are lessened by what the coding is published to save in the first layer and in the last
one, between them in proportion.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomllib

from tvm_tiling.accel.program.work import work
from tvm_tiling.accel.row_stationary import RowMapping, row_stationary_convolution
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.hardware.memory import OPERANDS
from tvm_tiling.workload import ConvWorkload

PUBLISHED = Path(__file__).parent / "published"
WITHOUT_LIMIT = 1e6  # bytes per cycle


@dataclass(frozen=True)
class Silicon:
    """A layer as it is published: its `mapping`, elements at work, and milliseconds of processing."""

    mapping: RowMapping
    elements: int
    milliseconds: float


@dataclass(frozen=True)
class Simulated:
    """A layer as it is simulated: milliseconds of processing, megabytes of DRAM traffic of kernels and, as they are, of
    images and results; which part of these the coding saves."""

    milliseconds: float
    kernels: float
    maps: float
    saved: float

    @property
    def megabytes(self) -> float:
        """DRAM traffic with coded images and results."""
        return self.kernels + self.maps * (1 - self.saved)


def _layer(size: int, ci: int, co: int, kernel: int, stride: int, padding: int, groups: int) -> ConvWorkload:
    return ConvWorkload(
        n=4,
        h=size,
        w=size,
        ci=ci,
        co=co,
        kh=kernel,
        kw=kernel,
        stride=(stride, stride),
        padding=(padding,) * 4,
        groups=groups,
        dtype="int16",
        layout="NCHW",
    )


LAYERS: Mapping[str, ConvWorkload] = {
    "conv1": _layer(227, 3, 96, 11, 4, 0, 1),
    "conv2": _layer(27, 96, 256, 5, 1, 2, 2),
    "conv3": _layer(13, 256, 384, 3, 1, 1, 1),
    "conv4": _layer(13, 384, 384, 3, 1, 1, 2),
    "conv5": _layer(13, 384, 256, 3, 1, 1, 2),
}
"""AlexNet's, four images."""


@functools.cache
def _published() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((PUBLISHED / "published.toml").read_text())["eyeriss"]
    return table


def silicon() -> dict[str, Silicon]:
    """The published layers."""
    table = _published()
    columns = (table["layers"], table["mapping"], table["active_pes"], table["processing_ms"])
    return {
        name: Silicon(RowMapping(**mapping), elements, milliseconds)
        for name, mapping, elements, milliseconds in zip(*columns, strict=True)
    }


def published_megabytes() -> float:
    """DRAM traffic of all five layers."""
    return float(_published()["dram_megabytes_all_five"])


def saved_of_maps(name: str) -> float:
    """Which part of the traffic of images and results a layer's coding saves."""
    names, table = list(LAYERS), _published()["saved_percent_of_maps"]
    first, last = table[names[0]], table[names[-1]]
    return (first + (last - first) * names.index(name) / (len(names) - 1)) / 100


def eyeriss() -> Hardware:
    """The description of benchmarks/published/eyeriss.toml."""
    return Hardware.load(PUBLISHED / "eyeriss.toml")


def without_dram(hardware: Hardware) -> Hardware:
    """A machine that never waits for DRAM."""
    unit = hardware.near_tile
    assert unit is not None
    external = replace(hardware.memories["external"], bytes_per_cycle=WITHOUT_LIMIT)
    return replace(
        hardware,
        near_tile=replace(unit, bandwidth={**unit.bandwidth, "external": WITHOUT_LIMIT}),
        memories={**hardware.memories, "external": external},
    )


def simulated(workload: ConvWorkload, mapping: RowMapping, saved: float = 0.0) -> Simulated:
    """A layer under a mapping."""
    program = row_stationary_convolution(workload, mapping, eyeriss())
    report = Simulation(program).on(without_dram(program.hardware))
    assert report.clock_mhz is not None
    traffic = dict.fromkeys(OPERANDS, 0.0)
    for batch in work(program).of("bytes"):
        if batch.source == "external":
            traffic[batch.operand] += float(batch.read.sum()) / 1e6
        elif batch.target == "external":
            traffic[batch.operand] += float(batch.bytes.sum()) / 1e6
    milliseconds = report.cycles / report.clock_mhz / 1e3
    return Simulated(milliseconds, traffic["a"], traffic["b"] + traffic["out"], saved)


def main() -> None:
    """Print the table of docs/validation.md."""
    total = 0.0
    for name, layer in silicon().items():
        own = simulated(LAYERS[name], layer.mapping, saved_of_maps(name))
        total += own.megabytes
        error = own.milliseconds / layer.milliseconds - 1
        print(f"{name}: silicon {layer.milliseconds} ms, simulated {own.milliseconds:.1f} ms, {error:+.1%}")
        print(
            f"  DRAM: kernels {own.kernels:.2f} MB, images and results {own.maps:.2f} MB, {own.megabytes:.2f} MB coded"
        )
    print(
        f"DRAM: silicon {published_megabytes()} MB, simulated {total:.1f} MB, {total / published_megabytes() - 1:+.1%}"
    )


if __name__ == "__main__":
    main()
