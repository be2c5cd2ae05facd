"""The caller's settings for dynamic dimensions: sizes that are compiled separately, and ranges that remain dynamic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..errors import ModelFormatError, WorkloadError, nearest
from ..limits import MAX_EXTENT
from ..sizes import MayBeEmpty, OpenSizes

# One size; a list, of which each is compiled separately; a pair or a range, supported by one executable.
Sizes: TypeAlias = int | Sequence[int] | range
MOST_VARIANTS = 64
Range: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Setting:
    """One variant: the size of the inputs' first dimension, None if it is not set, and sizes of others by name; and the
    ranges, first and last size, that remain dynamic."""

    batch: int | None
    dims: dict[str, int]
    batch_range: Range | None = None
    ranges: tuple[tuple[str, Range], ...] = ()

    @property
    def may_be_empty(self) -> MayBeEmpty:
        """The sizes whose range starts at 0."""
        names = frozenset(name for name, (least, _) in self.ranges if least == 0)
        return MayBeEmpty(names, self.batch_range is not None and self.batch_range[0] == 0)

    def within(self, sizes: OpenSizes, leading: Sequence[str]) -> OpenSizes:
        """The dynamic dimensions of a model within these ranges; `leading`: those that are first dimensions of inputs.
        Raises ModelFormatError if the model has no such dimension, or does not allow the range."""
        ranges = dict(self.ranges)
        if self.batch_range is not None:
            if not leading:
                raise ModelFormatError("batch is given as a range, but no input has a dynamic first dimension")
            ranges.update((name, self.batch_range) for name in leading if name not in ranges)
        for name in ranges:
            if name not in sizes.names:
                raise ModelFormatError(f"dims names {name!r}; {nearest(name, sizes.names)}")
        bounded = []
        for size in sizes.sizes:
            least, most = ranges.get(size.name, (size.least, size.most))
            if least > size.most or most < size.least:
                raise ModelFormatError(
                    f"size {size.name!r} is given as {least} to {most}; expected {size.least} to {size.most}"
                )
            bounded.append(replace(size, least=max(least, size.least), most=min(most, size.most)))
        return replace(sizes, sizes=tuple(bounded))


def settings_of(batch: Sizes | None, dims: Mapping[str, Sizes] | None) -> list[Setting]:
    """Every combination of the given sizes, in order. Raises WorkloadError for invalid sizes."""
    ranges = {name: found for name, sizes in (dims or {}).items() if (found := range_of(f"dims[{name!r}]", sizes))}
    batch_range = range_of("batch", batch)
    batches: list[int | None] = [None] if batch is None or batch_range else [*_sizes("batch", batch)]
    named = {name: _sizes(f"dims[{name!r}]", sizes) for name, sizes in (dims or {}).items() if name not in ranges}
    settings = [
        Setting(first, dict(zip(named, others, strict=True)), batch_range, tuple(ranges.items()))
        for first, others in itertools.product(batches, itertools.product(*named.values()))
    ]
    if len(settings) > MOST_VARIANTS:
        raise WorkloadError(
            f"batch and dims result in {len(settings)} combinations, each compiled separately; expected {MOST_VARIANTS}"
        )
    return settings


def range_of(what: str, given: object) -> Range | None:
    """First and last size of a range; None for anything else."""
    if isinstance(given, range):
        if given.step != 1 or len(given) == 0 or given[0] < 0 or given[-1] > MAX_EXTENT:
            raise WorkloadError(f"{what} = {given!r}; expected a range of sizes from 0 to {MAX_EXTENT}, in steps of 1")
        return given[0], given[-1]
    if isinstance(given, tuple) and len(given) == 2 and all(type(size) is int for size in given):
        first, last = given
        if 0 <= first < last <= MAX_EXTENT:
            return first, last
    return None


def _sizes(what: str, given: Sizes) -> list[int]:
    sizes = [given] if isinstance(given, int) else list(given) if isinstance(given, tuple | list) else []
    if not sizes or any(
        isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_EXTENT for size in sizes
    ):
        raise WorkloadError(
            f"{what} = {given!r}; expected a whole number from 1 to {MAX_EXTENT}, or several, such as [1, 4, "
            "8], or a range, such as (1, 512)"
        )
    return list(dict.fromkeys(sizes))
