"""Sums of convolutions of one tensor as one convolution, whose kernel is the sum of theirs.

Networks with structural re-parameterisation (RepVGG, MobileOne, FastViT, RepViT) are trained with parallel branches:
convolutions with kernels of different sizes, and the tensor itself, scaled by a batch norm. Exported as they were
trained, they compute all branches. A smaller kernel is added to the taps of the largest one that read the same pixels;
a scaled tensor is a kernel of one tap that connects each channel with itself. Kernels are summed in float64, as are the
factors and shifts between convolutions and sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from ...frontend.node_names import joined
from .dataflow import Expr, Rewriter, array, constant, ints, is_op, rewrite, use_counts
from .layout import CONVOLUTIONS

_DEEPEST = 24  # operators between a convolution and the sum


@dataclass(frozen=True)
class _Taps:
    """The pixels that a kernel reads, per spatial axis: its size, the distance of its taps, the pixels between the
    first one and the output's pixel, and the padding of both sides without the kernel's extent."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    growth: tuple[int, ...]

    def within(self, other: _Taps) -> tuple[slice, ...] | None:
        """The taps of `other` that read the pixels of this kernel; None if it lacks some."""
        places = []
        for size, step, before, k, d, pad in zip(
            self.sizes, self.steps, self.before, other.sizes, other.steps, other.before, strict=True
        ):
            first, rest = divmod(pad - before, d)
            if rest or first < 0 or first + size > k or (size > 1 and step != d):
                return None
            places.append(slice(first, first + size))
        return tuple(places) if self.growth == other.growth else None


@dataclass
class _Sum:
    """A sum of convolutions of `data`, all with the operator, strides, groups and layouts of `first`. `terms`: the
    convolutions, or None for `data` itself, each with its factor per output channel; `shift` per output channel;
    `between`: the variables from the convolutions to the sum."""

    first: relax.Call
    terms: list[tuple[relax.Call | None, np.ndarray]] = field(default_factory=list)
    shift: np.ndarray | None = None
    between: list[relax.Var] = field(default_factory=list)

    @property
    def data(self) -> Expr:
        return self.first.args[0]

    @property
    def channels(self) -> int:
        return int(_by_channels(self.first).shape[0])

    def add_shift(self, shift: np.ndarray) -> None:
        self.shift = shift if self.shift is None else self.shift + shift

    def along_channels(self, value: np.ndarray) -> np.ndarray | None:
        """A constant as a vector over the output channels; None if it varies along other axes."""
        layout = str(self.first.attrs.data_layout)
        shape = (1,) * (len(layout) - value.ndim) + value.shape
        if value.dtype != np.float32 or len(shape) > len(layout):
            return None
        if any(size not in (1, self.channels if axis == "C" else 1) for axis, size in zip(layout, shape, strict=True)):
            return None
        return np.broadcast_to(value.reshape(-1).astype(np.float64), (self.channels,))


def with_merged_convolutions(mod: tvm.IRModule) -> tvm.IRModule:
    """`mod` with one convolution in place of each sum of float32 convolutions of one tensor with constant kernels."""
    func = mod["main"]
    graph = _Graph({binding.var: binding.value for block in func.body.blocks for binding in block.bindings}, func)
    found: dict[relax.Var, tuple[_Sum, relax.Call]] = {}
    within: set[relax.Var] = set()
    for variable in reversed(graph.bound):
        total = graph.sum(variable) if variable not in within else None
        merged = _merged(total) if total is not None else None
        if total is not None and merged is not None:
            found[variable] = total, merged
            within.update(total.between)
    if not found:
        return mod

    def write(rewriter: Rewriter, variable: relax.Var, _: Expr) -> Expr | None:
        if variable not in found:
            return None
        total, merged = found[variable]
        rewriter.name = joined(*(each.name for each in reversed(total.between)), rewriter.name)
        data = rewriter.renamed.get(total.data, total.data)
        result = relax.Call(merged.op, [data, merged.args[1]], merged.attrs, merged.ty_args)
        if total.shift is None:
            return result
        along = [-1 if axis == "C" else 1 for axis in str(merged.attrs.data_layout)]
        return relax.op.add(rewriter.emit(result), constant(total.shift.astype(np.float32).reshape(along)))

    return rewrite(mod, write)


class _Graph:
    """Where sums are found: the values of variables, and how many values read each."""

    def __init__(self, bound: dict[relax.Var, Expr], func: relax.Function) -> None:
        self.bound, self.uses = bound, use_counts(func)

    def sum(self, variable: relax.Var) -> _Sum | None:
        """The sum of at least two terms, one of them a convolution, that `variable` is; None for other values."""
        value = self.bound[variable]
        first = self._first_convolution(value, _DEEPEST) if is_op(value, "add", "subtract") else None
        if first is None:
            return None
        total = _Sum(first)
        complete = self._collect(total, value, np.ones(total.channels), _DEEPEST)
        return total if complete and len(total.terms) > 1 else None

    def _inner(self, expr: Expr) -> Expr | None:
        """The value of a variable that nothing else reads."""
        return self.bound.get(expr) if isinstance(expr, relax.Var) and self.uses[expr] == 1 else None

    def _first_convolution(self, value: Expr | None, depth: int) -> relax.Call | None:
        if value is None:
            return None
        if is_op(value, *CONVOLUTIONS):
            return value if _supported(value) else None
        if not depth or not is_op(value, "add", "subtract", "multiply"):
            return None
        inner = (self._first_convolution(self._inner(operand), depth - 1) for operand in value.args)
        return next((found for found in inner if found is not None), None)

    def _collect(self, total: _Sum, value: Expr, factor: np.ndarray, depth: int) -> bool:
        """Add the terms of `value`, multiplied by `factor`, to `total`; return False if it is another kind of
        value, or reads another tensor."""
        if is_op(value, *CONVOLUTIONS):
            total.terms.append((value, factor))
            return value.args[0].same_as(total.data) and _supported(value) and _alike(value, total.first)
        if not depth or not is_op(value, "add", "subtract", "multiply"):
            return False
        constants = [array(operand) for operand in value.args]
        vectors = [None if known is None else total.along_channels(known) for known in constants]
        if any(known is not None and vector is None for known, vector in zip(constants, vectors, strict=True)):
            return False
        if is_op(value, "multiply"):
            scales = [vector for vector in vectors if vector is not None]
            return len(scales) == 1 and self._operands(total, value, [factor * scales[0]] * 2, [None, None], depth)
        signs = [factor, -factor if is_op(value, "subtract") else factor]
        return self._operands(total, value, signs, vectors, depth)

    def _operands(
        self,
        total: _Sum,
        value: relax.Call,
        factors: list[np.ndarray],
        shifts: list[np.ndarray | None],
        depth: int,
    ) -> bool:
        for operand, factor, shift in zip(value.args, factors, shifts, strict=True):
            if shift is not None:
                total.add_shift(factor * shift)
            elif operand.same_as(total.data):
                total.terms.append((None, factor))
            elif array(operand) is None:
                inner = self._inner(operand)
                if inner is None:
                    return False
                total.between.append(operand)
                if not self._collect(total, inner, factor, depth - 1):
                    return False
        return True


def _supported(call: relax.Call) -> bool:
    kernels, layout = array(call.args[1]), str(call.attrs.data_layout)
    return (
        isinstance(call.args[0], relax.Var)
        and kernels is not None
        and kernels.dtype == np.float32
        and str(call.ty.dtype) == "float32"
        and layout.isalpha()
        and layout.isupper()
        and _stored(call).isalpha()
        and str(call.attrs.out_layout or layout) == layout
    )


def _alike(a: relax.Call, b: relax.Call) -> bool:
    return a.op == b.op and all(
        str(getattr(a.attrs, name)) == str(getattr(b.attrs, name))
        for name in ("strides", "groups", "data_layout", "kernel_layout")
    )


# ---- one kernel -----------------------------------------------------------------------------------------------------


def _merged(total: _Sum) -> relax.Call | None:
    """The convolution that computes the sum, without the shift; None if no kernel has the taps of all others."""
    convolutions = [call for call, _ in total.terms if call is not None]
    largest = max(convolutions, key=lambda call: np.prod(_taps(call).sizes))
    all_taps, stored = _taps(largest), _stored(largest)
    kernels = _by_channels(largest)
    if any(_by_channels(call).shape[:2] != kernels.shape[:2] for call in convolutions):
        return None
    merged = np.zeros(kernels.shape)
    for call, factor in total.terms:
        own = _by_channels(call) if call is not None else _identity(total, kernels.shape)
        taps = _taps(call) if call is not None else _pixel(largest)
        places = taps.within(all_taps) if own is not None and taps is not None else None
        if own is None or places is None:
            return None
        common = (slice(None), slice(None), *places)
        merged[common] += own * factor.reshape(-1, *[1] * (own.ndim - 1))
    spatial = [letter for letter in stored if letter not in "OI"]
    order = [["O", "I", *spatial].index(letter) for letter in stored]
    with np.errstate(over="ignore"):
        kernel = np.ascontiguousarray(merged.transpose(order).astype(np.float32))
        finite = np.isfinite(kernel).all() and (total.shift is None or np.isfinite(np.float32(total.shift)).all())
    return relax.Call(largest.op, [total.data, constant(kernel)], largest.attrs, largest.ty_args) if finite else None


def _stored(call: relax.Call) -> str:
    return str(call.attrs.kernel_layout)


def _by_channels(call: relax.Call) -> np.ndarray:
    """The kernels of a convolution, output channels first, then input channels, then the spatial axes."""
    stored = _stored(call)
    spatial = [place for place, letter in enumerate(stored) if letter not in "OI"]
    return np.asarray(array(call.args[1])).transpose([stored.index("O"), stored.index("I"), *spatial])


def _taps(call: relax.Call) -> _Taps:
    sizes = _by_channels(call).shape[2:]
    steps, padding = ints(call.attrs.dilation), ints(call.attrs.padding)
    before, after = padding[: len(sizes)], padding[len(sizes) :]
    growth = (b + a - d * (k - 1) for b, a, d, k in zip(before, after, steps, sizes, strict=True))
    return _Taps(sizes, steps, before, tuple(growth))


def _pixel(call: relax.Call) -> _Taps | None:
    """The taps of a kernel that reads the output's own pixel; None if outputs are strided."""
    strides = ints(call.attrs.strides)
    ones, zeros = (1,) * len(strides), (0,) * len(strides)
    return _Taps(ones, ones, zeros, zeros) if strides == ones else None


def _identity(total: _Sum, shape: tuple[int, ...]) -> np.ndarray | None:
    """The kernel that connects each channel with itself, for kernels of `shape`; None if the numbers differ."""
    outputs, inputs = shape[:2]
    if outputs != inputs * int(total.first.attrs.groups):
        return None
    own = np.arange(outputs)
    kernel = np.zeros((outputs, inputs, *[1] * (len(shape) - 2)))
    kernel[own, own % inputs] = 1
    return kernel
