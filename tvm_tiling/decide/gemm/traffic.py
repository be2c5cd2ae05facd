"""Traffic model of a matrix multiplication on a machine with input buffers: bytes read, bytes held and cycles of any
configuration (analytical split-K partition, design page 01). The choice is made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import HardwareError, UnsupportedOperator
from ...hardware.description import Column, Hardware, NearTile, WFold
from ...operand_types import PLAIN, element_bytes
from ...workload import ConvWorkload, GemmWorkload, RnnWorkload


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_down(limit: int, size: int, block: int) -> int:
    """Return the largest partition of `size` up to `limit`, all of it or a multiple of `block`; 0 if there is none."""
    return size if limit >= size else limit // block * block


def smallest_partition(size: int, block: int, count: int) -> int:
    """Return the smallest partition that divides `size` into at most `count` parts: all of it or a multiple of
    `block`."""
    return min(size, ceil_div(ceil_div(size, count), block) * block)


@dataclass(frozen=True)
class ActivationWindow:
    """The activations that a block of output positions needs.

    The reduction of a convolution proceeds channel by channel, so loaded data serves all kh*kw taps. Rows and columns
    that are skipped by a stride larger than the kernel are loaded too.
    """

    batch: int
    h: int
    w: int
    ho: int
    wo: int
    stride_h: int
    stride_w: int
    reach_h: int  # input rows of one output row: the larger of the dilated kernel and the stride
    reach_w: int
    taps: int  # kh * kw
    channels: int  # of one group

    @classmethod
    def of(cls, conv: ConvWorkload) -> ActivationWindow:
        (stride_h, stride_w), (dilation_h, dilation_w) = conv.stride, conv.dilation
        return cls(
            batch=conv.n,
            h=conv.h,
            w=conv.w,
            ho=conv.ho,
            wo=conv.wo,
            stride_h=stride_h,
            stride_w=stride_w,
            reach_h=min(conv.h, max(stride_h, dilation_h * (conv.kh - 1) + 1)),
            reach_w=min(conv.w, max(stride_w, dilation_w * (conv.kw - 1) + 1)),
            taps=conv.kh * conv.kw,
            channels=conv.ci // conv.groups,
        )

    def pixels(self, positions: int) -> int:
        """Return the input pixels, including halos, for `positions` consecutive output positions at the worst starting
        point.

        A run touches at most `rows` output rows of `images` images. The result is the smaller of two bounds: a strip of
        input for each output row, or all columns of the input rows between the first and the last. Both grow with
        `positions`, so the largest block that fits can be found by bisection.
        """
        if positions >= self.batch * self.ho * self.wo:
            return self.batch * self.h * self.w
        rows = min(self.batch * self.ho, (positions + self.wo - 2) // self.wo + 1)
        images = min(self.batch, (rows + self.ho - 2) // self.ho + 1)
        strips = self.reach_h * min(rows * self.w, (positions - rows) * self.stride_w + rows * self.reach_w)
        full = min(images * self.h, rows * self.stride_h + images * (self.reach_h - self.stride_h)) * self.w
        return min(self.batch * self.h * self.w, strips, full)

    def channels_of(self, depth: int) -> int:
        """Return the channels that a block of `depth` of the reduction axis touches; blocks start at multiples of
        `depth`."""
        if depth % self.taps == 0:
            return depth // self.taps
        if self.taps % depth == 0:
            return 1
        return min(self.channels, (depth + self.taps - 2) // self.taps + 1)


@dataclass(frozen=True)
class Product:
    """C[m, n] = A[m, k] * B[k, n] on a machine with input buffers: sizes in elements, buffers in bytes, times in
    cycles.

    `window` is None for a plain matrix multiplication. Each element of a batch and each group of a convolution is a
    separate one.
    """

    m: int
    n: int
    k: int
    d_a: int  # bytes of an element of A, of B, of a sum
    d_b: int
    d_acc: int
    buf_a: int
    buf_b: int
    acc_max: int
    block_m: int
    block_n: int
    bw_a: float
    bw_b: float
    bytes_a: int  # one load of A
    bytes_b: int  # one load of B
    gemm_cycles: float  # (1)
    load_a_cycles: float  # (2)
    load_b_cycles: float  # (3)
    window: ActivationWindow | None = None
    d_out: int = 4  # bytes of a stored result

    @property
    def fits_a(self) -> bool:
        """Whether all of A fits its buffer, so that it is loaded once by any configuration."""
        return self.bytes_a <= self.buf_a

    @property
    def fits_b(self) -> bool:
        """Whether all of B fits its buffer, so that it is loaded once by any configuration."""
        return self.bytes_b <= self.buf_b

    @property
    def floor_cycles(self) -> float:
        """Lower bound of the cycles of any configuration: multipliers at peak, and each operand loaded once."""
        return max(self.gemm_cycles, self.load_a_cycles, self.load_b_cycles)

    def block_bytes_a(self, rows: int, depth: int) -> int:
        return rows * depth * self.d_a

    def block_bytes_b(self, columns: int, depth: int) -> int:
        """Return the bytes of a block of B, including the halo for activations."""
        if self.window is None:
            return columns * depth * self.d_b
        return self.window.pixels(columns) * self.window.channels_of(depth) * self.d_b

    def largest_rows(self, depth: int) -> int:
        """Return the largest partition of m whose block of A with `depth` of K fits; 0 if there is none."""
        return round_down(self.buf_a // (depth * self.d_a), self.m, self.block_m)

    def largest_columns(self, depth: int) -> int:
        """Return the largest partition of n whose block of B with `depth` of K fits; 0 if there is none."""
        if self.window is None:
            return round_down(self.buf_b // (depth * self.d_b), self.n, self.block_n)
        room = self.buf_b // (self.window.channels_of(depth) * self.d_b)
        if self.window.pixels(self.n) <= room:
            return self.n
        fits, too_many = 0, ceil_div(self.n, self.block_n)
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.window.pixels(middle * self.block_n) <= room:
                fits = middle
            else:
                too_many = middle
        return fits * self.block_n

    def largest_depth(self, rows: int, columns: int) -> int:
        """Return the largest partition_k below k for which a block of `rows` by `columns` fits, given that 1 fits.

        Activations are loaded by whole channels if possible. Below one channel, the depth divides the taps, unless a
        block that straddles two channels fits as well.
        """
        depth = min(self.k - 1, self.buf_a // (rows * self.d_a))
        if self.window is None:
            return min(depth, self.buf_b // (columns * self.d_b))
        taps, channels = self.window.taps, self.buf_b // (self.window.pixels(columns) * self.d_b)
        depth = min(depth, channels * taps)
        if depth >= taps:
            return depth // taps * taps
        if channels >= min(2, self.window.channels):
            return depth
        return next(d for d in range(depth, 0, -1) if taps % d == 0)

    def feasible(self, rows: int, columns: int, depth: int) -> bool:
        """Return whether the blocks of a configuration fit the input buffers and, with split-K, the accumulation
        buffer."""
        return (
            self.block_bytes_a(rows, depth) <= self.buf_a
            and self.block_bytes_b(columns, depth) <= self.buf_b
            and (depth >= self.k or rows * columns * self.d_acc <= self.acc_max)
        )

    def load_counts(self, rows: int, columns: int, depth: int, order: str) -> tuple[int, int]:
        """Return how often A and B are read by a configuration."""
        split = depth < self.k
        load_a = 1 if self.fits_a or (order == "mn" and not split) else ceil_div(self.n, columns)
        load_b = 1 if self.fits_b or (order == "nm" and not split) else ceil_div(self.m, rows)
        return load_a, load_b

    def cycles(self, load_a: int, load_b: int) -> float:
        """Return the cycles if loads and computation overlap."""
        return max(self.gemm_cycles, load_a * self.load_a_cycles, load_b * self.load_b_cycles)

    def utilisation(self, load_a: int, load_b: int) -> float:
        return self.gemm_cycles / self.cycles(load_a, load_b)

    def bytes_read(self, load_a: int, load_b: int) -> int:
        return load_a * self.bytes_a + load_b * self.bytes_b


class Config(NamedTuple):
    """One configuration and its costs; `why` holds the reason for each choice by field name."""

    partition_m: int
    partition_n: int
    partition_k: int
    outer_order: str
    split_k: bool
    acc_bytes: int
    load_a: int
    load_b: int
    why: dict[str, str]

    @property
    def choices(self) -> dict[str, Any]:
        """All fields but the reasons, by name."""
        return {name: value for name, value in self._asdict().items() if name != "why"}


def product_on(workload: GemmWorkload | ConvWorkload, hardware: Hardware) -> Product:
    """Return the quantities of a workload on `hardware.near_tile`.

    Raises HardwareError if the machine has no such unit, the unit does not support the types, or the memory of an
    operand has no bandwidth.
    """
    tile = hardware.near_tile
    if tile is None:
        raise HardwareError(f"hardware {hardware.name!r}: has no near_tile unit, which matrix multiplications need")
    refuse_types(hardware, tile, workload)
    bw_a = _bandwidth(hardware.name, tile, "a", tile.bw_a, workload.memory_a)
    bw_b = _bandwidth(hardware.name, tile, "b", tile.bw_b, workload.memory_b)
    d_a, d_b = operand_bytes(workload)
    window = None
    if isinstance(workload, ConvWorkload):
        window = ActivationWindow.of(workload)
        m, n, k = workload.co // workload.groups, workload.n * workload.ho * workload.wo, window.channels * window.taps
        bytes_b = workload.n * workload.h * workload.w * window.channels * d_b
    else:
        m, n, k = workload.m, workload.n, workload.k
        bytes_b = n * k * d_b
    bytes_a = m * k * d_a
    return Product(
        m=m,
        n=n,
        k=k,
        d_a=d_a,
        d_b=d_b,
        d_acc=tile.acc_bytes_per_element or workload.acc_bytes,
        buf_a=tile.buf_a,
        buf_b=tile.buf_b,
        acc_max=tile.acc_max,
        block_m=tile.block_m,
        block_n=tile.block_n,
        bw_a=bw_a,
        bw_b=bw_b,
        bytes_a=bytes_a,
        bytes_b=bytes_b,
        gemm_cycles=m * n * k / tile.macs(d_a),
        load_a_cycles=bytes_a / bw_a,
        load_b_cycles=bytes_b / bw_b,
        window=window,
        d_out=workload.acc_bytes,
    )


def operand_bytes(workload: GemmWorkload | ConvWorkload) -> tuple[int, int]:
    """Return the bytes of an element of A and of B of the matrix multiplication; for a convolution, A holds the
    kernels."""
    a, b = element_bytes(workload.types.a), element_bytes(workload.types.b)
    return (b, a) if isinstance(workload, ConvWorkload) else (a, b)


def refuse_types(
    hardware: Hardware, unit: NearTile | WFold | Column, workload: GemmWorkload | ConvWorkload | RnnWorkload
) -> None:
    """Raise HardwareError unless an engine takes the workload's operands in their stored types and stores sums without
    conversion; UnsupportedOperator for operands of different types."""
    types = workload.types
    if types.a != types.b:
        raise UnsupportedOperator(
            f"hardware {hardware.name!r}: operands of {types.operands}; expected operands of one type"
        )
    if unit.dtypes and types.a not in unit.dtypes:
        raise HardwareError(
            f"{hardware.name} does not support operands of {types.a}; expected {', '.join(unit.dtypes)}"
        )
    if workload.encoding != PLAIN:
        raise HardwareError(f"hardware {hardware.name!r}: encoding = '{workload.encoding}'; expected 'plain'")
    if workload.out_dtype is not None:
        raise HardwareError(f"hardware {hardware.name!r}: out_dtype = {workload.out_dtype!r}; expected {types.acc}")


def _bandwidth(hardware: str, tile: NearTile, operand: str, own: float | None, memory: str) -> float:
    bandwidth = tile.bandwidth.get(memory) if own is None else own
    if bandwidth is None:
        known = ", ".join(sorted(tile.bandwidth)) or "none"
        raise HardwareError(
            f"hardware {hardware!r}: operand {operand.upper()} is in memory {memory!r}, which has no bandwidth; "
            f"expected near_tile.bw_{operand}, or a memory of near_tile.bandwidth ({known})"
        )
    return bandwidth
