"""Expressions of sizes as plain data that does not need TVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import tirx

from ..sizes import MOST_DEPTH, Extent, Named, Operation

_SYMBOLS = {
    tirx.Add: "+",
    tirx.Sub: "-",
    tirx.Mul: "*",
    tirx.FloorDiv: "//",
    tirx.FloorMod: "%",
    tirx.Min: "min",
    tirx.Max: "max",
}


def plain_extent(size: Any, names: Mapping[tirx.Var, str], depth: int = MOST_DEPTH) -> Extent | None:
    """Return a size in terms of named dynamic sizes; None if it depends on anything else or is nested too deeply."""
    if isinstance(size, int | tirx.IntImm):
        return int(size)
    if isinstance(size, tirx.Var):
        return Named(names[size]) if size in names else None
    if isinstance(size, tirx.Cast):
        return plain_extent(size.value, names, depth)
    symbol = _SYMBOLS.get(type(size))
    if symbol is None or depth == 0:
        return None
    left, right = plain_extent(size.a, names, depth - 1), plain_extent(size.b, names, depth - 1)
    return None if left is None or right is None else Operation(symbol, left, right)
