"""Arithmetic on extents, which are integers or, for dynamic dimensions, expressions of symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx

from .open_index import OpenIndices, is_same, quotient_of
from .samples import Extent, is_open, sampled, samples

# Sizes are neither negative nor so large that a product of three exceeds 64 bits.
_SIZES = tvm.ir.Range.from_min_extent(tirx.const(0, "int64"), tirx.const(1 << 40, "int64"))


def number_of(extent: Extent) -> Extent:
    """Return a static extent as an int; a symbolic one unchanged."""
    return extent if is_open(extent) else int(extent)


_LARGE = 1 << 12  # sample value of a size; products of several stay within 64 bits


def as_index(extent: Extent, like: tirx.Var) -> tirx.Expr:
    """Return an extent as an integer expression of the type of an axis."""
    return extent if is_open(extent) else tirx.const(int(extent), str(like.ty))


def apart(index: tirx.Expr, extents: Sequence[Extent]) -> list[tirx.Expr]:
    """Return the index along each axis, of an index over all axes; the first one is not reduced by its extent."""
    found: list[tirx.Expr] = []
    for extent in reversed(extents[1:]):
        found.insert(0, tirx.floormod(index, extent))
        index = tirx.floordiv(index, extent)
    return [index, *found] if extents else []


def sizes_in(expr: Any) -> set[tirx.Var]:
    """Return the variables of an extent."""
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(expr, (tirx.Var, found.add))
    return found


def analyzer_of(*extents: Extent) -> sym.Analyzer:
    """Return an analyzer that knows the variables in these extents to be sizes."""
    analyzer = sym.Analyzer()
    for variable in {v for extent in extents if is_open(extent) for v in sizes_in(extent)}:
        analyzer.bind(variable, _SIZES)
    return analyzer


def same(a: Extent, b: Extent) -> bool:
    """Return whether two extents are provably equal."""
    if not is_open(a) and not is_open(b):
        return int(a) == int(b)
    return is_same(_expr(a), _expr(b))


def alike(one: Sequence[Extent] | None, other: Sequence[Extent] | None) -> bool:
    """Return whether two shapes are provably equal."""
    return one is not None and other is not None and len(one) == len(other) and all(map(same, one, other))


def is_one(extent: Extent) -> bool:
    """Return whether an extent is statically 1."""
    return not is_open(extent) and int(extent) == 1


def from_outer(strides: Sequence[Extent]) -> list[int] | None:
    """Return the indices of a tensor's strides, outermost first; each stride is a multiple of those within it.

    They are compared at large sample sizes, since two of them may be equal for small ones. Returns None if two are
    equal even there.
    """
    sizes = sorted({v for stride in strides if is_open(stride) for v in sizes_in(stride)}, key=str)
    with samples({variable: _LARGE + place for place, variable in enumerate(sizes)}):
        values = [sampled(stride) for stride in strides]
    order = sorted(range(len(values)), key=lambda place: -values[place])
    return order if len(set(values)) == len(values) else None


def times(*extents: Extent) -> Extent:
    """Return the product of the arguments."""
    return product_of(extents)


def product_of(extents: Iterable[Extent]) -> Extent:
    """Return the product of extents."""
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
    """Return (number of whole parts of `size`, remainder); the remainder is 0 where that is proved."""
    if not is_open(extent):
        return divmod(int(extent), size)
    whole = tirx.const(size, "int64")
    return _shorter(tirx.floordiv(extent, whole)), _shorter(tirx.floormod(extent, whole))


def parts_of(extent: Extent, size: int) -> Extent:
    """Return the number of parts of at most `size` elements."""
    if not is_open(extent):
        return -(-int(extent) // size)
    return _shorter(tirx.floordiv(extent + tirx.const(size - 1, "int64"), tirx.const(size, "int64")))


def quotient(extent: Extent, divisor: Extent) -> Extent | None:
    """Return extent / divisor; None if it is not provably an integer."""
    if not is_open(extent) and not is_open(divisor):
        return int(extent) // int(divisor) if int(extent) % int(divisor) == 0 else None
    found = quotient_of(_expr(extent), _expr(divisor))
    return None if found is None else number_of(found)


def _shorter(expr: tirx.Expr) -> Extent:
    return number_of(OpenIndices(()).shortest(expr))


def _expr(extent: Extent) -> tirx.Expr:
    return tirx.const(int(extent), "int64") if not is_open(extent) else extent
