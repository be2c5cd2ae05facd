"""Properties of tensors, and small tensors, for the converters."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx


def constant(values: Any, dtype: str = "int64") -> relax.Expr:
    """A constant tensor."""
    return relax.const(np.asarray(values, dtype), dtype)


def number(value: float, like: relax.Expr) -> relax.Expr:
    """A scalar of another tensor's element type."""
    return relax.const(value, dtype_of(like))


def as_type(bb: relax.BlockBuilder, value: relax.Expr, dtype: str) -> relax.Expr:
    """Cast a tensor to an element type."""
    return value if dtype_of(value) == dtype else bb.emit(relax.op.astype(value, dtype))


def as_inputs(*values: relax.Expr | None) -> list:
    """A converter's inputs: omitted trailing inputs read as None."""
    return tvm_onnx.onnx_input(values)


def dtype_of(value: relax.Expr) -> str:
    """TVM's name of a tensor's element type."""
    return str(value.ty.dtype)


def shape_of(value: relax.Expr) -> list[int]:
    """The static shape of a tensor."""
    return [int(extent) for extent in value.ty.shape]


def rank_of(value: relax.Expr) -> int:
    """The number of axes of a tensor, whose extents may be dynamic."""
    return len(value.ty.shape)


def spatial_of(value: relax.Expr) -> list[int]:
    """The static spatial extents of an image tensor; its batch dimension may be dynamic."""
    return [int(extent) for extent in list(value.ty.shape)[2:]]


def known(value: relax.Expr | None) -> np.ndarray | None:
    """The value of a constant; None for values computed or passed at run time."""
    return value.value.numpy() if isinstance(value, tvm.ir.GenericConst) else None


def held(value: relax.Expr) -> np.ndarray:
    """The value of a constant."""
    found = known(value)
    assert found is not None
    return found
