"""Input and output arrays of a run.

Kernels read whole vectors, from memory aligned to 64 bytes. An aligned contiguous input is used in place; others are
copied, in every run of a thread to the same memory. Outputs are returned in the memory that the run allocated for them,
unless they overlap an input, a constant or another output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tvm

from .arrays import ALIGNMENT, Span, overlaps
from .borrowed import borrowed
from .tensors import array_of


class Given(NamedTuple):
    """The tensors of a run's inputs, and their memory spans."""

    tensors: tuple[tvm.runtime.Tensor, ...]
    spans: tuple[Span, ...]


class Inputs:
    """The inputs of a model, with memory for those that have to be copied; for one run at a time."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        self._dtypes = tuple(dtypes)
        self._own: list[tuple[tvm.runtime.Tensor, np.ndarray | None] | None] = [None] * len(self._dtypes)

    def given(self, values: Sequence[np.ndarray], apart: Sequence[Span] = ()) -> Given:
        """Tensors for `values`, arrays of the model's shapes and types: their own memory if kernels can use it and it
        does not overlap the spans `apart`, otherwise a copy. The arrays live as long as the result."""
        tensors, taken = [], []
        for number, (value, dtype) in enumerate(zip(values, self._dtypes, strict=True)):
            tensor = borrowed(value, dtype)
            if tensor is None:
                tensor = self._copied(number, value)
            start = tensor.data_ptr()
            span = start, start + value.nbytes
            if apart and overlaps(span, apart):
                tensor = self._copied(number, value)
                span = _span(tensor, value.nbytes)
            tensors.append(tensor)
            taken.append(span)
        return Given(tuple(tensors), tuple(taken))

    @property
    def copied_bytes(self) -> int:
        """Memory for copied inputs, in bytes."""
        return sum(array.nbytes for own in self._own if own is not None and (array := own[1]) is not None)

    def _copied(self, number: int, value: np.ndarray) -> tvm.runtime.Tensor:
        own = self._own[number]
        if own is None or tuple(own[0].shape) != value.shape:
            tensor = tvm.runtime.empty(value.shape, self._dtypes[number])
            own = self._own[number] = tensor, array_of(tensor)
        tensor, array = own
        if array is None:
            tensor.copyfrom(value)
        else:
            np.copyto(array, value)
        return tensor


def spans(tensors: Sequence[tvm.runtime.Tensor]) -> tuple[Span, ...]:
    """The memory spans of tensors, with adjacent ones merged."""
    joined: list[Span] = []
    for start, last in sorted(map(_held, tensors)):
        end = -(-last // ALIGNMENT) * ALIGNMENT
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        elif end > start:
            joined.append((start, end))
    return tuple(joined)


def as_arrays(outputs: Sequence[tvm.runtime.Tensor], held: Sequence[Span]) -> list[np.ndarray]:
    """The outputs as arrays with separate memory: an output that overlaps a span of `held`, or an earlier output, is
    copied."""
    arrays, taken = [], list(held)
    for tensor in outputs:
        array = array_of(tensor)
        if array is None:
            arrays.append(tensor.numpy())
            continue
        span = _span(tensor, array.nbytes)
        if overlaps(span, taken):
            array = array.copy()
        else:
            taken.append(span)
        arrays.append(array)
    return arrays


def _held(tensor: tvm.runtime.Tensor) -> Span:
    array = array_of(tensor)
    return (0, 0) if array is None else _span(tensor, array.nbytes)


def _span(tensor: tvm.runtime.Tensor, size: int) -> Span:
    start = tensor.data_ptr()
    return start, start + size
