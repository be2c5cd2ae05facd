"""The padding rule of W-fold: into how many bytes channels are divided, for PCI and for PCO."""

from __future__ import annotations

from collections.abc import Sequence


def padding(size: int, block: int) -> int:
    """Return the bytes by which `size` bytes of channels are padded to whole blocks."""
    return -size % block


def granularity(size: int, candidates: Sequence[int], slack: int) -> int:
    """Return the granularity for `size` bytes of channels by the padding rule: the largest candidate that pads less
    than `slack` bytes more than the minimum. (The publication says "not more than"; its examples require "less
    than".)"""
    least = min(padding(size, c) for c in candidates)
    return max(c for c in candidates if padding(size, c) - least < slack)
