"""The machine and the layers for comparing simulators of accelerators, and the figures that each simulator reports."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.near_tile import NearTile
from tvm_tiling.workload import ConvWorkload, GemmWorkload

OPERANDS = ("a", "b", "out")
SUM_BYTES = 4  # int8 matrix multiplications accumulate in int32


@dataclass(frozen=True, kw_only=True)
class ArrayMachine:
    """An output-stationary int8 matrix engine of `rows` x `columns` multipliers, one step of k per cycle.

    `buf_a` and `buf_b` are the bytes of one half of a double buffer, `sums` those of the accumulation buffer. A, B and
    the results have one memory port each, of `bandwidth` bytes per cycle.
    """

    rows: int = 64
    columns: int = 64
    buf_a: int = 256 * 1024
    buf_b: int = 256 * 1024
    sums: int = 256 * 1024
    bandwidth: int = 64

    def near_tile(self) -> NearTile:
        """Return our matrix engine of this size, with defaults for everything else."""
        return NearTile(
            buf_a=self.buf_a,
            buf_b=self.buf_b,
            acc_max=self.sums,
            macs_per_cycle=self.rows * self.columns,
            block_m=self.rows,
            block_n=self.columns,
            bw_a=self.bandwidth,
            bw_b=self.bandwidth,
            bw_out=self.bandwidth,
            dtypes=("int8",),
        )

    def hardware(self) -> Hardware:
        """Return our description of the machine."""
        return Hardware(name="array", near_tile=self.near_tile())


@dataclass(frozen=True)
class Layer:
    """A layer of a network: a matrix multiplication, or a convolution of one image without padding and groups."""

    name: str
    workload: GemmWorkload | ConvWorkload

    @property
    def matrix(self) -> GemmWorkload:
        """Return the layer as a matrix multiplication: m output pixels, n output channels, k kernel taps times input
        channels."""
        w = self.workload
        if isinstance(w, GemmWorkload):
            return w
        points = ((w.h - w.kh) // w.stride[0] + 1) * ((w.w - w.kw) // w.stride[1] + 1)
        return GemmWorkload(m=points, n=w.co, k=w.ci * w.kh * w.kw, dtype=w.dtype)

    @property
    def operand_bytes(self) -> dict[str, int]:
        """Bytes of A, B and the results as a matrix multiplication."""
        w = self.matrix
        return {"a": w.m * w.k, "b": w.k * w.n, "out": w.m * w.n * SUM_BYTES}


@dataclass(frozen=True)
class Figures:
    """What a simulator reports for a layer: total `cycles`, of which `before` pass before compute starts and `behind`
    after it ends; `moved` are the bytes between memory and chip by operand; `seconds` of processor time that the
    simulation took."""

    cycles: int
    before: int
    behind: int
    moved: dict[str, int]
    seconds: float
