"""Static knowledge about the values in a PrimFunc: ranges of its variables, and which values depend on data."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx
from tvm.ir import Range, TensorLoad
from tvm.ir.expr import TensorRegion

# Nodes without children, for which the traversal is skipped.
_LEAVES = (tirx.IntImm, tirx.Var)
_TOGETHER = 64
_FOUND = tvm_ffi.VisitInterrupt(None)  # ends a traversal


class Known:
    """The ranges of a function's variables, and which of them depend on data."""

    def __init__(self, func: tirx.PrimFunc) -> None:
        self.analyzer = sym.Analyzer()
        self._body = func.body
        self._decided: set[tirx.Var] = set()  # variables that depend on data
        known: dict[tirx.Var, Range | None] = {}
        self._counts = _stored_once(func)  # counts that, as far as is known yet, do not depend on data

        def stored(store: tirx.BufferStore) -> None:
            if store.buffer in self._counts and self.from_data(store.value):
                self._counts.remove(store.buffer)

        def ranged(variable: tirx.Var, extent: Range) -> None:
            fixed = isinstance(extent.min, tirx.IntImm) and isinstance(extent.extent, tirx.IntImm)
            same = variable not in known or known[variable] == extent
            known[variable] = extent if fixed and same and int(extent.extent) > 0 else None
            if self.from_data(extent.min) or self.from_data(extent.extent):
                self._decided.add(variable)

        def valued(variable: tirx.Var, value: Any) -> None:
            if self.from_data(value):
                self._decided.add(variable)

        def block(realize: s_tir.SBlockRealize) -> None:
            for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
                ranged(axis.var, axis.dom)
                valued(axis.var, value)

        # Visits in preorder: a loop's variable before the blocks that it drives.
        visits = (
            (tirx.For, lambda loop: ranged(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))),
            (s_tir.SBlockRealize, block),
            (tirx.Bind, lambda bind: valued(bind.var, bind.value)),
            (tirx.Let, lambda let: valued(let.var, let.value)),
            (tirx.BufferStore, stored),
        )
        tvm_ffi.structural_walk(func.body, visits, order="pre")
        for variable, extent in known.items():
            if extent is not None and variable not in self._decided:
                self.analyzer.bind(variable, extent)

    def from_data(self, expr: Any) -> bool:
        """Return whether the value of `expr`, or of any of several expressions, depends on the contents of a tensor."""
        if isinstance(expr, tirx.IntImm):
            return False
        if isinstance(expr, tirx.Var):
            return expr in self._decided
        visits: list[Any] = [(TensorLoad, lambda load: None if load.source in self._counts else _FOUND)]
        if self._decided:
            visits.append((tirx.Var, lambda variable: _FOUND if variable in self._decided else None))
        return tvm_ffi.structural_walk(expr, visits) is not None

    def addresses(self, kinds: tuple[type, ...]) -> set[Any]:
        """Return the expressions of these kinds in indices and extents, except those that depend on data."""
        places: list[Any] = []  # indices and extents, those of one access together; most extents are leaves
        visits = (
            (TensorLoad, lambda load: places.append(load.indices)),
            (tirx.BufferStore, lambda store: places.append(store.indices)),
            (TensorRegion, lambda accessed: places.append(accessed.region)),
            (s_tir.SBlockRealize, lambda realize: places.append(realize.iter_values)),
            (tirx.For, lambda loop: places.extend(e for e in (loop.min, loop.extent) if not isinstance(e, _LEAVES))),
        )
        tvm_ffi.structural_walk(self._body, visits)
        free: set[Any] = set()
        mixed: set[Any] = set()  # within places of which a part depends on data
        # One traversal of several places takes a fraction of the time of one for each.
        for start in range(0, len(places), _TOGETHER):
            some = places[start : start + _TOGETHER]
            for part in some if self.from_data(some) else (some,):
                tvm_ffi.structural_walk(part, (kinds, (mixed if self.from_data(part) else free).add))
        return free | {expr for expr in mixed - free if not self.from_data(expr)}


def _stored_once(func: tirx.PrimFunc) -> set[Any]:
    """Return the function's own int64 buffers of one element, as used for counts, that are stored to in exactly one
    place."""
    own: list[Any] = []
    stores: list[Any] = []
    visits = (
        (tirx.AllocBuffer, lambda statement: own.append(statement.buffer)),
        (tirx.BufferStore, lambda store: stores.append(store.buffer)),
    )
    tvm_ffi.structural_walk(func.body, visits)
    counts = {b for b in own if str(b.dtype) == "int64" and len(b.shape) == 1 and b.shape[0] == 1}
    return {b for b in counts if sum(b.same_as(store) for store in stores) == 1} if counts else set()
