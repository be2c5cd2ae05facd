"""Software prefetch of weights.

A model's weights are rarely in a cache when their operator starts, and hardware prefetching stops at page boundaries.
If many rows use a panel, there is time to prefetch the weights far ahead, one vector per step, as one more load among
dozens of multiply-adds. Microseconds with weights in L3 / in memory / in memory with prefetch:

    Winograd 28 x 28 x 128    267 / 411 / 283        GEMM  49 x 512 x 2048    450 / 522 / 465
    Winograd 56 x 56 x 64     281 / 359 / 300             196 x 256 x 1024    444 / 456 / 448

A direct convolution that keeps all its weights in L2 needs them while it computes its first tile, which is then as slow
as the memory. Column blocks of 128 KB whose successor is prefetched by all tiles alike avoid that: two cores of a Xeon
(Sapphire Rapids class) take 330 instead of 360 for 14 x 14 x 256 x 1024, and 842 instead of 951 for 7 x 7 x 512 x 512
with 3 x 3 taps, the weights in memory.

In Winograd convolutions, the register tiles of a block of image tiles prefetch equal parts of the next panel. On Zen 5,
with the weights in memory, 7 x 7 x 512 x 512 takes 350 us where a direct convolution, with half the bytes, takes 490.

In matrix multiplications on Zen 5, the first tile of each block of B took its weights at 40 GB/s per core, twice what
the memory delivers. Blocks of 192 KB, each prefetched by all tiles of the one before, take BERT from 46.8 to 45.2 ms
and a ViT from 72.9 to 71.5.

From how many rows on that pays is a cost of the processor (`prefetching_rows`). 8 x 1024 x 4096 takes 582 without and
666 with prefetch on a Zen 4; with its weights in memory, 14 x 1024 x 4096 takes 900 and 405 on the Xeon. A prefetch
never faults, so prefetching past the end is harmless; with longer cache lines, half of the prefetches are redundant.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tvm
from tvm import tirx
from tvm.ir import Call
from tvm.script.ir_builder import tirx as T  # noqa: N812
from tvm.target.codegen import llvm_lookup_intrinsic_id

from ..hardware.cpu import CACHE_LINE

Index: TypeAlias = tirx.Expr | int

PREPACKED = 65536  # distance in bytes; 4 KB to 128 KB were tried


def prefetch(buffer: tirx.Var, start: Index, elements: int) -> None:
    """Prefetch to L2 what is PREPACKED bytes ahead of the `elements` elements starting at `start`."""
    size = tvm.DataType(str(buffer.dtype)).bits // 8
    for line in range(PREPACKED, PREPACKED + elements * size, CACHE_LINE):
        ask(buffer, [start + line // size], cache=2)


def ask(buffer: tirx.Var, indices: Sequence[Index], *, cache: int) -> None:
    """Prefetch the cache line of an element to L1 or L2."""
    read, locality, data = (tirx.const(value, "int32") for value in (0, 4 - cache, 1))
    T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch", T.address_of(buffer[tuple(indices)]), read, locality, data))


def is_prefetch(stmt: tirx.Evaluate) -> bool:
    """Return whether a statement is a prefetch."""
    call = stmt.value
    if not isinstance(call, Call) or str(call.op.name) != "tirx.call_llvm_intrin":
        return False
    return int(call.args[0]) == llvm_lookup_intrinsic_id("llvm.prefetch")
