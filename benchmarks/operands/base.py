"""What operands of every kind have: arrays in memory, the right answer, and how far from it an answer may be."""

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

ALIGNMENT = 64  # bytes: what TVM asks of every argument, and a cache line
UNIT_ROUNDOFF = 2.0**-24  # float32
STORED_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of a result in that type, beside the largest one


def aligned(rows: int, columns: int, ld: int, dtype: str) -> Any:
    """A zeroed rows x columns array whose rows start `ld` elements apart and whose first element is aligned."""
    kind = numpy_type(dtype)
    size = kind.itemsize
    memory = np.zeros(rows * ld * size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + rows * ld * size].view(kind).reshape(rows, ld)[:, :columns]


def dense(shape: Sequence[int], dtype: str) -> Any:
    """A zeroed array without gaps, its first element aligned."""
    size = math.prod(shape)
    return aligned(1, size, size, dtype).reshape(tuple(shape))


def fill(array: Any, generator: Any) -> None:
    """Random values: uniform in [-1, 1) for floats, all of the range for int8; half of it where the instruction set is
    limited, because oneDNN without VNNI saturates sums of pairs (vpmaddubsw)."""
    if array.dtype == np.int8:
        end = 64 if isa.is_limited() else 128
        array[:] = generator.integers(-end, end, array.shape, dtype=np.int8)
    else:
        array[:] = generator.random(array.shape, dtype=np.float32) * 2 - 1


class Operands(ABC):
    """The arrays of one workload. `answer` stands for whatever a peer computed from `inputs`."""

    workload: Any

    @property
    @abstractmethod
    def inputs(self) -> tuple[Any, Any]:
        """Both arrays; the second is the one that may be laid out ahead of time."""

    @abstractmethod
    def output(self) -> Any:
        """A fresh array for the answer, zeroed, of the result's type."""

    @property
    @abstractmethod
    def expected(self) -> Any:
        """The answer in float64. For int8 it is exact: every sum stays below 2^53."""

    @property
    @abstractmethod
    def summed(self) -> float:
        """Largest difference that rounding in sums makes; none of integers."""

    @cached_property
    def tolerance(self) -> float:
        """Largest difference allowed of any element; none for integers."""
        stored = STORED_ROUNDOFF.get(self.workload.types.out, 0.0)
        return self.summed + (stored * float(np.max(np.abs(self.expected))) if stored else 0.0)

    def difference(self, answer: Any, rounding: float = 0.0) -> str:
        """Empty if `answer` is right, else one sentence on how it is wrong. `rounding` adds to the tolerance."""
        if answer.shape != self.expected.shape:
            return f"shape {answer.shape}, must be {self.expected.shape}"
        error = float(np.max(np.abs(answer.astype(np.float64) - self.expected)))
        allowed = self.tolerance + rounding
        return "" if error <= allowed else f"differs from the float64 answer by {error:.3g}, allowed are {allowed:.3g}"
