"""The seed's own rule for the configuration of a product (mode "seed"): claims 1 to 19 of seed 000, taken by the
letter.

The letter, with what page 01 mends:

- Case 1 (an operand fits its buffer) keeps A whole where m < n and B otherwise, whether or not that one fits.
- Case 2 compares the best configuration without split-K to the one with it, as if all partitions were real numbers.
Paragraphs
  230 and 231 print each other's buffer; paragraphs 191 and 235 print the ratio of the load counts inverted; paragraph
  166 calls its formula (7) a maximum that it does not show. Formula (8) takes the smaller of the two total load times
  and forgets the other operand's single load. The full maximum is used here, which decides alike: wherever the two
  differ, that single load is longer than all reloads, and split-K cannot be faster than it either.
- Without split-K the order of the loops follows the bandwidths alone; with it, the preset.
- One accumulator takes d_s bytes, as in the seed: those of an element of A. Whether the configuration fits is then
asked of the
  real machine.

Partitions are rounded down to whole blocks, at least one, and load counts are counted from what results (page 01,
Rounding); so paragraphs 183 and 184 need no min(1, .) of their own. A convolution is its matrix view, paragraph 278
with the number of images where it prints n.
"""

from __future__ import annotations

import math

from .traffic import Config, Product, ceil_div


def seed_config(p: Product, acc_factor: float, split_order: str) -> Config:
    """The literal cut of a product; `acc_factor` is the step by which the accumulation buffer shrinks."""
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
    """Case 1, claims 5 to 10."""
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
            "partition_m": f"{compared}: all of m" if m_outside else "buf_a / (k * d_s)",
            "partition_n": "buf_b / (k * d_s)" if m_outside else f"{compared}: all of n",
            "partition_k": "all of k: K is not split",
            "outer_order": compared,
            "split_k": "an operand fits its buffer",
            "load_a": "an operand fits its buffer",
            "load_b": "an operand fits its buffer",
        },
    )


def _unsplit(p: Product, unsplit: float, split: float) -> Config:
    """Case 2 without split-K, claims 11 and 13."""
    m_outside = p.bw_a < p.bw_b
    return _counted(
        p,
        _partition(p.buf_a / (p.k * p.d_a), p.m, p.block_m),
        _partition(p.buf_b / (p.k * p.d_b), p.n, p.block_n),
        p.k,
        "mn" if m_outside else "nm",
        acc_bytes=0,
        why={
            "partition_m": "buf_a / (k * d_s)",
            "partition_n": "buf_b / (k * d_s)",
            "partition_k": "all of k: K is not split",
            "outer_order": f"bandwidth of A = {p.bw_a:g} {'<' if m_outside else '>='} of B = {p.bw_b:g}",
            "split_k": f"{unsplit:.0f} cycles without it, {split:.0f} with it",
        },
    )


def _split(p: Product, acc_factor: float, order: str, unsplit: float, split: float) -> Config:
    """Case 2 with split-K, claims 12 and 14: shrink the accumulation buffer while that costs no time.

    Claim 12 prints the first size that is slower; paragraphs 187 and 250 mean the last that is not. No size below one
    block of sums is tried.
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
            "partition_m": f"m / {load_b}",
            "partition_n": f"n / {load_a}",
            "partition_k": "min(buf_a / (partition_m * d_s), buf_b / (partition_n * d_s))",
            "outer_order": "the preset, or m outside n",
            "split_k": f"{split:.0f} cycles with it, {unsplit:.0f} without",
            "acc_bytes": f"{p.acc_max} bytes shrunk by {acc_factor:g} while that costs no time",
        },
    )


def _split_cycles(p: Product, acc_bytes: int) -> float:
    return p.cycles(*_split_counts(p, acc_bytes))


def _split_counts(p: Product, acc_bytes: int) -> tuple[int, int]:
    """Load counts with that accumulation buffer (paragraphs 154 to 156, step s504).

    load_a * load_b = m*n*d_s / acc and load_a / load_b = load_b_cycle / load_a_cycle give two real numbers, which are
    rounded up, load_a first. So only A can come to take over twice as long as B; then its count is halved and the
    other's grows to keep the product, where that shortens the longer time.
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
    """A partition of at most `limit` in whole blocks, but at least one block, or all of `size`."""
    if limit >= size:
        return size
    return min(size, max(block, int(limit) // block * block))


def _counted(
    p: Product, rows: int, columns: int, depth: int, order: str, acc_bytes: int, why: dict[str, str]
) -> Config:
    """A configuration of case 2 with its load counts; after rounding, one that was meant to split K may leave it
    whole."""
    split = depth < p.k
    parts_m, parts_n = ceil_div(p.m, rows), ceil_div(p.n, columns)
    load_a = 1 if order == "mn" and not split else parts_n
    load_b = 1 if order == "nm" and not split else parts_m
    if not split:
        why = {**why, "acc_bytes": "K is not split", "partition_k": "all of k: K is not split"}
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
            "load_a": "a block of A stays while B passes by" if load_a < parts_n else f"{parts_n} partitions of n",
            "load_b": "a block of B stays while A passes by" if load_b < parts_m else f"{parts_m} partitions of m",
        },
    )
