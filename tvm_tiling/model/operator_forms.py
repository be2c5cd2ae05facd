"""What an operator without a decision computes, for reports."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from ..match.evaluate import conditional

REDUCTION, ELEMENT_WISE, DATA_MOVEMENT = "reduction", "element-wise", "data movement"
_OPAQUE = 8  # TVM's op_pattern of operators whose steps are more than one value per element


def form_of(func: tirx.PrimFunc) -> str | None:
    """Return "reduction" if a block of an unscheduled function reduces an axis, as in sums, pooling and normalisation,
    "data movement" if all blocks only copy elements or constants, and "element-wise" otherwise; None for functions that
    TVM calls opaque, such as scans."""
    if func.attrs is not None and int(func.attrs.get("op_pattern", 0)) == _OPAQUE:
        return None
    blocks: list[s_tir.SBlock] = []
    stored: list[Any] = []
    tvm_ffi.structural_walk(
        func.body, [(s_tir.SBlock, blocks.append), (tirx.BufferStore, lambda store: stored.append(store.value))]
    )
    if any(int(axis.iter_type) == tirx.IterVar.CommReduce for block in blocks for axis in block.iter_vars):
        return REDUCTION
    return DATA_MOVEMENT if all(map(_is_moved, stored)) else ELEMENT_WISE


def _is_moved(value: Any) -> bool:
    """Whether a value is an element or a constant, possibly chosen by a condition."""
    if (branches := conditional(value)) is not None:
        return all(map(_is_moved, branches[1:]))
    return isinstance(value, TensorLoad | tirx.IntImm | tirx.FloatImm)
