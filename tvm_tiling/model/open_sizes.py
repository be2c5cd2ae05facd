"""Sizes for dimensions that a model leaves open: which variants of it are to be compiled."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import WorkloadError
from ..limits import MAX_EXTENT

Sizes: TypeAlias = int | Sequence[int]
MOST_VARIANTS = 64


@dataclass(frozen=True)
class Setting:
    """One variant: the size of the inputs' first dimension, None where it is not open, and sizes of others by name."""

    batch: int | None
    dims: dict[str, int]


def settings_of(batch: Sizes | None, dims: Mapping[str, Sizes] | None) -> list[Setting]:
    """Every combination of the sizes given, the first ones first. WorkloadError says what is not a size."""
    batches: list[int | None] = [None] if batch is None else [*_sizes("batch", batch)]
    named = {name: _sizes(f"dims[{name!r}]", sizes) for name, sizes in (dims or {}).items()}
    settings = [
        Setting(first, dict(zip(named, others, strict=True)))
        for first, others in itertools.product(batches, itertools.product(*named.values()))
    ]
    if len(settings) > MOST_VARIANTS:
        raise WorkloadError(
            f"batch and dims make {len(settings)} combinations, each of which is compiled; accepted: {MOST_VARIANTS}"
        )
    return settings


def _sizes(what: str, given: Sizes) -> list[int]:
    sizes = [given] if isinstance(given, int) else list(given) if isinstance(given, tuple | list) else []
    if not sizes or any(
        isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_EXTENT for size in sizes
    ):
        raise WorkloadError(
            f"{what} = {given!r}; accepted: a whole number from 1 to {MAX_EXTENT}, or several, as in (1, 4, 8)"
        )
    return list(dict.fromkeys(sizes))
