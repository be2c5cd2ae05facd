"""Random operands of a workload, the reference result, and the tolerance of a kernel's result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...decide.epilogue import BIAS, CLIPPED_AT, RELU, RESIDUAL, steps_of
from ...errors import UnsupportedOperator
from ...workload import ConvWorkload, GemmWorkload

TOLERANCE = 1e-4  # relative to the largest sum; what Winograd, the least accurate algorithm, may need


@dataclass(frozen=True)
class Operands:
    """The inputs of a workload with its epilogue in the order of `plain_operator`: NumPy arrays, deterministic for each
    workload. `added` are the operands of the epilogue's steps."""

    workload: GemmWorkload | ConvWorkload
    left: Any
    right: Any
    added: tuple[Any, ...] = ()
    epilogue: str = ""

    @classmethod
    def random(cls, workload: GemmWorkload | ConvWorkload, epilogue: str = "") -> Operands:
        """Return operands with floats uniform in [-1, 1) and integers over their whole range, B's within its bound;
        operands of the epilogue stay in the range of int8. UnsupportedOperator for types that NumPy does not have, and
        for results of another type than the sums."""
        types = workload.types
        if types.out != types.acc:
            raise UnsupportedOperator(
                f"results of type {types.out} are not measured alone; expected {types.acc}, the type of the sums"
            )
        generator = np.random.default_rng(0)
        left, right = (
            _random(generator, shape, dtype) for shape, dtype in zip(_shapes(workload), (types.a, types.b), strict=True)
        )
        if workload.b_limit is not None:
            right = np.clip(right, -workload.b_limit, workload.b_limit)
        plain = cls(workload, left, right)
        added = (_of_result(plain, step, generator) for step in steps_of(epilogue) if step in (BIAS, RESIDUAL))
        return cls(workload, left, right, tuple(added), epilogue)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """All inputs, in the order of the operator's parameters."""
        return self.left, self.right, *self.added

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        w = self.workload
        if isinstance(w, ConvWorkload):
            return (w.n, w.ho, w.wo, w.co) if w.layout == "NHWC" else (w.n, w.co, w.ho, w.wo)
        return (w.batch, w.m, w.n) if w.batch > 1 else (w.m, w.n)

    @cached_property
    def expected(self) -> Any:
        """The reference result in float64; exact for integers, since every sum stays below 2^53."""
        return self._with_epilogue(self._sums)

    @cached_property
    def _sums(self) -> Any:
        """The sums that the epilogue is applied to."""
        left, right, w = self.left.astype(np.float64), self.right.astype(np.float64), self.workload
        if isinstance(w, ConvWorkload):
            return _convolution(left, right, w)
        return (np.swapaxes(left, -1, -2) if w.trans_a else left) @ (np.swapaxes(right, -1, -2) if w.trans_b else right)

    def _with_epilogue(self, value: Any) -> Any:
        added = iter(self.added)
        for step in steps_of(self.epilogue):
            if step in (BIAS, RESIDUAL):
                value = value + _along(next(added), step, self.workload)
            else:
                value = np.maximum(value, 0) if step == RELU else np.minimum(value, CLIPPED_AT)
        return value

    def difference(self, result: Any) -> str:
        """Return an empty string if `result` is correct, otherwise a sentence on how it is wrong."""
        error = float(np.max(np.abs(result.astype(np.float64) - self.expected)))
        allowed = 0.0
        if not self.workload.dtype.startswith(("int", "uint")):
            eps = float(np.finfo(np.dtype(self.workload.acc_dtype or "float32")).eps)
            allowed = max(TOLERANCE, 8 * eps) * float(np.max(np.abs(self._sums)))
        if error <= allowed:  # false for NaN
            return ""
        return f"wrong result: differs by {error:.3g} from the float64 reference, tolerance {allowed:.3g}"


def _shapes(w: GemmWorkload | ConvWorkload) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if isinstance(w, ConvWorkload):
        per_group = w.ci // w.groups
        if w.layout == "NHWC":
            return (w.n, w.h, w.w, w.ci), (w.kh, w.kw, per_group, w.co)
        return (w.n, w.ci, w.h, w.w), (w.co, per_group, w.kh, w.kw)
    batch = (w.batch,) if w.batch > 1 else ()
    left, right = (w.k, w.m) if w.trans_a else (w.m, w.k), (w.n, w.k) if w.trans_b else (w.k, w.n)
    return (*batch, *left), (*batch, *right)


def _of_result(plain: Operands, step: str, generator: np.random.Generator) -> Any:
    """Return the operand of a step in the type of the sums."""
    shape, dtype = plain.result_shape, plain.workload.acc_dtype or plain.workload.dtype
    if step == BIAS:
        shape = (shape[_column(plain.workload)],)
    return _random(generator, shape, "int8" if dtype.startswith("int") else dtype).astype(dtype)


def _along(added: Any, step: str, w: GemmWorkload | ConvWorkload) -> Any:
    """Return the operand of a step, broadcastable to the result."""
    return added[:, None, None] if step == BIAS and _column(w) == 1 else added


def _column(w: GemmWorkload | ConvWorkload) -> int:
    """Return the axis of the result that a bias is indexed by."""
    return 1 if isinstance(w, ConvWorkload) and w.layout == "NCHW" else -1


def _random(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise UnsupportedOperator(f"{dtype} is not a NumPy type; expected float16, float32, int8, ...") from None
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return generator.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    return (generator.random(shape, dtype=np.float32) * 2 - 1).astype(kind)


def _convolution(x: Any, kernels: Any, w: ConvWorkload) -> Any:
    """Compute the convolution by definition, adding the product of the shifted image and one kernel tap at a time,
    group by group."""
    last = w.layout == "NHWC"
    x = x if last else x.transpose(0, 2, 3, 1)
    kernels = kernels if last else kernels.transpose(2, 3, 1, 0)
    top, left, bottom, right = w.padding
    image = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    points, inner, outer = w.n * w.ho * w.wo, w.ci // w.groups, w.co // w.groups
    total = np.zeros((w.groups, points, outer))
    for ky in range(w.kh):
        for kx in range(w.kw):
            rows = slice(ky * w.dilation[0], ky * w.dilation[0] + (w.ho - 1) * w.stride[0] + 1, w.stride[0])
            columns = slice(kx * w.dilation[1], kx * w.dilation[1] + (w.wo - 1) * w.stride[1] + 1, w.stride[1])
            pixels = image[:, rows, columns].reshape(points, w.groups, inner).transpose(1, 0, 2)
            total += pixels @ kernels[ky, kx].reshape(inner, w.groups, outer).transpose(1, 0, 2)
    result = total.transpose(1, 0, 2).reshape(w.n, w.ho, w.wo, w.co)
    return result if last else result.transpose(0, 3, 1, 2)
