"""Validate the simulator against RTL cycle counts of matrix multiplications on two small systolic arrays. Run from a
checkout: python -m benchmarks.validation_rtl

The cycles were counted in Verilator, on public Verilog, with drivers that have all operands available and verify every
result (benchmarks/published/README.md). tvm_tiling chooses the tiling of each matrix multiplication for the array's
description.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_tiling.accel.timing.simulate import Simulation
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import GemmWorkload

PUBLISHED = Path(__file__).parent / "published"
ARRAYS = ("output_stationary", "weight_stationary")


@dataclass(frozen=True)
class RtlProduct:
    """An int8 matrix multiplication of [m, k] by [k, n] on an array of ARRAYS, and the cycles of its RTL."""

    array: str
    m: int
    n: int
    k: int
    rtl: int


def rtl_products() -> list[RtlProduct]:
    """Return the rows of benchmarks/published/systolic_rtl.csv."""
    with (PUBLISHED / "systolic_rtl.csv").open(newline="") as file:
        return [
            RtlProduct(row["array"], *(int(row[name]) for name in ("m", "n", "k", "cycles")))
            for row in csv.DictReader(file)
        ]


def array(name: str) -> Hardware:
    """Return the description of an array."""
    return Hardware.load(PUBLISHED / f"{name}.toml")


def simulated_cycles(product: RtlProduct) -> int:
    """Return the cycles of a matrix multiplication with the tiling chosen for its array."""
    workload = GemmWorkload(m=product.m, n=product.n, k=product.k, dtype="int8")
    return Simulation(workload_program(workload, array(product.array))).on().cycles


def main(arguments: Sequence[str] = ()) -> None:
    """Print the figures of docs/validation.md."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    for name in ARRAYS:
        errors = []
        for product in rtl_products():
            if product.array == name:
                cycles = simulated_cycles(product)
                errors.append(abs(cycles / product.rtl - 1))
                size = f"{product.m} x {product.n} x {product.k}"
                print(f"{name}: {size:16} {product.rtl:6} {cycles:6} {cycles / product.rtl - 1:+.1%}")
        print(f"{name}: mean error {sum(errors) / len(errors):.1%}, largest {max(errors):.1%} of {len(errors)}")


if __name__ == "__main__":
    main(sys.argv[1:])
