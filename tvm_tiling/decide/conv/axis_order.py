"""Axis order of an isolated convolution: channels first, like its neighbours in the model, or channels last.

A model's inputs and outputs have channels first. Kernels whose vector lanes are output channels are fastest with
channels last, but such a convolution then needs two transpositions, which often take longer than the convolution
itself. With channels first a pointwise convolution is a matrix multiplication, kernels by pixels, and a depthwise one
has its lanes along columns; other algorithms transpose the input while they copy it, and write scattered elements. The
predicted times of both orders, including transpositions, decide.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from ...figures import seconds
from ...hardware.description import Cpu, Hardware
from ...workload import ConvWorkload
from .cpu_conv import decide_conv_on_cpu
from .winograd import TOLERANCE

FIRST, LAST = "NCHW", "NHWC"


@dataclass(frozen=True, kw_only=True)
class AxisOrder:
    """The decision: `layout` is "NCHW" or "NHWC". All times are predicted seconds; `turning` is that of both
    transpositions.
    """

    layout: str
    first_seconds: float
    last_seconds: float
    turning_seconds: float

    @property
    def why(self) -> str:
        """Return the comparison as text."""
        first, last, turning = map(seconds, (self.first_seconds, self.last_seconds, self.turning_seconds))
        return f"channels first takes {first}; channels last {last}, and {turning} for transposing input and output"


@functools.lru_cache(maxsize=1024)
def decide_axis_order(
    workload: ConvWorkload, hardware: Hardware, *, winograd: bool = True, tolerance: float = TOLERANCE
) -> AxisOrder:
    """Return the faster order of a convolution with prepacked weights, whose input and output have channels first."""
    cpu = hardware.cpu
    assert cpu is not None  # accelerators have no such choice

    def seconds(layout: str) -> float:
        tiling = decide_conv_on_cpu(
            replace(workload, layout=layout), hardware, packing="ahead", winograd=winograd, tolerance=tolerance
        )
        assert tiling.predicted_seconds is not None  # of every decision for a CPU
        return tiling.predicted_seconds

    first, last = seconds(FIRST), seconds(LAST)
    w = workload
    turning = _turning(w.n * w.ci * w.d * w.h * w.w, w.ci, w.a_bytes, cpu)
    turning += _turning(w.n * w.co * w.do * w.ho * w.wo, w.co, w.out_bytes, cpu)
    return AxisOrder(
        layout=FIRST if first <= last + turning else LAST,
        first_seconds=first,
        last_seconds=last,
        turning_seconds=turning,
    )


def _turning(elements: int, channels: int, element_bytes: int, cpu: Cpu) -> float:
    """Return the seconds for transposing an image of that many elements on all cores. The next kernel divides the image
    differently among them, so it passes through the last-level cache, which does not overlap: on two cores of
    Sapphire Rapids 11 layers took 0.5 to 1.6 of this longer than with channels first, 1.05 in the median."""
    if channels == 1:
        return 0.0
    costs, lanes = cpu.kernel_costs, cpu.lanes(max(4, element_bytes))
    work = elements / lanes * costs.turned_vector if channels >= lanes else elements * costs.copied_element
    moved = 2.0 * elements * element_bytes
    cycles = (work + moved / min(cpu.l3_bytes_per_cycle, cpu.bytes_per_cycle(moved))) / cpu.cores
    return (cycles + (cpu.parallel_start if cpu.cores > 1 else 0.0)) / (cpu.mhz * 1e6)
