"""What any configuration of a product reads, keeps and takes: the quantities of page 01, evaluated and not yet
chosen."""

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
    """The largest partition of `size` up to `limit`: all of it or a multiple of `block`; 0 if there is none."""
    return size if limit >= size else limit // block * block


def smallest_partition(size: int, block: int, count: int) -> int:
    """The smallest partition that cuts `size` into at most `count` parts: all of it or a multiple of `block`."""
    return min(size, ceil_div(ceil_div(size, count), block) * block)


@dataclass(frozen=True)
class ActivationWindow:
    """How many activations a block of output positions needs (page 01, Convolution).

    The reduction of a convolution is walked channel by channel, so that what is loaded serves all kh*kw taps. Rows and
    columns that a stride larger than the kernel skips are loaded like the others (page 01 counts batch*h*w*ic).
    """

    batch: int
    h: int
    w: int
    ho: int
    wo: int
    stride_h: int
    stride_w: int
    reach_h: int  # input rows of one output row: the dilated kernel or the stride, whichever is longer
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
        """Input pixels, halo included, for `positions` consecutive output positions wherever the run starts.

        A run touches `rows` output rows of `images` images at worst. Two bounds hold, and the smaller one counts: a
        strip of input for each output row, or all columns of the input rows between the first and the last. Both grow
        with `positions`, so the largest block that fits can be found by bisection.
        """
        if positions >= self.batch * self.ho * self.wo:
            return self.batch * self.h * self.w
        rows = min(self.batch * self.ho, (positions + self.wo - 2) // self.wo + 1)
        images = min(self.batch, (rows + self.ho - 2) // self.ho + 1)
        strips = self.reach_h * min(rows * self.w, (positions - rows) * self.stride_w + rows * self.reach_w)
        full = min(images * self.h, rows * self.stride_h + images * (self.reach_h - self.stride_h)) * self.w
        return min(self.batch * self.h * self.w, strips, full)

    def channels_of(self, depth: int) -> int:
        """Channels that a block of `depth` of the reduction touches, where blocks start at multiples of `depth`."""
        if depth % self.taps == 0:
            return depth // self.taps
        if self.taps % depth == 0:
            return 1
        return min(self.channels, (depth + self.taps - 2) // self.taps + 1)


@dataclass(frozen=True)
class Product:
    """C[m, n] = A[m, k] * B[k, n] on page 01's machine: sizes in elements, buffers in bytes, times in cycles.

    `window` is None for a plain product. One element of a batch and one group of a convolution are one product each.
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
    d_out: int = 4  # bytes of a result as it leaves

    @property
    def fits_a(self) -> bool:
        """All of A fits its buffer and is loaded once, whatever the configuration."""
        return self.bytes_a <= self.buf_a

    @property
    def fits_b(self) -> bool:
        """All of B fits its buffer and is loaded once, whatever the configuration."""
        return self.bytes_b <= self.buf_b

    @property
    def floor_cycles(self) -> float:
        """What no configuration can beat: the multipliers at peak, and each operand loaded once (4)."""
        return max(self.gemm_cycles, self.load_a_cycles, self.load_b_cycles)

    def block_bytes_a(self, rows: int, depth: int) -> int:
        return rows * depth * self.d_a

    def block_bytes_b(self, columns: int, depth: int) -> int:
        """Bytes of a block of B; of activations with their halo."""
        if self.window is None:
            return columns * depth * self.d_b
        return self.window.pixels(columns) * self.window.channels_of(depth) * self.d_b

    def largest_rows(self, depth: int) -> int:
        """The largest partition of m whose block of A with `depth` of k fits; 0 if there is none."""
        return round_down(self.buf_a // (depth * self.d_a), self.m, self.block_m)

    def largest_columns(self, depth: int) -> int:
        """The largest partition of n whose block of B with `depth` of k fits; 0 if there is none."""
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
        """The largest partition_k below k with which a block of `rows` by `columns` fits, where 1 does.

        Activations come by whole channels where they can. Below one channel, the depth divides the taps unless a block
        that straddles two channels fits as well.
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
        """Whether the blocks of a configuration fit the input buffers and, if it splits K, the accumulation buffer."""
        return (
            self.block_bytes_a(rows, depth) <= self.buf_a
            and self.block_bytes_b(columns, depth) <= self.buf_b
            and (depth >= self.k or rows * columns * self.d_acc <= self.acc_max)
        )

    def load_counts(self, rows: int, columns: int, depth: int, order: str) -> tuple[int, int]:
        """How often A and B are read by a configuration ("Load counts of any configuration")."""
        split = depth < self.k
        load_a = 1 if self.fits_a or (order == "mn" and not split) else ceil_div(self.n, columns)
        load_b = 1 if self.fits_b or (order == "nm" and not split) else ceil_div(self.m, rows)
        return load_a, load_b

    def cycles(self, load_a: int, load_b: int) -> float:
        """Cycles of the product where loading and computing overlap."""
        return max(self.gemm_cycles, load_a * self.load_a_cycles, load_b * self.load_b_cycles)

    def utilisation(self, load_a: int, load_b: int) -> float:
        return self.gemm_cycles / self.cycles(load_a, load_b)

    def bytes_read(self, load_a: int, load_b: int) -> int:
        return load_a * self.bytes_a + load_b * self.bytes_b


class Config(NamedTuple):
    """One configuration of a product and what it costs; `why` holds the reason for each choice by field name."""

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
    """The quantities of page 01 for a workload on `hardware.near_tile`.

    Raises HardwareError if the machine has no such unit, one for other types, or no bandwidth for the memory of an
    operand.
    """
    tile = hardware.near_tile
    if tile is None:
        raise HardwareError(
            f"hardware {hardware.name!r}: has no near_tile unit, which the configuration of a product needs"
        )
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
    """Bytes of an element of A and of B of the matrix multiplication: of a convolution A are the kernels."""
    a, b = element_bytes(workload.types.a), element_bytes(workload.types.b)
    return (b, a) if isinstance(workload, ConvWorkload) else (a, b)


def refuse_types(
    hardware: Hardware, unit: NearTile | WFold | Column, workload: GemmWorkload | ConvWorkload | RnnWorkload
) -> None:
    """HardwareError unless an engine takes the workload's operands, stored as they are, and leaves its results as they
    are summed; UnsupportedOperator for operands of two types."""
    types = workload.types
    if types.a != types.b:
        raise UnsupportedOperator(f"hardware {hardware.name!r}: operands of {types.operands}; expected of one type")
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
            f"hardware {hardware!r}: operand {operand.upper()} lies in memory {memory!r}, which has no bandwidth; "
            f"expected near_tile.bw_{operand}, or a memory of near_tile.bandwidth ({known})"
        )
    return bandwidth
