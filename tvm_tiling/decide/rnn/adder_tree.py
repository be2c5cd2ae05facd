"""Adder trees whose tail gives several sums (CAT-N, page 04).

A tree of `inputs` adds them level by level. With a tail of N its last log2(N) levels can also hand on what they are
given, so that 1, 2, 4 .. N sums leave it, of as many columns less each, with no adder beyond the tree's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import HardwareError


def sums_by_columns(inputs: int, tail: int) -> dict[int, int]:
    """Columns added into one sum (EP) -> sums that leave the tree at once, fewest columns first."""
    _require_power("inputs", inputs)
    _require_power("tail", tail)
    if tail > inputs:
        raise HardwareError(f"adder tree: tail = {tail}, accepted: at most its inputs, {inputs}")
    return {inputs // sums: sums for sums in (1 << level for level in reversed(range(tail.bit_length())))}


def smallest_tail(columns: Iterable[int]) -> int:
    """N of the smallest tail with which one tree serves all these numbers of columns."""
    counts = list(columns)
    if not counts:
        raise HardwareError("adder tree: no numbers of columns, accepted: at least one")
    for count in counts:
        _require_power("columns", count)
    return max(counts) // min(counts)


def tree_sums(values: Sequence[float], columns: int, tails: Sequence[int] = ()) -> list[float]:
    """What leaves a tree over `values` that ends in `tails`, one behind the other, when `columns` are added to a sum.

    HardwareError where no tail hands on the sums of so many columns.
    """
    _require_power("inputs", len(values))
    _require_power("columns", columns)
    handed_on = 1
    for tail in tails:
        _require_power("tail", tail)
        handed_on *= tail
    if columns not in sums_by_columns(len(values), handed_on):
        known = ", ".join(map(str, sums_by_columns(len(values), handed_on)))
        raise HardwareError(f"adder tree: columns = {columns}, accepted: {known}")
    level = list(values)
    while len(level) > len(values) // columns:
        level = [left + right for left, right in zip(level[::2], level[1::2], strict=True)]
    return level


def _require_power(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1):
        raise HardwareError(f"adder tree: {name} = {value!r}, accepted: a power of two")
