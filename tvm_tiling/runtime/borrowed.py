"""Memory of arrays as tensors that kernels take, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi

from .arrays import ALIGNMENT, SHARED_AS


def borrowed(array: np.ndarray, dtype: str) -> tvm.runtime.Tensor | None:
    """The memory of an array of `dtype`, TVM's name, as a tensor, which keeps the array; None where kernels cannot take
    it: where it does not begin at a multiple of ALIGNMENT, has gaps or no elements, or is of a type that NumPy cannot
    hand over.

    A read-only array gives a tensor too: kernels only read their inputs.
    """
    flags = array.flags
    if not flags.c_contiguous or not array.size:
        return None
    try:
        plain = array.view(SHARED_AS[dtype]) if dtype in SHARED_AS else array
        tensor: Any = tvm_ffi.from_dlpack(plain if flags.writeable else np.asarray(_Writable(plain)))
        if tensor.data_ptr() % ALIGNMENT:
            return None
        return tensor._create_view(array.shape, dtype) if dtype in SHARED_AS else tensor
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None


class _Writable:
    """A read-only array as one that DLPack, which cannot say that memory is read-only, hands over."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface = dict(self._array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        return interface
