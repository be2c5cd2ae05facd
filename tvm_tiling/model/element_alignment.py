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
    # by handle; types of buffers are compared by their content
    given = {parameter.ty.__chandle__() for parameter in func.params if isinstance(parameter.ty, BufferType)}
    allocated: set[int] = set()
    made: dict[int, tuple[BufferType, BufferType]] = {}  # the known one too, which keeps its handle from being reused

    def block(found: s_tir.SBlock) -> None:
        allocated.update(buffer.ty.__chandle__() for buffer in found.alloc_buffers)
        given.update(region.buffer.ty.__chandle__() for region in found.match_buffers)

    visits = [
        (s_tir.SBlock, block),
        (tirx.AllocBuffer, lambda stmt: allocated.add(stmt.buffer.ty.__chandle__())),
        (tirx.DeclBuffer, lambda stmt: given.add(stmt.buffer.ty.__chandle__())),
    ]
    tvm_ffi.structural_walk(func.body, visits)

    def renewed(known: BufferType) -> BufferType:
        handle = known.__chandle__()
        if handle in allocated and handle not in given:
            return known
        if handle not in made:
            made[handle] = known, _of_elements(known)
        return made[handle][1]

    return tvm_ffi.structural_map(func, (BufferType, renewed))


def _of_elements(known: BufferType) -> BufferType:
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
