"""Products on two small systolic arrays beside the cycles of their RTL. Run from a checkout:
python -m benchmarks.validation_rtl

The cycles were counted in Verilator, on public Verilog with drivers that have all operands at hand and that check every
result (benchmarks/published/README.md). Each product is decided here for the array's description.
"""

from __future__ import annotations

import csv
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
    """A product of [m, k] by [k, n] in int8 on an array of ARRAYS, and the cycles that its RTL takes."""

    array: str
    m: int
    n: int
    k: int
    rtl: int


def rtl_products() -> list[RtlProduct]:
    """The rows of benchmarks/published/systolic_rtl.csv."""
    with (PUBLISHED / "systolic_rtl.csv").open(newline="") as file:
        return [
            RtlProduct(row["array"], *(int(row[name]) for name in ("m", "n", "k", "cycles")))
            for row in csv.DictReader(file)
        ]


def array(name: str) -> Hardware:
    """The description of an array."""
    return Hardware.load(PUBLISHED / f"{name}.toml")


def simulated_cycles(product: RtlProduct) -> int:
    """Cycles of a product as it is decided for its array."""
    workload = GemmWorkload(m=product.m, n=product.n, k=product.k, dtype="int8")
    return Simulation(workload_program(workload, array(product.array))).on().cycles


def main() -> None:
    """Print the figures of docs/validation.md."""
    for name in ARRAYS:
        errors = []
        for product in rtl_products():
            if product.array == name:
                cycles = simulated_cycles(product)
                errors.append(abs(cycles / product.rtl - 1))
                size = f"{product.m} x {product.n} x {product.k}"
                print(f"{name}: {size:16} {product.rtl:6} {cycles:6} {cycles / product.rtl - 1:+.1%}")
        print(f"{name}: mean {sum(errors) / len(errors):.1%}, largest {max(errors):.1%} of {len(errors)}")


if __name__ == "__main__":
    main()
