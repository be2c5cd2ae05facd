"""Adder trees whose tail gives several sums (CAT-N, page 04).

A tree of `inputs` adds them level by level. With a tail of N its last log2(N) levels can also hand on what they are
given, so that 1, 2, 4 .. N sums leave it, of as many columns less each, with no adder beyond the tree's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import HardwareError


def smallest_tail(columns: Iterable[int]) -> int:
    """N of the smallest tail with which one tree serves all these numbers of columns."""
    counts = list(columns)
    if not counts:
        raise HardwareError("adder tree: no numbers of columns; expected at least one")
    for count in counts:
        _require_power("columns", count)
    return max(counts) // min(counts)


def _require_power(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1):
        raise HardwareError(f"adder tree: {name} = {value!r}; expected a power of two")
