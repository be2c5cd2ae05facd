"""Weights on their way from memory before they are needed.

A model's weights are rarely in a cache when their operator starts, and the hardware's own prefetching stops at every
page. Where a panel is used by many rows there is time to ask for the weights far ahead, a vector at a step, one more
load among dozens of multiply-adds. Microseconds with weights in the third cache / in memory / in memory and asked for:

    Winograd 28 x 28 x 128    267 / 411 / 283        product  49 x 512 x 2048    450 / 522 / 465
    Winograd 56 x 56 x 64     281 / 359 / 300                196 x 256 x 1024    444 / 456 / 448

Products of few rows wait for memory whatever they do: 8 x 1024 x 4096 took 582 without and 666 with it. A prefetch
never faults, so asking past the end is harmless.
"""

from __future__ import annotations

from typing import TypeAlias

import tvm
from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

Index: TypeAlias = tirx.Expr | int

AHEAD = 65536  # bytes; 4 KB to 128 KB were tried
LEAST_ROWS = 16  # rows of a product that all use the weights
LINE = 64  # bytes; on machines of longer lines half of the requests are in vain


def prefetch(buffer: tirx.Var, start: Index, elements: int) -> None:
    """Ask for what lies AHEAD of the `elements` from `start` on, to come to the second cache."""
    size = tvm.DataType(str(buffer.dtype)).bits // 8
    read, second_cache, data = (tirx.const(value, "int32") for value in (0, 2, 1))
    for line in range(AHEAD, AHEAD + elements * size, LINE):
        address = T.address_of(buffer[start + line // size])
        T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch", address, read, second_cache, data))
