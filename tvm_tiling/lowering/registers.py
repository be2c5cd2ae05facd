"""Local buffers that LLVM turns into vector registers.

One buffer of scope "global" for each vector: any other scope, and 1,024 bytes or more of this one, TVM takes from its
heap by a call at run time. LLVM may then not drop the last store to it, keeps the sums alive from one tile to the next,
and spills them in every step: 16 x 1024 x 1024 ran at 130 GFLOP/s on two cores that way, and runs at 220.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .samples import Extent, is_open


def register(lanes: int, dtype: str) -> tirx.Var:
    """A buffer of one vector."""
    return small_buffer((lanes,), dtype)


def small_buffer(shape: tuple[tirx.Expr | int, ...], dtype: str) -> tirx.Var:
    """A buffer of the function's own.

    One of truth values is written once as a scalar, a store that LLVM drops: TVM makes buffers of vectors of those that
    only vectors of one length are stored in, and then takes truth values for numbers of 8 bits and fails.
    """
    buffer = T.alloc_buffer(shape, dtype, scope="global")
    if dtype == "bool":
        T.buffer_store(buffer, tirx.const(False, "bool"), [tirx.const(0, "int32")] * len(shape))
    return buffer


def registers(count: int, lanes: int, dtype: str) -> list[tirx.Var]:
    """So many of them."""
    return [register(lanes, dtype) for _ in range(count)]


def counted(value: tirx.Expr, least: int) -> tirx.Expr:
    """`value`, a whole number of 64 bits, at least `least`, as an element of a buffer of its own.

    TVM puts pure values in the place of variables that they are bound to, also while it simplifies addresses: a count
    that is made of others, each of which is read twice, grows with 2 to the power of their number. It does not look
    into buffers; LLVM does.
    """
    count = register(1, "int64")
    T.buffer_store(count, tirx.max(value, tirx.const(least, "int64")), [tirx.const(0, "int32")])
    return tirx.BufferLoad(count, [tirx.const(0, "int32")])


def is_count(buffer: tirx.Buffer) -> bool:
    """Whether a buffer of a function's own is like those that counted() makes."""
    shape = list(buffer.shape)
    return str(buffer.dtype) == "int64" and len(shape) == 1 and isinstance(shape[0], tirx.IntImm) and int(shape[0]) == 1


def in_register(extent: Extent) -> Extent:
    """An open extent in a register of its own, at least 0; a number as it is."""
    return counted(tirx.Cast("int64", extent), 0) if is_open(extent) else extent
