"""The arrays of a product, the right answer, and how far from it an answer may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tvm_tiling.workload import GemmWorkload

ALIGNMENT = 64  # bytes: what TVM asks of every argument, and a cache line
UNIT_ROUNDOFF = 2.0**-24  # float32


def aligned(rows: int, columns: int, ld: int, dtype: str) -> Any:
    """A zeroed rows x columns array whose rows start `ld` elements apart and whose first element is aligned."""
    size = np.dtype(dtype).itemsize
    memory = np.zeros(rows * ld * size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + rows * ld * size].view(dtype).reshape(rows, ld)[:, :columns]


@dataclass(frozen=True)
class Operands:
    """A (m x k) and B (k x n) of one workload: uniform in [-1, 1) for floats, all of the range for int8."""

    workload: GemmWorkload
    a: Any
    b: Any

    @classmethod
    def random(cls, workload: GemmWorkload, seed: int = 0) -> Operands:
        w, generator = workload, np.random.default_rng(seed)
        assert w.lda is not None and w.ldb is not None
        a, b = aligned(w.m, w.k, w.lda, w.dtype), aligned(w.k, w.n, w.ldb, w.dtype)
        for array in (a, b):
            if w.dtype == "int8":
                array[:] = generator.integers(-128, 128, array.shape, dtype=np.int8)
            else:
                array[:] = generator.random(array.shape, dtype=np.float32) * 2 - 1
        return cls(w, a, b)

    def with_longer_rows(self, elements: int) -> Operands:
        """The same values with every leading dimension so many elements longer."""
        w = self.workload
        assert w.lda is not None and w.ldb is not None and w.ldc is not None
        longer = replace(w, lda=w.lda + elements, ldb=w.ldb + elements, ldc=w.ldc + elements)
        a, b = aligned(w.m, w.k, w.lda + elements, w.dtype), aligned(w.k, w.n, w.ldb + elements, w.dtype)
        a[:], b[:] = self.a, self.b
        return Operands(longer, a, b)

    def output(self) -> Any:
        """A fresh C (m x n), zeroed, of the accumulator's type and with the workload's leading dimension."""
        w = self.workload
        assert w.ldc is not None and w.acc_dtype is not None
        return aligned(w.m, w.n, w.ldc, w.acc_dtype)

    @cached_property
    def expected(self) -> Any:
        """The product in float64. For int8 it is exact: every sum stays below 2^53."""
        return self.a.astype(np.float64) @ self.b.astype(np.float64)

    @property
    def tolerance(self) -> float:
        """Largest difference allowed of any element.

        Integers: none. Floats in [-1, 1): 4*k*2^-24. The rounding errors of k sums, each about sqrt(k) large, grow
        like k*2^-24/3; a product that is left out or counted twice differs by a third.
        """
        return 0.0 if self.workload.dtype == "int8" else 4 * max(self.workload.k, 16) * UNIT_ROUNDOFF

    def difference(self, answer: Any) -> str:
        """Empty if `answer` is right, else one sentence on how it is wrong."""
        if answer.shape != self.expected.shape:
            return f"shape {answer.shape}, must be {self.expected.shape}"
        error = float(np.max(np.abs(answer - self.expected)))
        if error <= self.tolerance:
            return ""
        return f"differs from the float64 product by {error:.3g}, allowed are {self.tolerance:.3g}"
