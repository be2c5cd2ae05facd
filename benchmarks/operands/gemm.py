"""The arrays of a matrix multiplication."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tvm_tiling.workload import GemmWorkload

from .base import UNIT_ROUNDOFF, Operands, aligned, fill


@dataclass(frozen=True)
class GemmOperands(Operands):
    """A (m x k) and B (k x n) of one workload."""

    workload: GemmWorkload
    a: Any
    b: Any

    @classmethod
    def random(cls, workload: GemmWorkload, seed: int = 0) -> GemmOperands:
        w, generator = workload, np.random.default_rng(seed)
        assert w.lda is not None and w.ldb is not None
        a, b = aligned(w.m, w.k, w.lda, w.dtype), aligned(w.k, w.n, w.ldb, w.dtype)
        for array in (a, b):
            fill(array, generator)
        return cls(w, a, b)

    def with_longer_rows(self, elements: int) -> GemmOperands:
        """Return the same values with every leading dimension longer by `elements`. A single row has none."""
        w = self.workload
        assert w.lda is not None and w.ldb is not None and w.ldc is not None
        more_m, more_k = (
            elements if rows > 1 else 0 for rows in (w.m, w.k)
        )  # NumPy < 2.3 exports a single row as contiguous
        longer = replace(w, lda=w.lda + more_m, ldb=w.ldb + more_k, ldc=w.ldc + more_m)
        a, b = aligned(w.m, w.k, longer.lda, w.dtype), aligned(w.k, w.n, longer.ldb, w.dtype)
        a[:], b[:] = self.a, self.b
        return GemmOperands(longer, a, b)

    @property
    def inputs(self) -> tuple[Any, Any]:
        return self.a, self.b

    def output(self) -> Any:
        """Return a new zeroed C (m x n) of the result's type with the workload's leading dimension."""
        w = self.workload
        assert w.ldc is not None
        return aligned(w.m, w.n, w.ldc, w.types.out)

    def in_float32(self) -> GemmOperands:
        """Return the same values and result in float32."""
        w = self.workload
        wide = replace(w, dtype="float32", acc_dtype=None, out_dtype=None)
        assert w.lda is not None and w.ldb is not None
        a, b = aligned(w.m, w.k, w.lda, "float32"), aligned(w.k, w.n, w.ldb, "float32")
        a[:], b[:] = self.a, self.b
        return GemmOperands(wide, a, b)

    @cached_property
    def expected(self) -> Any:
        return self.a.astype(np.float64) @ self.b.astype(np.float64)

    @property
    def summed(self) -> float:
        """Integers: 0. Floats in [-1, 1): 4*k*2^-24.

        The rounding errors of k sums, each about sqrt(k) large, grow like k*2^-24/3; a product that is omitted or
        counted twice causes a difference of a third.
        """
        return 0.0 if self.workload.dtype == "int8" else 4 * max(self.workload.k, 16) * UNIT_ROUNDOFF
