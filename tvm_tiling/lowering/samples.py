"""Open extents at a sample of them: what formulas take where a kernel serves every size.

A kernel of open size has variables for extents. Its loops are bounded by them; a decision needs numbers, and is made
for a sample: the sizes that it is to be best at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeAlias

import tvm_ffi
from tvm import sym, tirx

from ..sizes import USUAL

Extent: TypeAlias = tirx.Expr | int
_SAMPLES: ContextVar[Mapping[tirx.Var | str, int]] = ContextVar("samples")


@contextmanager
def samples(sizes: Mapping[tirx.Var | str, int]) -> Iterator[None]:
    """Within, sampled() takes these sizes for variables, or for those of a name, which passes over a graph keep where
    they give functions variables of their own."""
    token = _SAMPLES.set(sizes)
    try:
        yield
    finally:
        _SAMPLES.reset(token)


def samples_beside(sizes: Mapping[tirx.Var, int]) -> AbstractContextManager[None]:
    """Within, sampled() takes these sizes as well."""
    return samples({**_SAMPLES.get({}), **sizes})


def is_open(extent: Extent) -> bool:
    """Whether only a run brings the extent."""
    return not isinstance(extent, int | tirx.IntImm)


def sampled(extent: Extent) -> int:
    """The extent, at the sample where it is open; at least 1 then."""
    if isinstance(extent, int | tirx.IntImm):
        return int(extent)
    known = _SAMPLES.get({})

    def at(variable: tirx.Var) -> tirx.Expr:
        return tirx.const(known.get(variable, known.get(variable.name, USUAL)), str(variable.ty))

    value = sym.Analyzer().simplify(tvm_ffi.structural_map(extent, (tirx.Var, at)))
    return max(1, int(value))
