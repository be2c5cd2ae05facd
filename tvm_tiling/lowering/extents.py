"""Arithmetic of extents, which are numbers or, where only a run brings them, expressions of its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx

from .open_index import OpenIndices, is_same, quotient_of
from .samples import Extent, is_open, sampled, samples

# No size of a run is negative, nor so large that a product of three leaves 64 bits.
_SIZES = tvm.ir.Range.from_min_extent(tirx.const(0, "int64"), tirx.const(1 << 40, "int64"))


def number_of(extent: Extent) -> Extent:
    """A number as Python's; an open extent as it is."""
    return extent if is_open(extent) else int(extent)


_LARGE = 1 << 12  # of a size, so that products of several stay within 64 bits


def as_index(extent: Extent, like: tirx.Var) -> tirx.Expr:
    """An extent as a whole number of the type of an axis."""
    return extent if is_open(extent) else tirx.const(int(extent), str(like.ty))


def sizes_in(expr: Any) -> set[tirx.Var]:
    """The variables of an extent."""
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(expr, (tirx.Var, found.add))
    return found


def analyzer_of(*extents: Extent) -> sym.Analyzer:
    """An analyzer that knows of the variables in these extents that they are sizes."""
    analyzer = sym.Analyzer()
    for variable in {v for extent in extents if is_open(extent) for v in sizes_in(extent)}:
        analyzer.bind(variable, _SIZES)
    return analyzer


def same(a: Extent, b: Extent) -> bool:
    """Whether two extents are proved to be equal."""
    if not is_open(a) and not is_open(b):
        return int(a) == int(b)
    return is_same(_expr(a), _expr(b))


def alike(one: Sequence[Extent] | None, other: Sequence[Extent] | None) -> bool:
    """Whether two shapes are proved to be equal."""
    return one is not None and other is not None and len(one) == len(other) and all(map(same, one, other))


def is_one(extent: Extent) -> bool:
    """Whether an extent is 1, which is known before a run."""
    return not is_open(extent) and int(extent) == 1


def from_outer(strides: Sequence[Extent]) -> list[int] | None:
    """The places of strides of one tensor, each a multiple of those within it, outermost first.

    They are compared at large sizes, since for some sizes two of them are equal. None where two are equal even there.
    """
    sizes = sorted({v for stride in strides if is_open(stride) for v in sizes_in(stride)}, key=str)
    with samples({variable: _LARGE + place for place, variable in enumerate(sizes)}):
        values = [sampled(stride) for stride in strides]
    order = sorted(range(len(values)), key=lambda place: -values[place])
    return order if len(set(values)) == len(values) else None


def times(*extents: Extent) -> Extent:
    """Their product."""
    return product_of(extents)


def product_of(extents: Iterable[Extent]) -> Extent:
    """The product of extents."""
    known, left = 1, []
    for extent in extents:
        if is_open(extent):
            left.append(extent)
        else:
            known *= int(extent)
    if not left:
        return known
    total = left[0]
    for extent in left[1:]:
        total = total * extent
    return _shorter(total * tirx.const(known, "int64") if known != 1 else total)


def parted(extent: Extent, size: int) -> tuple[Extent, Extent]:
    """(whole parts of `size`, what is left); 0 is left where that is proved."""
    if not is_open(extent):
        return divmod(int(extent), size)
    whole = tirx.const(size, "int64")
    return _shorter(tirx.floordiv(extent, whole)), _shorter(tirx.floormod(extent, whole))


def parts_of(extent: Extent, size: int) -> Extent:
    """How many parts of at most `size` elements there are."""
    if not is_open(extent):
        return -(-int(extent) // size)
    return _shorter(tirx.floordiv(extent + tirx.const(size - 1, "int64"), tirx.const(size, "int64")))


def quotient(extent: Extent, divisor: Extent) -> Extent | None:
    """extent / divisor, None where it is not proved to be a whole number."""
    if not is_open(extent) and not is_open(divisor):
        return int(extent) // int(divisor) if int(extent) % int(divisor) == 0 else None
    found = quotient_of(_expr(extent), _expr(divisor))
    return None if found is None else number_of(found)


def _shorter(expr: tirx.Expr) -> Extent:
    return number_of(OpenIndices(()).shortest(expr))


def _expr(extent: Extent) -> tirx.Expr:
    return tirx.const(int(extent), "int64") if not is_open(extent) else extent
