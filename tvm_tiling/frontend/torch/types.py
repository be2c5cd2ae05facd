"""Element types of PyTorch by their TVM names."""

from __future__ import annotations

import torch

NAMES: dict[torch.dtype, str] = {
    getattr(torch, name): name
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
        *("uint16", "uint32", "uint64"),
    )
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}


def is_float(name: str) -> bool:
    return DTYPES[name].is_floating_point


def computed_in(name: str) -> str:
    """The type in which PyTorch computes element-wise functions with a result of type `name`: float32 for 16-bit
    floats."""
    return "float32" if name in ("float16", "bfloat16") else name


def cast_through(source: str, target: str) -> str | None:
    """The intermediate type of a cast, as in PyTorch; None if it is direct.

    16-bit floats are converted from and to float32. A float is cast to a narrow integer through a wider signed one, so
    that out-of-range numbers keep their lowest bits.
    """
    narrow = ("float16", "bfloat16")
    if "float32" not in (source, target) and (source in narrow or target in narrow):
        return "float32"
    if is_float(source) and not is_float(target):
        return "int64" if target in ("uint32", "uint64") else "int32" if target.endswith(("8", "16")) else None
    return None
