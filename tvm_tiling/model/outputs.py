"""Memory provided by a caller for a model's outputs, and outputs of the same array kind as the inputs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import WorkloadError, nearest
from ..runtime.arrays import Span, as_array, numpy_type, overlaps, span_of, torch_tensor, writable

EXPECTED = "a writable contiguous array, or a dense CPU tensor"


@dataclass(frozen=True)
class Output:
    """An output of a model: its shape, None if data-dependent, and TVM's name of its type, empty if it is not known
    before a run."""

    name: str
    shape: tuple[int, ...] | None
    dtype: str

    @functools.cached_property
    def type(self) -> np.dtype[Any] | None:
        """The NumPy type; None if there is none."""
        try:
            return numpy_type(self.dtype)
        except TypeError:
            return None

    def check(self, array: np.ndarray) -> None:
        """Raise WorkloadError if an array does not have this shape and type."""
        if self.dtype and array.dtype != self.type:
            raise WorkloadError(f"out {self.name!r} has type {array.dtype}; expected {self.dtype}")
        if self.shape is not None and array.shape != self.shape:
            raise WorkloadError(f"out {self.name!r} has shape {array.shape}; expected {self.shape}")


def outputs_of(names: Sequence[str], shapes: Sequence[tuple[int, ...] | None], dtypes: Sequence[str]) -> list[Output]:
    """The outputs with these names; `shapes` and `dtypes` are empty if they are not known before a run."""
    if not shapes:
        return [Output(name, None, "") for name in names]
    return [Output(*known) for known in zip(names, shapes, dtypes, strict=True)]


class Outputs:
    """Memory for outputs, and its `spans`.

    `result` is the return value of a run: the objects themselves, several as a tuple.
    """

    def __init__(self, out: Any, outputs: Sequence[Output]) -> None:
        """`out`: an array or tensor, a tuple or list for several outputs, or a mapping by name. Raises WorkloadError
        for outputs that cannot be written."""
        given = _in_order(out, outputs)
        self.result = given[0] if len(given) == 1 else tuple(given)
        self.arrays: list[np.ndarray] = []
        self.spans: list[Span] = []
        self._outputs = outputs
        for value, output in zip(given, outputs, strict=True):
            array = _writable(value, f"out {output.name!r}")
            output.check(array)
            span = span_of(array)
            if overlaps(span, self.spans):
                raise WorkloadError(f"out {output.name!r} shares memory with another output; expected separate memory")
            self.arrays.append(array)
            self.spans.append(span)

    def write(self, found: Sequence[np.ndarray]) -> None:
        """Copy the results of a run to the outputs. Raises WorkloadError if they have another shape or type."""
        for value, array, output in zip(found, self.arrays, self._outputs, strict=True):
            Output(output.name, value.shape, str(value.dtype)).check(array)
            np.copyto(array, value)


def _in_order(out: Any, outputs: Sequence[Output]) -> list[Any]:
    """The object given for each output."""
    names = [output.name for output in outputs]
    if isinstance(out, Mapping):
        for name in out:
            if name not in names:
                raise WorkloadError(f"out: the model has no output {name!r}; {nearest(str(name), names)}")
        if missing := [name for name in names if name not in out]:
            raise WorkloadError(f"out {missing[0]!r} is missing; expected all of {', '.join(map(repr, names))}")
        return [out[name] for name in names]
    given = list(out) if isinstance(out, tuple | list) else [out]
    if len(given) != len(names):
        raise WorkloadError(
            f"the number of arrays in out is {len(given)}; expected {len(names)}: {', '.join(map(repr, names))}"
        )
    return given


def _writable(value: Any, what: str) -> np.ndarray:
    """The memory of `value` as an array. Raises WorkloadError if it cannot be written."""
    array = value if isinstance(value, np.ndarray) else _shared(value, what)
    if not array.flags.c_contiguous:
        raise WorkloadError(f"{what} has strides {array.strides}; expected {EXPECTED}")
    if not array.flags.writeable:
        raise WorkloadError(f"{what} is read-only; expected {EXPECTED}")
    return array


def _shared(value: Any, what: str) -> np.ndarray:
    """A tensor's own memory as an array."""
    if not hasattr(value, "__dlpack__"):
        raise WorkloadError(f"{what} has type {type(value).__name__}; expected {EXPECTED}")
    if getattr(value, "requires_grad", False):
        raise WorkloadError(f"{what} requires gradients; expected {EXPECTED} that requires none")
    array = as_array(value, what)
    if hasattr(value, "data_ptr") and value.data_ptr() != array.ctypes.data:
        raise WorkloadError(f"{what} stores its elements in another form (conjugated or negated); expected {EXPECTED}")
    # NumPy 1 takes everything that comes through DLPack as read-only; tensors of these two are not.
    return writable(array) if type(value).__module__.partition(".")[0] in ("torch", "tvm", "tvm_ffi") else array


# ---- array kinds -----------------------------------------------------------------------------------------------------


def like(values: Sequence[Any], result: Any) -> Any:
    """Outputs, an array or a tuple of arrays, in the kind of the first of `values` that is an array or tensor, sharing
    memory. NumPy arrays if there is none, such as for numbers and lists."""
    make = next((make for value in values if (make := _maker(value)) is not None), None)
    if make is None:
        return result
    return tuple(map(make, result)) if isinstance(result, tuple) else make(result)


def _maker(value: Any) -> Callable[[np.ndarray], Any] | None:
    """A function that converts an array to the kind of `value`; None if that is not an array or tensor."""
    if isinstance(value, np.ndarray):
        return np.asarray
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return torch_tensor
    tvm = sys.modules.get("tvm")
    if tvm is not None and isinstance(value, tvm.runtime.Tensor):
        return _tvm_tensor
    if hasattr(value, "__dlpack__") and hasattr(value, "__array_namespace__"):
        make: Callable[[np.ndarray], Any] = value.__array_namespace__().from_dlpack
        return make
    return None


def _tvm_tensor(array: np.ndarray) -> Any:
    import tvm

    from ..runtime.borrowed import borrowed

    return borrowed(array, str(array.dtype)) or tvm.runtime.tensor(array)
