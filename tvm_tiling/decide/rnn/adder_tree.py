"""Adder trees with a configurable tail (CAT-N) that can output several sums.

A tree with `inputs` inputs adds them level by level. With a tail of N, its last log2(N) levels can also forward their
inputs, so that 1, 2, 4 .. N sums leave the tree, each over correspondingly fewer columns, without additional adders.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import HardwareError


def smallest_tail(columns: Iterable[int]) -> int:
    """Return the smallest tail N with which one tree supports all these numbers of columns."""
    counts = list(columns)
    if not counts:
        raise HardwareError("adder tree: no numbers of columns; expected at least one")
    for count in counts:
        _require_power("columns", count)
    return max(counts) // min(counts)


def _require_power(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1):
        raise HardwareError(f"adder tree: {name} = {value!r}; expected a power of two")
