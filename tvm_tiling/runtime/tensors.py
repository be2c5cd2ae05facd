"""Constants as TVM's tensors that share memory with arrays, and the other way."""

from __future__ import annotations

import numpy as np
import tvm

from .arrays import ALIGNMENT, SHARED_AS, numpy_type
from .pages import LARGE, zeros


def array_of(tensor: tvm.runtime.Tensor) -> np.ndarray | None:
    """The tensor's memory as an array; None for types that NumPy lacks."""
    try:
        if (name := str(tensor.dtype)) in SHARED_AS:
            shared = tensor._create_view(tuple(tensor.shape), SHARED_AS[name].name)
            return np.from_dlpack(shared).view(numpy_type(name))
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None


def bytes_of(tensor: tvm.runtime.Tensor, size: int) -> np.ndarray:
    """The tensor's memory, `size` bytes, whatever its type."""
    if not size:
        return np.empty(0, np.uint8)
    return np.from_dlpack(tensor._create_view((size,), "uint8"))


def tensor_of(array: np.ndarray) -> tvm.runtime.Tensor:
    """The array as a constant: its own memory where that is aligned and contiguous, so that nobody may write to it any
    more, else a copy."""
    if array.nbytes < LARGE:
        return tvm.runtime.tensor(np.asarray(array, order="C"))
    held = array.flags.c_contiguous and array.flags.writeable and not array.ctypes.data % ALIGNMENT
    content = array.reshape(-1).view(np.uint8) if held else zeros(array.nbytes)
    if not held:
        content.view(array.dtype).reshape(array.shape)[...] = array
    return tvm.runtime.from_dlpack(content)._create_view(array.shape, str(array.dtype))
