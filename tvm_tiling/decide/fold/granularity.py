"""By how many bytes channels are cut: the padding rule of page 05, for PCI and for PCO."""

from __future__ import annotations

from collections.abc import Sequence


def padding(size: int, block: int) -> int:
    """Bytes by which `size` bytes of channels are padded to whole blocks."""
    return -size % block


def granularity(size: int, candidates: Sequence[int], slack: int) -> int:
    """PCI for `size` bytes of channels by the padding rule: of the candidates that pad less than `slack` bytes more
    than the least, the largest. (The seed says "not more than"; its examples need "less than".)"""
    least = min(padding(size, c) for c in candidates)
    return max(c for c in candidates if padding(size, c) - least < slack)
