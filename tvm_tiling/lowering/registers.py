"""Local buffers that LLVM turns into vector registers.

One buffer of scope "global" for each vector: any other scope, and 1,024 bytes or more of this one, TVM takes from its
heap by a call at run time. LLVM may then not drop the last store to it, keeps the sums alive from one tile to the next,
and spills them in every step: 16 x 1024 x 1024 ran at 130 GFLOP/s on two cores that way, and runs at 220.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812


def register(lanes: int, dtype: str) -> tirx.Var:
    """A buffer of one vector."""
    return T.alloc_buffer((lanes,), dtype, scope="global")


def registers(count: int, lanes: int, dtype: str) -> list[tirx.Var]:
    """So many of them."""
    return [register(lanes, dtype) for _ in range(count)]
