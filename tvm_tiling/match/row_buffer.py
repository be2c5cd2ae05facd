"""Buffers of whole rows, reduced to the part being computed.

A stage that passes a row to the next one writes it at the addresses of all rows. Within a group only the rows of one
strip exist at a time: columns are counted from 0, with one element per row of the strip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from ..lowering.extents import as_index, product_of, quotient, same, times
from .row_group import Columns, strides
from .stages import Stage


@dataclass(frozen=True)
class StripRows:
    """The rows of a strip: `pitch` rows along `axis` from `base`, one row if `axis` is None."""

    rows: frozenset[tirx.Var]
    axis: tirx.Var | None
    base: tirx.Var
    pitch: int


def fits_a_strip(columns: Columns) -> bool:
    """Return whether columns with these (stride, extent), outermost first, can be counted by address alone."""
    expected = columns[-1][0]
    for step, extent in reversed(columns):
        if not same(step, expected):
            return False
        expected = times(step, extent)
    return True


def shrunk(
    stages: Sequence[Stage], buffer: tirx.Buffer, columns: Columns, strip: StripRows
) -> tuple[list[Stage], tirx.Buffer]:
    """The stages with `buffer`, which has these `columns`, reduced to the rows of one strip; and the reduced buffer."""
    size = product_of((*(extent for _, extent in columns), strip.pitch))
    small = tirx.decl_buffer((size,), str(buffer.dtype), buffer.name)
    unit = columns[-1][0]

    def narrow(address: tirx.Expr, stage: Stage) -> tirx.Expr:
        found = strides(address, (*stage.axes, *stage.reduced))
        assert found is not None
        total: tirx.Expr = tirx.const(0, str(strip.base.ty))
        for variable, step, _ in found:
            if variable not in strip.rows:
                whole = quotient(step, unit)
                assert whole is not None, "columns that fit a strip have strides that are multiples of the last one"
                total = total + variable * as_index(times(whole, strip.pitch), variable)
        return total if strip.axis is None else total + (strip.axis - strip.base)

    def of(stage: Stage) -> Stage:
        def read(load: TensorLoad) -> TensorLoad:
            if not load.source.same_as(buffer):
                return load
            return tirx.BufferLoad(small, [narrow(load.indices[0], stage)])

        writes = []
        for write in stage.writes:
            value = tvm_ffi.structural_map(write.value, (TensorLoad, read))
            if write.buffer.same_as(buffer):
                writes.append(replace(write, buffer=small, at=narrow(write.at, stage), value=value))
            else:
                writes.append(replace(write, value=value))
        return replace(stage, writes=tuple(writes))

    return [of(stage) for stage in stages], small
