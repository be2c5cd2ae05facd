"""Arrays into a run and out of it.

Kernels read whole vectors, from memory that starts at a multiple of 64 bytes, which arrays seldom do. So inputs are
copied, in every run of a thread to the same memory. Outputs are handed over as they are, in memory that the run has
taken for them, unless they lie in an input, in a constant or in another output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm

from .arrays import ALIGNMENT, SHARED_AS, numpy_type

Span = tuple[int, int]  # first and last address, the latter exclusive


class Inputs:
    """Memory for a model's inputs."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> None:
        self.tensors = [tvm.runtime.empty(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        self._arrays = [_array_of(tensor) for tensor in self.tensors]
        self.spans = spans(self.tensors)

    def fill(self, values: Sequence[np.ndarray]) -> None:
        """Copy the inputs, which have the shapes and types of this memory."""
        for tensor, array, value in zip(self.tensors, self._arrays, values, strict=True):
            if array is None:
                tensor.copyfrom(value)
            else:
                np.copyto(array, value)


def spans(tensors: Sequence[tvm.runtime.Tensor]) -> tuple[Span, ...]:
    """Where tensors lie in memory, those that follow each other as one."""
    joined: list[Span] = []
    for start, last in sorted(_span(tensor) for tensor in tensors):
        end = -(-last // ALIGNMENT) * ALIGNMENT
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif end > start:
            joined.append((start, end))
    return tuple(joined)


def as_arrays(outputs: Sequence[tvm.runtime.Tensor], held: Sequence[Span]) -> list[np.ndarray]:
    """The outputs as arrays, each with memory of its own: one that lies in a span of `held`, or in an output before it,
    is copied."""
    arrays, taken = [], list(held)
    for tensor in outputs:
        array = _array_of(tensor)
        if array is None:
            arrays.append(tensor.numpy())
            continue
        start = tensor.data_ptr()
        end = start + array.nbytes
        for first, last in taken:
            if start < last and first < end:
                array = array.copy()
                break
        else:
            taken.append((start, end))
        arrays.append(array)
    return arrays


def _array_of(tensor: tvm.runtime.Tensor) -> np.ndarray | None:
    """The tensor's memory as an array; None for types that NumPy lacks."""
    try:
        if (name := str(tensor.dtype)) in SHARED_AS:
            shared = tensor._create_view(tuple(tensor.shape), SHARED_AS[name].name)
            return np.from_dlpack(shared).view(numpy_type(name))
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None


def _span(tensor: tvm.runtime.Tensor) -> Span:
    array = _array_of(tensor)
    return (0, 0) if array is None else (tensor.data_ptr(), tensor.data_ptr() + array.nbytes)
