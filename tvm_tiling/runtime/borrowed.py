"""Memory of arrays as kernel arguments, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi

from .arrays import ALIGNMENT, SHARED_AS, writable


def borrowed(array: np.ndarray, dtype: str) -> tvm.runtime.Tensor | None:
    """The memory of an array as a tensor of `dtype`, TVM's name, which keeps the array alive; None if kernels cannot
    use it: if it is not aligned to ALIGNMENT, not contiguous, empty, or of a type that NumPy cannot export.

    A read-only array is accepted too: kernels only read their inputs.
    """
    flags = array.flags
    if not flags.c_contiguous or not array.size:
        return None
    try:
        plain = array.view(SHARED_AS[dtype]) if dtype in SHARED_AS else array
        tensor: Any = tvm_ffi.from_dlpack(writable(plain))
        if tensor.data_ptr() % ALIGNMENT:
            return None
        return tensor._create_view(array.shape, dtype) if dtype in SHARED_AS else tensor
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
