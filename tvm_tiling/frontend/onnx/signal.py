"""Discrete Fourier transforms of ONNX as matrix multiplications with constant matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as tvm_onnx

from ..open_shapes import whole
from .tensors import dtype_of

# A transform of n elements needs an n x n matrix.
LONGEST = 4096


def _integer(value: relax.Expr | None, default: int, called: str) -> int:
    if value is None:
        return default
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueError(f"{called} has to be known at compile time")
    return int(value.value.numpy().reshape(-1)[0])


def _matrices(rows: int, columns: int, length: int, sign: int, dtype: str) -> tuple[relax.Expr, relax.Expr]:
    """cos and sin of sign 2 pi i j / length for i below `rows` and j below `columns`."""
    if max(rows, columns, length) > LONGEST:
        raise ValueError(
            f"a transform of {max(rows, columns, length)} elements is not supported; expected up to {LONGEST}"
        )
    angle = sign * 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % length) / length
    return relax.const(np.cos(angle), dtype), relax.const(np.sin(angle), dtype)


def _parts(bb: relax.BlockBuilder, signal: relax.Expr) -> tuple[relax.Expr, relax.Expr | None]:
    """The real and imaginary parts of a tensor that stores them along its last axis."""
    if int(signal.ty.shape[-1]) == 1:
        return bb.emit(op.squeeze(signal, [-1])), None
    real, imaginary = (bb.emit(part) for part in bb.emit(op.split(signal, 2, -1)))
    return bb.emit(op.squeeze(real, [-1])), bb.emit(op.squeeze(imaginary, [-1]))


def _transform(
    bb: relax.BlockBuilder, real: relax.Expr, imaginary: relax.Expr | None, bins: int, length: int, sign: int
) -> tuple[relax.Expr, relax.Expr]:
    """The transform along the last axis: `bins` results from `length` points."""
    cosines, sines = _matrices(int(real.ty.shape[-1]), bins, length, sign, dtype_of(real))
    re, im = bb.emit(op.matmul(real, cosines)), bb.emit(op.matmul(real, sines))
    if imaginary is None:
        return re, im
    return bb.emit(re - op.matmul(imaginary, sines)), bb.emit(im + op.matmul(imaginary, cosines))


def _fitted(bb: relax.BlockBuilder, value: relax.Expr | None, length: int) -> relax.Expr | None:
    """The first `length` elements of the last axis, zero-padded if there are fewer."""
    if value is None or int(value.ty.shape[-1]) == length:
        return value
    has, rank = int(value.ty.shape[-1]), len(value.ty.shape)
    if has > length:
        return bb.emit(op.strided_slice(value, [rank - 1], [0], [length]))
    return bb.emit(op.nn.pad(value, [0] * (2 * rank - 1) + [length - has]))


class Dft(tvm_onnx.OnnxOpConverter):
    """DFT 17 (the axis is an attribute) and 20 (an input)."""

    @classmethod
    def _impl_v17(cls, bb, inputs, attr, params):
        return cls._dft(bb, inputs, attr, attr.get("axis", 1))

    @classmethod
    def _impl_v20(cls, bb, inputs, attr, params):
        return cls._dft(bb, inputs, attr, _integer(inputs[2], -2, "the axis"))

    @classmethod
    def _dft(cls, bb: relax.BlockBuilder, inputs: list, attr: dict, axis: int) -> relax.Expr:
        rank = len(inputs[0].ty.shape)
        axis %= rank
        inverse, onesided = bool(attr.get("inverse", 0)), bool(attr.get("onesided", 0))
        order = [place for place in range(rank - 1) if place != axis] + [axis]
        real, imaginary = (
            None if part is None else bb.emit(op.permute_dims(part, order)) for part in _parts(bb, inputs[0])
        )
        assert real is not None
        stored = int(real.ty.shape[-1])
        length = _integer(inputs[1], 2 * (stored - 1) if inverse and onesided else stored, "the length")
        if inverse and onesided:
            real, imaginary = cls._both_sides(bb, real, imaginary, length)
        real, imaginary = _fitted(bb, real, length), _fitted(bb, imaginary, length)
        bins = length // 2 + 1 if onesided and not inverse else length
        re, im = _transform(bb, real, imaginary, bins, length, 1 if inverse else -1)
        if inverse:
            factor = relax.const(1.0 / length, dtype_of(re))
            re, im = bb.emit(re * factor), bb.emit(im * factor)
        back = [order.index(place) for place in range(rank - 1)]
        wanted = [re] if inverse and onesided else [re, im]
        return op.stack([bb.emit(op.permute_dims(part, back)) for part in wanted], -1)

    @classmethod
    def _both_sides(
        cls, bb: relax.BlockBuilder, real: relax.Expr, imaginary: relax.Expr | None, length: int
    ) -> tuple[relax.Expr, relax.Expr | None]:
        """The complete spectrum of a real signal from its first half: the rest is the conjugate in reverse."""
        mirror = np.array([place if place <= length // 2 else length - place for place in range(length)])
        sign = np.where(np.arange(length) <= length // 2, 1.0, -1.0)
        axis = len(real.ty.shape) - 1
        real = bb.emit(op.take(real, relax.const(mirror, "int64"), axis))
        if imaginary is None:
            return real, None
        dtype = dtype_of(imaginary)
        return real, bb.emit(op.take(imaginary, relax.const(mirror, "int64"), axis) * relax.const(sign, dtype))


def _frames(bb: relax.BlockBuilder, signal: relax.Expr, step: int, length: int) -> relax.Expr:
    """Frames of `length` elements of each signal, `step` apart."""
    extent = whole(signal.ty.shape[1])
    if isinstance(extent, int):
        at = np.arange(1 + (extent - length) // step)[:, None] * step + np.arange(length)
        return bb.emit(op.take(signal, relax.const(at), 1))

    def framed(x: te.Tensor) -> te.Tensor:
        count = tirx.floordiv(x.shape[1] - length, step) + 1
        return te.compute((x.shape[0], count, length), lambda b, f, t: x[b, f * step + t], name="frames")

    return bb.emit_te(framed, signal, primfunc_name_hint="frames")


class Stft(tvm_onnx.OnnxOpConverter):
    """Transforms of windows with a constant stride."""

    @classmethod
    def _impl_v17(cls, bb, inputs, attr, params):
        signal, window = inputs[0], inputs[2]
        step = _integer(inputs[1], 0, "the step")
        default = int(window.ty.shape[0]) if window is not None else 0
        length = _integer(inputs[3], default, "the length of a frame")
        real, imaginary = _parts(bb, signal)
        windows = [None if part is None else _frames(bb, part, step, length) for part in (real, imaginary)]
        if window is not None:
            windows = [None if part is None else bb.emit(part * window) for part in windows]
        bins = length // 2 + 1 if attr.get("onesided", 1) else length
        return op.stack(list(_transform(bb, windows[0], windows[1], bins, length, -1)), -1)


CONVERTERS: dict[str, Any] = {"DFT": Dft, "STFT": Stft}
