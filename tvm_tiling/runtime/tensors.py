"""Conversion between TVM constants and arrays with shared memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tvm

from .arrays import ALIGNMENT, SHARED_AS, numpy_type, writable
from .pages import LARGE, zeros


def array_of(tensor: tvm.runtime.Tensor) -> np.ndarray | None:
    """The tensor's memory as an array; None for types that NumPy does not have."""
    try:
        if (name := str(tensor.dtype)) in SHARED_AS:
            shared = tensor._create_view(tuple(tensor.shape), SHARED_AS[name].name)
            return writable(np.from_dlpack(shared)).view(numpy_type(name))
        return writable(np.from_dlpack(tensor))
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None


def largest_of(tensors: Iterable[tvm.runtime.Tensor]) -> int | None:
    """The largest magnitude of the tensors' integers; None if one of them has none or cannot be read."""
    found = 0
    for values in map(array_of, tensors):
        if values is None or values.dtype.kind not in "iu":
            return None
        if values.size:
            found = max(found, int(values.max()), -int(values.min()))
    return found


def bytes_of(tensor: tvm.runtime.Tensor, size: int) -> np.ndarray:
    """The tensor's memory of `size` bytes, whatever its type."""
    if not size:
        return np.empty(0, np.uint8)
    return writable(np.from_dlpack(tensor._create_view((size,), "uint8")))


def bytes_in_place(array: np.ndarray) -> tvm.runtime.Tensor:
    """uint8 data of a file as a constant: its own pages if they are the process's, at any alignment, so that it is read
    when the constant is. Kernels use such a constant only as an aligned copy."""
    if array.nbytes < LARGE or not array.flags.c_contiguous or not array.flags.writeable:
        return tensor_of(array)
    shift = array.ctypes.data % ALIGNMENT
    around = np.asarray(_From(array, shift))  # TVM accepts only aligned memory
    return tvm.runtime.from_dlpack(around)._create_view(array.shape, "uint8", shift)


class _From:
    """Memory that starts a few bytes before an array, in the same page, as an array that keeps it alive."""

    def __init__(self, held: np.ndarray, ahead: int) -> None:
        self._held = held
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (ahead + held.nbytes,),
            "data": (held.ctypes.data - ahead, False),
        }


def tensor_of(array: np.ndarray) -> tvm.runtime.Tensor:
    """The array as a constant: its own memory if that is aligned and contiguous, after which nobody may write to it,
    otherwise a copy."""
    if array.nbytes < LARGE:
        return tvm.runtime.tensor(np.asarray(array, order="C"))
    held = array.flags.c_contiguous and array.flags.writeable and not array.ctypes.data % ALIGNMENT
    content = array.reshape(-1).view(np.uint8) if held else zeros(array.nbytes)
    if not held:
        content.view(array.dtype).reshape(array.shape)[...] = array
    return tvm.runtime.from_dlpack(content)._create_view(array.shape, str(array.dtype))
