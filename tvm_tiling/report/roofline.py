"""The roofs under which speeds are drawn: what arithmetic allows, and what each level of memory does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .plot import Series


def roofs_of(peak: Mapping[str, Any], arithmetic: float, left: float, right: float) -> list[Series]:
    """The roof of each level of memory between two intensities; `arithmetic` in giga-operations per second."""
    roofs = []
    for level in peak["bandwidths"]:
        slope = level["gbytes"]
        ridge = arithmetic / slope
        xs = [left, ridge, right] if left < ridge < right else [left, right]
        points = [(x, 1e9 * min(arithmetic, x * slope)) for x in xs]
        roofs.append(Series(f"{level['level']}, {slope:.0f} GB/s", points, line=True, dots=False))
    return roofs
