"""The machine and the layers that simulators of accelerators are compared on, and what each of them says of a layer."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tiling.hardware import Hardware
from tvm_tiling.hardware.near_tile import NearTile
from tvm_tiling.workload import ConvWorkload, GemmWorkload

OPERANDS = ("a", "b", "out")
SUM_BYTES = 4  # int8 products are summed in int32


@dataclass(frozen=True, kw_only=True)
class ArrayMachine:
    """A matrix engine of `rows` x `columns` multipliers that keep their sums, int8, one step of k per cycle.

    `buf_a` and `buf_b` are bytes of one of the two halves of a double buffer, `sums` bytes of the accumulation buffer.
    Each of A, B and the results has a port to memory of its own with `bandwidth` bytes per cycle.
    """

    rows: int = 64
    columns: int = 64
    buf_a: int = 256 * 1024
    buf_b: int = 256 * 1024
    sums: int = 256 * 1024
    bandwidth: int = 64

    def near_tile(self) -> NearTile:
        """Our matrix engine of this size, everything that is left open as page 01 has it."""
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
        """The same as a description of ours."""
        return Hardware(name="array", near_tile=self.near_tile())


@dataclass(frozen=True)
class Layer:
    """A layer of a network: a product, or a convolution of one image without border and groups."""

    name: str
    workload: GemmWorkload | ConvWorkload

    @property
    def matrix(self) -> GemmWorkload:
        """The layer as a product: m points of the image, n output channels, k taps of all input channels."""
        w = self.workload
        if isinstance(w, GemmWorkload):
            return w
        points = ((w.h - w.kh) // w.stride[0] + 1) * ((w.w - w.kw) // w.stride[1] + 1)
        return GemmWorkload(m=points, n=w.co, k=w.ci * w.kh * w.kw, dtype=w.dtype)

    @property
    def operand_bytes(self) -> dict[str, int]:
        """Bytes of A, B and the results as a product."""
        w = self.matrix
        return {"a": w.m * w.k, "b": w.k * w.n, "out": w.m * w.n * SUM_BYTES}


@dataclass(frozen=True)
class Figures:
    """What a simulator says of a layer: `cycles` in all, of which `before` pass before the first product and `behind`
    after the last one while nothing is computed; `moved` are bytes between memory and chip by operand; `seconds` of
    processor time that the simulation took."""

    cycles: int
    before: int
    behind: int
    moved: dict[str, int]
    seconds: float
