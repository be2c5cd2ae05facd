"""Validate the simulator against the measured times of AlexNet's convolutions on the Eyeriss chip. Run from a checkout:
python -m benchmarks.validation_eyeriss

Each layer is simulated pass by pass with its published mapping. Published processing times exclude DRAM transfers, so
the simulated ones use DRAM without a bandwidth limit. The chip compresses images and results on their way to and from
DRAM, and the simulator does not: its traffic is reduced by the published savings of the first and the last layer, and
by interpolated savings in between.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tvm_tiling.accel.program.work import work
from tvm_tiling.accel.row_stationary import RowMapping, row_stationary_convolution
from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.hardware.memory import OPERANDS
from tvm_tiling.plain_text import plain_toml
from tvm_tiling.workload import ConvWorkload

PUBLISHED = Path(__file__).parent / "published"
WITHOUT_LIMIT = 1e6  # bytes per cycle


@dataclass(frozen=True)
class Silicon:
    """A published layer: its `mapping`, active elements, and processing time in milliseconds."""

    mapping: RowMapping
    elements: int
    milliseconds: float


@dataclass(frozen=True)
class Simulated:
    """A simulated layer: processing time in milliseconds, DRAM traffic of kernels and of uncompressed images and
    results in megabytes, and the share of the latter that compression saves."""

    milliseconds: float
    kernels: float
    maps: float
    saved: float

    @property
    def megabytes(self) -> float:
        """DRAM traffic with compressed images and results."""
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
"""Return AlexNet's convolutions, batch 4."""


@functools.cache
def _published() -> dict[str, Any]:
    table: dict[str, Any] = plain_toml((PUBLISHED / "published.toml").read_text())["eyeriss"]
    return table


def silicon() -> dict[str, Silicon]:
    """Return the published layers."""
    table = _published()
    columns = (table["layers"], table["mapping"], table["active_pes"], table["processing_ms"])
    return {
        name: Silicon(RowMapping(**mapping), elements, milliseconds)
        for name, mapping, elements, milliseconds in zip(*columns, strict=True)
    }


def published_megabytes() -> float:
    """Return the DRAM traffic of all five layers."""
    return float(_published()["dram_megabytes_all_five"])


def saved_of_maps(name: str) -> float:
    """Return the share of the traffic of images and results that compression saves in a layer."""
    names, table = list(LAYERS), _published()["saved_percent_of_maps"]
    first, last = table[names[0]], table[names[-1]]
    return (first + (last - first) * names.index(name) / (len(names) - 1)) / 100


def eyeriss() -> Hardware:
    """Return the description in benchmarks/published/eyeriss.toml."""
    return Hardware.load(PUBLISHED / "eyeriss.toml")


def without_dram(hardware: Hardware) -> Hardware:
    """Return a machine that never waits for DRAM."""
    unit = hardware.near_tile
    assert unit is not None
    external = replace(hardware.memories["external"], bytes_per_cycle=WITHOUT_LIMIT)
    return replace(
        hardware,
        near_tile=replace(unit, bandwidth={**unit.bandwidth, "external": WITHOUT_LIMIT}),
        memories={**hardware.memories, "external": external},
    )


def simulated(workload: ConvWorkload, mapping: RowMapping, saved: float = 0.0) -> Simulated:
    """Simulate a layer with a mapping."""
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


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table of docs/validation.md."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    total = 0.0
    for name, layer in silicon().items():
        own = simulated(LAYERS[name], layer.mapping, saved_of_maps(name))
        total += own.megabytes
        error = own.milliseconds / layer.milliseconds - 1
        print(f"{name}: measured {layer.milliseconds} ms, simulated {own.milliseconds:.1f} ms, {error:+.1%}")
        print(f"  DRAM: kernels {own.kernels:.2f} MB, maps {own.maps:.2f} MB, compressed {own.megabytes:.2f} MB")
    print(
        f"DRAM: measured {published_megabytes()} MB, simulated {total:.1f} MB, {total / published_megabytes() - 1:+.1%}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
