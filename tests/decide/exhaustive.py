"""An exhaustive search over configurations that shares no formula with the decision.

It uses from the package only the number of activations that a block of a convolution needs with its halo
(`ActivationWindow`), which is a definition; test_gemm_traffic.py checks it against the pixels really read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tvm_tiling.decide.gemm.traffic import ActivationWindow
from tvm_tiling.hardware.description import Hardware
from tvm_tiling.workload import ConvWorkload, GemmWorkload

LEVEL = 1e-9  # utilisations that differ relatively by less are equal


class Found(NamedTuple):
    """The best configuration found: the quantities that break ties."""

    utilisation: float
    split_k: bool
    acc_bytes: int
    bytes_read: int
    outer_order: str


class Facts:
    """The quantities of the analytical partition for one workload on one machine."""

    def __init__(self, w: GemmWorkload | ConvWorkload, hardware: Hardware) -> None:
        u = hardware.near_tile
        assert u is not None and u.bw_a is not None and u.bw_b is not None
        self.d_s, self.d_acc = w.a_bytes, u.acc_bytes_per_element or w.acc_bytes
        self.window: ActivationWindow | None = None
        if isinstance(w, ConvWorkload):
            self.window = ActivationWindow.of(w)
            self.m, self.n, self.k = w.co // w.groups, w.n * w.ho * w.wo, w.ci // w.groups * w.kh * w.kw
            self.bytes_b = w.n * w.h * w.w * (w.ci // w.groups) * w.a_bytes
        else:
            self.m, self.n, self.k = w.m, w.n, w.k
            self.bytes_b = self.n * self.k * w.a_bytes
        self.bytes_a = self.m * self.k * w.a_bytes
        self.buf_a, self.buf_b, self.acc_max = u.buf_a, u.buf_b, u.acc_max
        self.block_m, self.block_n = u.block_m, u.block_n
        self.fits_a, self.fits_b = self.bytes_a <= u.buf_a, self.bytes_b <= u.buf_b
        self.gemm = self.m * self.n * self.k / u.macs_per_cycle
        self.load_a, self.load_b = self.bytes_a / u.bw_a, self.bytes_b / u.bw_b
        self.bw_a, self.bw_b = u.bw_a, u.bw_b

    def bytes_of_b(self, columns: int, depth: int) -> int:
        if self.window is None:
            return columns * depth * self.d_s
        return self.window.pixels(columns) * self.window.channels_of(depth) * self.d_s

    def rule(self, split: bool) -> str:
        """Return the order of the outer loops that is preferred in a tie."""
        if split:
            return "mn"
        if self.fits_a and self.fits_b:
            return "mn" if self.m < self.n else "nm"
        if self.fits_a or self.fits_b:
            return "mn" if self.fits_a else "nm"
        return "mn" if self.bw_a < self.bw_b else "nm"


def partitions(size: int, block: int) -> list[int]:
    """Return every allowed partition: the multiples of the block below `size`, and `size`."""
    return [*range(block, size, block), size]


def search_naively(w: GemmWorkload | ConvWorkload, hardware: Hardware, prefer: str = "utilisation") -> Found | None:
    """Yield every partition_m, partition_n, partition_k and order. For small sizes only."""
    f = Facts(w, hardware)

    def configs() -> Iterator[Found]:
        for rows in partitions(f.m, f.block_m):
            for columns in partitions(f.n, f.block_n):
                for depth in range(1, f.k + 1):
                    split = depth < f.k
                    acc_bytes = rows * columns * f.d_acc if split else 0
                    if rows * depth * f.d_s > f.buf_a or f.bytes_of_b(columns, depth) > f.buf_b:
                        continue
                    if acc_bytes > f.acc_max:
                        continue
                    for order in ("mn", "nm"):
                        parts_m, parts_n = -(-f.m // rows), -(-f.n // columns)
                        load_a = 1 if f.fits_a or (not split and order == "mn") else parts_n
                        load_b = 1 if f.fits_b or (not split and order == "nm") else parts_m
                        cycles = max(f.gemm, load_a * f.load_a, load_b * f.load_b)
                        read = load_a * f.bytes_a + load_b * f.bytes_b
                        yield Found(f.gemm / cycles, split, acc_bytes, read, order)

    found = list(configs())
    if not found:
        return None
    best = max(c.utilisation for c in found)
    return min((c for c in found if c.utilisation >= best * (1 - LEVEL)), key=lambda c: _rank(f, c, prefer))


def _rank(f: Facts, c: Found, prefer: str) -> tuple[int, ...]:
    off_rule = int(c.outer_order != f.rule(c.split_k))
    if prefer == "traffic":
        return (c.bytes_read, int(c.split_k), c.acc_bytes, off_rule)
    return (int(c.split_k), c.acc_bytes, c.bytes_read, off_rule)


def search(w: GemmWorkload | ConvWorkload, hardware: Hardware, prefer: str = "utilisation") -> Found | None:
    """The same search over fewer configurations.

    Of the partitions that split a dimension into equally many parts only the smallest is tried: it is read equally
    often, fits wherever the others fit and needs no more sums. Without split-K partition_k is k; with it, only capacity
    depends on partition_k, and 1 fits wherever another does.
    """
    f = Facts(w, hardware)
    rows, parts_m = _smallest_of_each_count(f.m, f.block_m)
    columns, parts_n = _smallest_of_each_count(f.n, f.block_n)
    none, ones_m, ones_n = np.zeros(1, int), np.ones_like(parts_m), np.ones_like(parts_n)
    levels: list[Found] = []
    tables = []
    for split, order in ((False, "mn"), (False, "nm"), (True, "mn"), (True, "nm")):
        if split and f.k == 1:
            continue
        depth = 1 if split else f.k
        fits_m = rows * depth * f.d_s <= f.buf_a
        fits_n = np.array([f.bytes_of_b(int(c), depth) for c in columns]) <= f.buf_b
        acc = np.multiply.outer(rows, columns) * f.d_acc if split else none[:, None]
        fits = fits_m[:, None] & fits_n[None, :] & (acc <= f.acc_max)
        load_a = ones_n if f.fits_a or (not split and order == "mn") else parts_n
        load_b = ones_m if f.fits_b or (not split and order == "nm") else parts_m
        cycles = np.maximum(f.gemm, np.maximum(load_b[:, None] * f.load_b, load_a[None, :] * f.load_a))
        read = load_b[:, None] * f.bytes_b + load_a[None, :] * f.bytes_a
        if fits.any():
            tables.append((split, order, np.where(fits, cycles, np.inf), np.broadcast_to(acc, fits.shape), read))
    if not tables:
        return None
    limit = min(cycles.min() for _, _, cycles, _, _ in tables) * (1 + LEVEL)
    for split, order, cycles, acc, read in tables:
        level = cycles <= limit
        if level.any():
            first, second = (read, acc) if prefer == "traffic" else (acc, read)
            at = np.lexsort((second[level], first[level]))[0]
            utilisation = f.gemm / float(cycles[level][at])
            levels.append(Found(utilisation, split, int(acc[level][at]), int(read[level][at]), order))
    return min(levels, key=lambda c: _rank(f, c, prefer))


def _smallest_of_each_count(size: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest partition for each number of parts, and that number."""
    every = np.append(np.arange(block, size, block), size)
    counts, first = np.unique(-(-size // every), return_index=True)  # the first, as `every` ascends
    return every[first], counts
