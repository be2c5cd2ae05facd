"""Keeps memory accesses inside their buffers for any data.

A kernel whose addresses depend on data (positions, lengths, coordinates, NaN cast to an integer) accesses whatever
address the data gives. Such indices are clamped in loads, and stores outside the buffer are skipped. This guarantees
memory safety only; positions.py decides what a wrong position means. Indices that depend on loop variables only, and
those proved to be inside, are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range, TensorLoad
from tvm.ir.expr import TensorRegion

from .known import Known


def bounded(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with every data-dependent access confined to its buffer."""
    bounds = _Bounds(func)
    edits = (
        (TensorLoad, bounds.load),
        (tirx.BufferStore, bounds.store),
        (TensorRegion, bounds.region),
    )
    return tvm_ffi.structural_map(func, edits)


class _Bounds(Known):
    """Accesses of one function."""

    def _is_inside(self, index: Any, extent: Any) -> bool:
        if not isinstance(extent, tirx.IntImm):
            return False
        bound = self.analyzer.const_int_bound(index)
        return bool(bound.min_value >= 0 and bound.max_value < int(extent))

    def _open(self, indices: Sequence[Any], shape: Sequence[Any]) -> list[int]:
        """Return the dimensions along which an access may be outside the buffer."""
        return [
            place
            for place, (index, extent) in enumerate(zip(indices, shape, strict=True))
            if self.from_data(index) and not self._is_inside(index, extent)
        ]

    def load(self, load: TensorLoad) -> Any:
        buffer, indices = load.source, list(load.indices)
        places = self._open(indices, buffer.shape)
        if not places:
            return load
        for place in places:
            extent = buffer.shape[place]
            indices[place] = tirx.max(tirx.min(indices[place], extent - 1), 0)
        clamped = tirx.BufferLoad(buffer, indices)
        sizes = [buffer.shape[place] for place in places]
        if all(isinstance(size, tirx.IntImm) and int(size) > 0 for size in sizes):
            return clamped
        # An empty buffer has no element to read.
        zero = tirx.const(0, str(buffer.dtype))
        return tirx.if_then_else(tirx.all(*[size > 0 for size in sizes]), clamped, zero)

    def store(self, store: tirx.BufferStore) -> tirx.Stmt:
        shape = store.buffer.shape
        inside = [
            tirx.all(store.indices[place] >= 0, store.indices[place] < shape[place])
            for place in self._open(store.indices, shape)
        ]
        return tirx.IfThenElse(tirx.all(*inside), store, None) if inside else store

    def region(self, region: TensorRegion) -> TensorRegion:
        """Widen a block's declared region to the whole axis along data-dependent dimensions."""
        ranges = [
            Range(0, extent) if self.from_data(r.min) or self.from_data(r.extent) else r
            for r, extent in zip(region.region, region.source.shape, strict=True)
        ]
        return tirx.BufferRegion(region.source, ranges)
