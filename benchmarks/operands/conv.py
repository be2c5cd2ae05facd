"""The arrays of a two-dimensional convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tvm_tiling.workload import ConvWorkload

from .base import Operands, dense, fill

WINOGRAD_ERROR = 1e-4  # of the largest output


@dataclass(frozen=True)
class ConvOperands(Operands):
    """The input x (n, h, w, ci) and the kernels (kh, kw, ci/groups, co) of one workload."""

    workload: ConvWorkload
    x: Any
    kernels: Any

    @classmethod
    def random(cls, workload: ConvWorkload, seed: int = 0) -> ConvOperands:
        w, generator = workload, np.random.default_rng(seed)
        x = dense((w.n, w.h, w.w, w.ci), w.dtype)
        kernels = dense((w.kh, w.kw, w.ci // w.groups, w.co), w.dtype)
        for array in (x, kernels):
            fill(array, generator)
        return cls(w, x, kernels)

    @property
    def inputs(self) -> tuple[Any, Any]:
        return self.x, self.kernels

    def in_float32(self) -> ConvOperands:
        """Return the same values and result in float32."""
        wide = replace(self.workload, dtype="float32", acc_dtype=None, out_dtype=None)
        x, kernels = (dense(array.shape, "float32") for array in self.inputs)
        x[:], kernels[:] = self.inputs
        return ConvOperands(wide, x, kernels)

    def output(self) -> Any:
        """Return a new zeroed output (n, ho, wo, co) of the result's type."""
        w = self.workload
        return dense((w.n, w.ho, w.wo, w.co), w.types.out)

    @cached_property
    def expected(self) -> Any:
        """Compute the definition: one multiplication of a shifted image and a slice of the kernels per kernel
        position."""
        w = self.workload
        top, left, bottom, right = w.padding
        image = np.pad(self.x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
        image = image.reshape(*image.shape[:3], w.groups, w.ci // w.groups)
        kernels = self.kernels.astype(np.float64).reshape(w.kh, w.kw, w.ci // w.groups, w.groups, w.co // w.groups)
        rows = [slice(ky * w.dilation[0], None, w.stride[0]) for ky in range(w.kh)]
        columns = [slice(kx * w.dilation[1], None, w.stride[1]) for kx in range(w.kw)]
        total = np.zeros((w.n, w.ho, w.wo, w.groups, w.co // w.groups))
        for ky, row in enumerate(rows):
            for kx, column in enumerate(columns):
                shifted = image[:, row, column][:, : w.ho, : w.wo]
                total += np.einsum("nyxgc,cgo->nyxgo", shifted, kernels[ky, kx], optimize=True)
        return total.reshape(w.n, w.ho, w.wo, w.co)

    @cached_property
    def summed(self) -> float:
        """Integers: 0. Floats: 1e-4 of the largest output.

        Winograd's algorithm, which libraries and we may use, needs this; direct sums of k products are off by about
        1e-7 * sqrt(k) of the largest output. The largest output of k terms in [-1, 1) is about 1.7 * sqrt(k), so that
        the tolerance is at most 0.03 in the suites; a single missing term causes an average difference of 0.25.
        """
        return 0.0 if self.workload.dtype == "int8" else WINOGRAD_ERROR * float(np.max(np.abs(self.expected)))
