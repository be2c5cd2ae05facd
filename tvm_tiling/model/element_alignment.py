"""Alignment of a kernel's arguments: only that of their elements.

TVM assumes an alignment of 64 bytes, but NumPy's memory is aligned to 16, and a slice of an array only to its elements.
A model that had to copy each such input would spend up to two thirds of a small layer's run on it, since the other
cores then fetch the copy from the cache of the core that made it. Loads and stores that require no alignment take the
same time on aligned memory, and a few cycles more across the border of two cache lines.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.buffer import BufferType


def aligned_to_elements(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function without assumptions about the alignment of its parameters and of their views; memory that it
    allocates stays aligned."""
    given = [parameter.ty for parameter in func.params if isinstance(parameter.ty, BufferType)]
    allocated: list[BufferType] = []

    def block(found: s_tir.SBlock) -> None:
        allocated.extend(buffer.ty for buffer in found.alloc_buffers)
        given.extend(region.buffer.ty for region in found.match_buffers)

    visits = [
        (s_tir.SBlock, block),
        (tirx.AllocBuffer, lambda stmt: allocated.append(stmt.buffer.ty)),
        (tirx.DeclBuffer, lambda stmt: given.append(stmt.buffer.ty)),
    ]
    tvm_ffi.structural_walk(func.body, visits)

    def renewed(known: BufferType) -> BufferType:
        if _in(known, allocated) and not _in(known, given):
            return known
        return BufferType(
            known.dtype,
            known.storage_scope,
            known.shape,
            known.strides,
            known.elem_offset,
            max(1, tvm.DataType(str(known.dtype)).bits // 8),
            known.offset_factor,
            known.layout,
            known.allocated_addr,
        )

    return tvm_ffi.structural_map(func, (BufferType, renewed))


def _in(known: BufferType, types: list[BufferType]) -> bool:
    return any(known.same_as(other) for other in types)
