"""Conversion of other libraries' tensors, and nested lists, to NumPy arrays."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import WorkloadError

Span = tuple[int, int]  # start and end address, the latter exclusive

ALIGNMENT = 64  # bytes; kernels read whole vectors
ACCEPTED = "expected a NumPy array, or a dense tensor in this computer's main memory"
# Types provided to NumPy by ml_dtypes, and types of the same size as which their memory can be shared.
SHARED_AS = {"bfloat16": np.dtype("int16")}


def numpy_type(name: str) -> np.dtype[Any]:
    """The NumPy type for TVM's name. Raises TypeError if there is none."""
    if name not in SHARED_AS:
        return np.dtype(name)
    import ml_dtypes  # needed by few models

    return np.dtype(getattr(ml_dtypes, name))


def address_of(array: np.ndarray) -> int:
    """The address of an array's first element. `array.ctypes.data` is the same and takes four times as long, which for
    its inputs and outputs was a third of a small model's run."""
    writable_bytes: Any = array
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(writable_bytes))
    except (TypeError, ValueError):  # read-only, not contiguous, empty, or of a type of ml_dtypes
        return int(array.ctypes.data)


def aligned_empty(shape: int | Sequence[int], dtype: str = "float32") -> np.ndarray:
    """Return an uninitialised array of `shape`, aligned to 64 bytes, which is fastest for kernels to read and write.
    `dtype`: a name such as "float32" or "bfloat16". Raises TypeError for an unknown one.
    """
    kind = numpy_type(dtype)
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    return aligned_at(extents, kind, math.prod(extents) * kind.itemsize)[0]


def aligned_at(shape: tuple[int, ...], kind: np.dtype[Any], size: int) -> tuple[np.ndarray, int]:
    """An uninitialised array of `size` bytes, aligned to ALIGNMENT, and its address."""
    space = np.empty(size + ALIGNMENT, np.uint8)
    address = address_of(space)
    start = -address % ALIGNMENT
    return np.ndarray(shape, kind, space, start), address + start


def span_of(array: np.ndarray) -> Span:
    """The memory span of a contiguous array."""
    start = address_of(array)
    return start, start + array.nbytes


def overlaps(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a span overlaps any of the others."""
    start, end = span
    for first, last in others:  # noqa: SIM110 - a generator costs a small model a tenth of its run
        if start < last and first < end:
            return True
    return False


def as_array(value: Any, what: str) -> np.ndarray:
    """`value` as an array that shares its memory if possible: a NumPy array, a number, nested lists, a PyTorch tensor
    (including one with a gradient, or of bfloat16), or any object with DLPack.

    Raises WorkloadError, starting with `what`, for lists whose rows differ in length, for arrays with masked elements
    and for tensors that are sparse, quantised, without memory or on another device.
    """
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            raise WorkloadError(f"{what} has masked elements; expected an array without, as from its method filled()")
        return value
    torch = sys.modules.get("torch")  # already loaded if `value` is one of its tensors
    if torch is not None and isinstance(value, torch.Tensor):
        return _of_torch(torch, value, what)
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError, OverflowError) as error:
        reason = "its rows differ in length" if isinstance(value, list | tuple) else str(error).splitlines()[0]
        raise WorkloadError(f"{what} is not an array: {reason}; {ACCEPTED}") from None


def _of_torch(torch: Any, value: Any, what: str) -> np.ndarray:
    tensor = value.detach()
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "nested" if tensor.is_nested else "quantised" if tensor.is_quantized else "sparse"
        raise WorkloadError(f"{what} is a {kind} tensor; {ACCEPTED}")
    if tensor.device.type != "cpu":
        raise WorkloadError(f"{what} is a tensor on device {str(tensor.device)!r}; {ACCEPTED}")
    try:
        return torch_array(tensor)
    except (RuntimeError, TypeError) as error:
        raise WorkloadError(f"{what} is not an array: {str(error).splitlines()[0]}; {ACCEPTED}") from None


def torch_array(tensor: Any) -> np.ndarray:
    """A dense CPU tensor of PyTorch, without gradient, as an array that shares its memory."""
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name in SHARED_AS:
        return tensor.view(getattr(sys.modules["torch"], SHARED_AS[name].name)).numpy().view(numpy_type(name))
    array: np.ndarray = tensor.numpy()
    return array


def torch_tensor(array: np.ndarray) -> Any:
    """The array as a PyTorch tensor that shares its memory."""
    import torch

    name = array.dtype.name
    if name in SHARED_AS:
        return torch.from_numpy(array.view(SHARED_AS[name])).view(getattr(torch, name))
    return torch.from_numpy(array)


def writable(array: np.ndarray) -> np.ndarray:
    """Return an array, or a writable view of a read-only one: DLPack cannot express read-only memory, and NumPy
    1.26 makes all memory that it gets through DLPack read-only."""
    return array if array.flags.writeable else np.asarray(_Writable(array))


class _Writable:
    """The memory of an array as writable memory."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        interface = dict(self._array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        return interface
