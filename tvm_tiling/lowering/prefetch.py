"""Weights on their way from memory before they are needed.

A model's weights are rarely in a cache when their operator starts, and the hardware's own prefetching stops at every
page. Where a panel is used by many rows there is time to ask for the weights far ahead, a vector at a step, one more
load among dozens of multiply-adds. Microseconds with weights in L3 / in memory / in memory and asked for:

    Winograd 28 x 28 x 128    267 / 411 / 283        product  49 x 512 x 2048    450 / 522 / 465
    Winograd 56 x 56 x 64     281 / 359 / 300                196 x 256 x 1024    444 / 456 / 448

Products of few rows wait for memory whatever they do: 8 x 1024 x 4096 took 582 without and 666 with it. A prefetch
never faults, so asking past the end is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.script.ir_builder import tirx as T  # noqa: N812
from tvm.target.codegen import llvm_lookup_intrinsic_id

Index: TypeAlias = tirx.Expr | int

PREPACKED = 65536  # bytes; 4 KB to 128 KB were tried
LEAST_ROWS = 16  # rows of a product that all use the weights
LINE = 64  # bytes; on machines of longer lines half of the requests are in vain


def prefetch(buffer: tirx.Var, start: Index, elements: int) -> None:
    """Ask for what lies AHEAD of the `elements` from `start` on, to come to L2."""
    size = tvm.DataType(str(buffer.dtype)).bits // 8
    for line in range(PREPACKED, PREPACKED + elements * size, LINE):
        ask(buffer, [start + line // size], cache=2)


def ask(buffer: tirx.Var, indices: Sequence[Index], *, cache: int) -> None:
    """Ask for the line of an element to come to the first or L2."""
    read, locality, data = (tirx.const(value, "int32") for value in (0, 4 - cache, 1))
    T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch", T.address_of(buffer[tuple(indices)]), read, locality, data))


def is_prefetch(stmt: tirx.Evaluate) -> bool:
    """Whether a statement is such a request."""
    call = stmt.value
    if not isinstance(call, Call) or str(call.op.name) != "tirx.call_llvm_intrin":
        return False
    return int(call.args[0]) == llvm_lookup_intrinsic_id("llvm.prefetch")
