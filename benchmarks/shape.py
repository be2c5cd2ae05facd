"""Notation of shapes in suites and in the names of cases.

A matrix multiplication is a list [m, k, n], or [m, k, n, ld] with one leading dimension for A, B and C. A convolution
is a table with the required fields h, ci, co and k:

    h, w           rows and columns of the input (default of w: h)
    ci, co         input and output channels
    k, s, p, d     kernel, stride, padding and dilation: one number, or [rows, columns], and for the padding also
                   [top, left, bottom, right]; defaults: s = 1, p = 0, d = 1
    g              groups (default: 1)
    n              images (default: 1)
    times          how often the layer occurs in the group's network, or a table of counts by network's name
"""

from __future__ import annotations

from typing import Any

from tvm_tiling.errors import TilingError, nearest
from tvm_tiling.operand_types import HALVES
from tvm_tiling.workload import ConvWorkload, GemmWorkload

NEEDED = ("h", "ci", "co", "k")
CONV_FIELDS = (*NEEDED, "w", "s", "p", "d", "g", "n", "times")


class ShapeError(TilingError, ValueError):
    """A shape does not follow the notation."""


def workload(shape: Any, dtype: str) -> GemmWorkload | ConvWorkload:
    """Return the workload of a shape in a suite's file. Raises ShapeError or WorkloadError if the shape is invalid.
    Half-precision matrix multiplications accumulate in float32 and store the operands' type, as in models."""
    if isinstance(shape, dict):
        return _conv(shape, dtype)
    if len(shape) not in (3, 4):
        raise ShapeError("must be [m, k, n] or [m, k, n, ld], or a table for a convolution")
    m, k, n = shape[:3]
    ld = shape[3] if len(shape) == 4 else None
    return GemmWorkload(m=m, k=k, n=n, dtype=dtype, out_dtype=_result(dtype), lda=ld, ldb=ld, ldc=ld)


def _conv(shape: dict[str, Any], dtype: str) -> ConvWorkload:
    if unknown := set(shape) - set(CONV_FIELDS):
        raise ShapeError(f"unknown field {min(unknown)!r}; {nearest(min(unknown), CONV_FIELDS)}")
    if missing := [name for name in NEEDED if name not in shape]:
        raise ShapeError(f"{', '.join(missing)} missing; a convolution needs {', '.join(NEEDED)}")
    kh, kw = _pair("k", shape["k"])
    return ConvWorkload(
        n=shape.get("n", 1),
        h=shape["h"],
        w=shape.get("w", shape["h"]),
        ci=shape["ci"],
        co=shape["co"],
        kh=kh,
        kw=kw,
        stride=_pair("s", shape.get("s", 1)),
        padding=_padding(shape.get("p", 0)),
        dilation=_pair("d", shape.get("d", 1)),
        groups=shape.get("g", 1),
        dtype=dtype,
        out_dtype=_result(dtype),
    )


def _result(dtype: str) -> str | None:
    return dtype if dtype in HALVES else None


def _pair(name: str, value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    if not isinstance(value, list) or len(value) != 2:
        raise ShapeError(f"{name} = {value}, must be one number or [rows, columns]")
    return value[0], value[1]


def _padding(value: Any) -> tuple[int, int, int, int]:
    if isinstance(value, list) and len(value) == 4:
        return value[0], value[1], value[2], value[3]
    rows, columns = _pair("p", value)
    return rows, columns, rows, columns


def text(w: GemmWorkload | ConvWorkload) -> str:
    """Format the shape for display: "384x1024x4096", "56x56x64->128 k3 s2 p1"; default values are left out."""
    if isinstance(w, GemmWorkload):
        strided = f" ld {w.ldb}" if (w.lda, w.ldb, w.ldc) != (w.k, w.n, w.n) else ""
        return f"{w.m}x{w.k}x{w.n}{strided}"
    top, left, bottom, right = w.padding
    padding = (top, left) if (top, left) == (bottom, right) else w.padding
    images = f"{w.n}x" if w.n > 1 else ""
    parts = [f"{images}{w.h}x{w.w}x{w.ci}->{w.co}", f"k{_short((w.kh, w.kw))}"]
    for letter, value, usual in (("s", w.stride, "1"), ("p", padding, "0"), ("d", w.dilation, "1")):
        if (number := _short(value)) != usual:
            parts.append(letter + number)
    if w.groups > 1:
        parts.append(f"g{w.groups}")
    return " ".join(parts)


def _short(numbers: tuple[int, ...]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else "x".join(map(str, numbers))
