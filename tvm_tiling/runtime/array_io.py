"""Arrays into a run and out of it.

Kernels read whole vectors, from memory that starts at a multiple of 64 bytes. An input that does, and has no gaps, is
taken as it is; others are copied, in every run of a thread to the same memory. Outputs are handed over as they are, in
memory that the run has taken for them, unless they lie in an input, in a constant or in another output.
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
    """What a run takes for its inputs, and where that lies in memory."""

    tensors: tuple[tvm.runtime.Tensor, ...]
    spans: tuple[Span, ...]


class Inputs:
    """A model's inputs, with memory for those that have to be copied; for one run at a time."""

    def __init__(self, dtypes: Sequence[str]) -> None:
        self._dtypes = tuple(dtypes)
        self._own: list[tuple[tvm.runtime.Tensor, np.ndarray | None] | None] = [None] * len(self._dtypes)

    def given(self, values: Sequence[np.ndarray], apart: Sequence[Span] = ()) -> Given:
        """What holds `values`, arrays of the model's shapes and types: their own memory where kernels can take it and
        it lies apart from the spans `apart`, else a copy. It keeps the arrays as long as it is there itself."""
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
        """Of the memory for inputs that were copied."""
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
    """Where tensors lie in memory, those that follow each other as one."""
    joined: list[Span] = []
    for start, last in sorted(map(_held, tensors)):
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
