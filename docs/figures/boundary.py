"""The database: relative cost as one axis is halved repeatedly."""

from __future__ import annotations

from pathlib import Path

from svg import Drawing, plot

import tvm_tiling as tt
from tvm_tiling.accel.workload_program import workload_program
from tvm_tiling.tuning.shapes.boundary import TOLERANCE

MACHINE = tt.Hardware.load(Path(__file__).parents[2] / "benchmarks" / "roomy.toml")


def cost_per_size() -> Drawing:
    """Simulated cycles over the proportional share of the largest GEMM's, as each axis is halved."""
    largest = {"m": 512, "n": 256, "k": 256}
    picture = plot("Relative cost as an axis is halved", (4, 512), (0.9, 2.5), log="x")
    picture.ticks(
        [(2**power, str(2**power)) for power in range(2, 10)], [(1, "1"), (1.5, "1.5"), (2, "2"), (2.5, "2.5")]
    )
    picture.names("size of the halved axis; the others are 512 (m), 256 (n), 256 (k)", "cost / proportional share")
    whole = cycles(largest)
    for shade, axis in enumerate(largest):
        points, extent = [], largest[axis]
        while extent >= 4:
            share = extent / largest[axis]
            points.append((float(extent), cycles({**largest, axis: extent}) / (whole * share)))
            extent //= 2
        shown = [(x, min(y, 2.5)) for x, y in points]
        picture.line(shown, f"l{shade} dashed" if axis == "n" else f"l{shade}")
        held = [(x, y) for x, y in points if abs(y - 1) <= TOLERANCE]
        picture.dots(shown, f"f{shade}", 3)
        picture.dots(held[-1:], f"f{shade}", 7)
    picture.line([(4, 1 + TOLERANCE), (512, 1 + TOLERANCE)], "l4 dashed")
    picture.drawing.legend(480, 50, [(f"f{shade}", f"{axis} halved") for shade, axis in enumerate(largest)])
    picture.drawing.text(480, 112, "large dot: last within tolerance", kind="small")
    return picture.drawing


def cycles(sizes: dict[str, int]) -> int:
    """Simulated cycles of an int8 GEMM."""
    program = workload_program(tt.GemmWorkload(**sizes, dtype="int8"), MACHINE)
    return int(tt.simulate(program).cycles)


PICTURES = {"cost-per-size": cost_per_size}
