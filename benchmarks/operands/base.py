"""Common parts of operands: arrays in memory, the expected result, and its tolerance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tvm_tiling.runtime.arrays import numpy_type
from tvm_tiling.workload import ConvWorkload, GemmWorkload

from .. import isa

Workload = GemmWorkload | ConvWorkload

ALIGNMENT = 64  # bytes: what TVM requires of every argument, and a cache line
UNIT_ROUNDOFF = 2.0**-24  # float32
STORED_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of a result in that type, relative to the largest one


def aligned(rows: int, columns: int, ld: int, dtype: str) -> Any:
    """Return a zeroed rows x columns array whose rows start `ld` elements apart and whose first element is aligned."""
    kind = numpy_type(dtype)
    size = kind.itemsize
    memory = np.zeros(rows * ld * size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + rows * ld * size].view(kind).reshape(rows, ld)[:, :columns]


def dense(shape: Sequence[int], dtype: str) -> Any:
    """Return a zeroed contiguous array whose first element is aligned."""
    size = math.prod(shape)
    return aligned(1, size, size, dtype).reshape(tuple(shape))


def fill(array: Any, generator: Any) -> None:
    """Fill with random values: uniform in [-1, 1) for floats, the whole range for int8, or half of it if the
    instruction set is limited, because oneDNN without VNNI saturates sums of pairs (vpmaddubsw)."""
    if array.dtype == np.int8:
        end = 64 if isa.is_limited() else 128
        array[:] = generator.integers(-end, end, array.shape, dtype=np.int8)
    else:
        array[:] = generator.random(array.shape, dtype=np.float32) * 2 - 1


class Operands(ABC):
    """The arrays of one workload. `answer` is a peer's result for `inputs`."""

    workload: Any

    @property
    @abstractmethod
    def inputs(self) -> tuple[Any, Any]:
        """Both arrays; the second is the one that may be laid out ahead of time."""

    @abstractmethod
    def output(self) -> Any:
        """Return a new zeroed array for the result, of its type."""

    @property
    @abstractmethod
    def expected(self) -> Any:
        """Return the expected result in float64. For int8 it is exact: every sum stays below 2^53."""

    @property
    @abstractmethod
    def summed(self) -> float:
        """Return the largest difference that rounding of sums can cause; 0 for integers."""

    @cached_property
    def tolerance(self) -> float:
        """Return the tolerance of an element; 0 for integers."""
        stored = STORED_ROUNDOFF.get(self.workload.types.out, 0.0)
        return self.summed + (stored * float(np.max(np.abs(self.expected))) if stored else 0.0)

    def difference(self, answer: Any, rounding: float = 0.0) -> str:
        """Return an empty string if `answer` is correct, else one sentence about the difference. `rounding` adds to the
        tolerance."""
        if answer.shape != self.expected.shape:
            return f"shape {answer.shape}; expected {self.expected.shape}"
        error = float(np.max(np.abs(answer.astype(np.float64) - self.expected)))
        allowed = self.tolerance + rounding
        return (
            ""
            if error <= allowed
            else f"differs from the float64 result by {error:.3g}; expected at most {allowed:.3g}"
        )
