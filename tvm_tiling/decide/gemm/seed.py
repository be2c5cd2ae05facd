"""The published partition rule (mode "seed"), implemented literally (analytical split-K partition, design page 01).

Differences from mode "best" and interpretations of the publication:

- Case 1 (an operand fits its buffer) keeps A whole if m < n and B otherwise, whether or not that operand fits.
- Case 2 compares the best configuration without split-K to the best with it, as if all partitions were real numbers.
  The publication swaps the buffers in two formulas, inverts the ratio of the load counts in two others, and omits one
  operand's single load from the maximum of the load times. The full maximum is used here, which leads to the same
  decision: where the two differ, the single load takes longer than all reloads, and split-K cannot be faster than that
  either.
- Without split-K, the loop order depends only on the bandwidths; with it, on the preset.
- An accumulator takes as many bytes as an element of A. Whether the configuration fits is then checked on the real
  machine.

Partitions are rounded down to whole blocks, at least one, and load counts are computed from the rounded sizes. A
convolution is treated as its matrix multiplication, with the number of images included in n.
"""

from __future__ import annotations

import math

from ...figures import quantity
from .traffic import Config, Product, ceil_div


def seed_config(p: Product, acc_factor: float, split_order: str) -> Config:
    """Return the literal partition of a matrix multiplication; `acc_factor` shrinks the accumulation buffer in
    steps."""
    row_a, row_b = p.k * p.d_a, p.k * p.d_b
    if p.m * row_a <= p.buf_a or p.n * row_b <= p.buf_b:
        return _one_fits(p)
    unsplit = min(
        p.cycles(ceil_div(p.n * row_b, p.buf_b), 1),
        p.cycles(1, ceil_div(p.m * row_a, p.buf_a)),
    )
    split = _split_cycles(p, p.acc_max) if p.acc_max >= p.d_a else math.inf
    if unsplit <= split:
        return _unsplit(p, unsplit, split)
    return _split(p, acc_factor, split_order, unsplit, split)


def _one_fits(p: Product) -> Config:
    """Case 1: an operand fits its buffer."""
    m_outside = p.m < p.n
    compared = f"m = {p.m} {'<' if m_outside else '>='} n = {p.n}"
    return Config(
        partition_m=p.m if m_outside else _partition(p.buf_a / (p.k * p.d_a), p.m, p.block_m),
        partition_n=_partition(p.buf_b / (p.k * p.d_b), p.n, p.block_n) if m_outside else p.n,
        partition_k=p.k,
        outer_order="mn" if m_outside else "nm",
        split_k=False,
        acc_bytes=0,
        load_a=1,
        load_b=1,
        why={
            "partition_m": f"{compared}: all of m" if m_outside else "buffer of A / bytes of a row",
            "partition_n": "buffer of B / bytes of a column" if m_outside else f"{compared}: all of n",
            "partition_k": "all of K: no split-K",
            "outer_order": compared,
            "split_k": "an operand fits its buffer",
            "load_a": "an operand fits its buffer",
            "load_b": "an operand fits its buffer",
        },
    )


def _unsplit(p: Product, unsplit: float, split: float) -> Config:
    """Case 2 without split-K."""
    m_outside = p.bw_a < p.bw_b
    return _counted(
        p,
        _partition(p.buf_a / (p.k * p.d_a), p.m, p.block_m),
        _partition(p.buf_b / (p.k * p.d_b), p.n, p.block_n),
        p.k,
        "mn" if m_outside else "nm",
        acc_bytes=0,
        why={
            "partition_m": "buffer of A / bytes of a row",
            "partition_n": "buffer of B / bytes of a column",
            "partition_k": "all of K: no split-K",
            "outer_order": f"A has a bandwidth of {p.bw_a:g}, B of {p.bw_b:g} bytes per cycle",
            "split_k": f"{unsplit:.0f} cycles without split-K, {split:.0f} with it",
        },
    )


def _split(p: Product, acc_factor: float, order: str, unsplit: float, split: float) -> Config:
    """Case 2 with split-K: shrink the accumulation buffer while that costs no time.

    The claim names the first size that is slower, but the description means the last that is not. Sizes below one block
    of sums are not tried.
    """
    acc_bytes = p.acc_max
    while True:
        smaller = int(acc_bytes * acc_factor)
        if smaller < p.block_m * p.block_n * p.d_a or _split_cycles(p, smaller) > split:
            break
        acc_bytes = smaller
    load_a, load_b = _split_counts(p, acc_bytes)
    rows, columns = _partition(p.m / load_b, p.m, p.block_m), _partition(p.n / load_a, p.n, p.block_n)
    depth = min(p.buf_a // (rows * p.d_a), p.buf_b // (columns * p.d_b))
    return _counted(
        p,
        rows,
        columns,
        max(1, min(depth, p.k)),
        order,
        acc_bytes=acc_bytes,
        why={
            "partition_m": f"m in {load_b} parts",
            "partition_n": f"n in {load_a} parts",
            "partition_k": "the most of K that fits both buffers with these rows and columns",
            "outer_order": "as requested, or m outside n",
            "split_k": f"{split:.0f} cycles with split-K, {unsplit:.0f} without",
            "acc_bytes": f"{p.acc_max} bytes, divided by {acc_factor:g} since that costs no time",
        },
    )


def _split_cycles(p: Product, acc_bytes: int) -> float:
    return p.cycles(*_split_counts(p, acc_bytes))


def _split_counts(p: Product, acc_bytes: int) -> tuple[int, int]:
    """Return the load counts with this accumulation buffer.

    load_a * load_b = m*n*d_s / acc and load_a / load_b = load_b_cycle / load_a_cycle give two real numbers, which are
    rounded up, load_a first. Only A can then take more than twice as long as B; in that case its count is halved and
    the other increased to keep the product, if that shortens the longer time.
    """
    product = p.m * p.n * p.d_a / acc_bytes
    load_a = max(1, math.ceil(math.sqrt(product * p.load_b_cycles / p.load_a_cycles)))
    load_b = max(1, math.ceil(product / load_a))
    time_a = load_a * p.load_a_cycles
    if load_a > 1 and time_a > 2 * load_b * p.load_b_cycles:
        half_a = load_a // 2
        more_b = max(1, math.ceil(product / half_a))
        if more_b * p.load_b_cycles < time_a:
            return half_a, more_b
    return load_a, load_b


def _partition(limit: float, size: int, block: int) -> int:
    """Return a partition of at most `limit` in whole blocks, at least one block, or all of `size`."""
    if limit >= size:
        return size
    return min(size, max(block, int(limit) // block * block))


def _counted(
    p: Product, rows: int, columns: int, depth: int, order: str, acc_bytes: int, why: dict[str, str]
) -> Config:
    """Return a configuration of case 2 with its load counts. After rounding, a configuration meant to split K may leave
    it whole."""
    split = depth < p.k
    parts_m, parts_n = ceil_div(p.m, rows), ceil_div(p.n, columns)
    load_a = 1 if order == "mn" and not split else parts_n
    load_b = 1 if order == "nm" and not split else parts_m
    if not split:
        why = {**why, "acc_bytes": "no split-K", "partition_k": "all of K: no split-K"}
    return Config(
        partition_m=rows,
        partition_n=columns,
        partition_k=depth,
        outer_order=order,
        split_k=split,
        acc_bytes=acc_bytes if split else 0,
        load_a=load_a,
        load_b=load_b,
        why=why
        | {
            "load_a": "a block of A stays resident while B streams past"
            if load_a < parts_n
            else f"once for each of {quantity(parts_n, 'block')} of n",
            "load_b": "a block of B stays resident while A streams past"
            if load_b < parts_m
            else f"once for each of {quantity(parts_m, 'block')} of m",
        },
    )
