"""Sample values and ranges of symbolic extents, used by decisions where a kernel serves every size.

A kernel of dynamic size has variables for extents. Its loops are bounded by them; a decision needs numbers, and is made
for a sample: the sizes for which it should be best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import tvm
import tvm_ffi
from tvm import sym, tirx

from ..limits import MAX_EXTENT
from ..sizes import USUAL, Range

Extent: TypeAlias = tirx.Expr | int
_SAMPLES: ContextVar[Mapping[tirx.Var | str, int]] = ContextVar("samples")
_RANGES: ContextVar[Mapping[str, tuple[int, int]]] = ContextVar("ranges")


@contextmanager
def samples(sizes: Mapping[tirx.Var | str, int], ranges: Mapping[str, tuple[int, int]] | None = None) -> Iterator[None]:
    """Within this context, sampled() uses these sizes for variables, or for variables with these names, since graph
    passes keep names when they give functions their own variables; ranged() uses `ranges`, the first and last size by
    name."""
    token, other = _SAMPLES.set(sizes), _RANGES.set(ranges or {})
    try:
        yield
    finally:
        _SAMPLES.reset(token)
        _RANGES.reset(other)


def samples_beside(sizes: Mapping[tirx.Var, int]) -> AbstractContextManager[None]:
    """Within this context, sampled() uses these sizes in addition."""
    return samples({**_SAMPLES.get({}), **sizes}, _RANGES.get({}))


def is_open(extent: Extent) -> bool:
    """Return whether the extent is dynamic."""
    return not isinstance(extent, int | tirx.IntImm)


def sampled(extent: Extent) -> int:
    """Return the extent, for a dynamic one its sample value, at least 1."""
    if isinstance(extent, int | tirx.IntImm):
        return int(extent)
    known = _SAMPLES.get({})

    def at(variable: tirx.Var) -> tirx.Expr:
        return tirx.const(known.get(variable, known.get(variable.name, USUAL)), str(variable.ty))

    value = sym.Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, at)))
    return max(1, int(value))


def ranged(extent: Extent) -> Range:
    """Return the range of the extent, at least 1; without an upper end if nothing is known."""
    if isinstance(extent, int | tirx.IntImm):
        return Range(int(extent), int(extent))
    known, analyzer, bound = _RANGES.get({}), sym.Analyzer(), set[tirx.Var]()

    def tell(variable: tirx.Var) -> tirx.Expr:
        if variable not in bound:
            bound.add(variable)
            least, most = known.get(variable.name, (1, MAX_EXTENT))
            dtype = str(variable.ty)
            extent = tirx.const(most - least + 1, dtype)
            analyzer.bind(variable, tvm.ir.Range.from_min_extent(tirx.const(least, dtype), extent))
        return variable

    tvm_ffi.structural_map(extent, (tirx.Var, tell))
    found = analyzer.const_int_bound(extent)
    last = int(found.max_value)
    return Range(max(1, int(found.min_value)), last if last < MAX_EXTENT else None)
