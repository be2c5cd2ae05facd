"""Local buffers that LLVM turns into vector registers.

There is one buffer of scope "global" per vector: TVM allocates any other scope, and buffers of 1,024 bytes or more of
this scope, on its heap by a call at run time. LLVM may then not drop the last store to it, keeps the sums live from one
tile to the next, and spills them in every step: 16 x 1024 x 1024 ran at 130 GFLOP/s on two cores that way, and runs at
220 with these buffers.
"""

from __future__ import annotations

from tvm import tirx
from tvm.script.ir_builder import tirx as T  # noqa: N812

from .samples import Extent, is_open


def register(lanes: int, dtype: str) -> tirx.Var:
    """Return a buffer of one vector."""
    return small_buffer((lanes,), dtype)


def small_buffer(shape: tuple[tirx.Expr | int, ...], dtype: str) -> tirx.Var:
    """Return a small buffer of the function.

    A bool buffer is first written as a scalar, a store that LLVM drops: TVM vectorises buffers that are only stored to
    with vectors of one length, and then treats bool as an 8-bit number and fails.
    """
    buffer = T.alloc_buffer(shape, dtype, scope="global")
    if dtype == "bool":
        T.buffer_store(buffer, tirx.const(False, "bool"), [tirx.const(0, "int32")] * len(shape))
    return buffer


def registers(count: int, lanes: int, dtype: str) -> list[tirx.Var]:
    """Return `count` registers."""
    return [register(lanes, dtype) for _ in range(count)]


def counted(value: tirx.Expr, least: int) -> tirx.Expr:
    """Return the int64 `value`, at least `least`, as an element of a buffer of its own.

    TVM substitutes pure values for the variables bound to them, also while it simplifies addresses: a count composed of
    other counts, each read twice, grows exponentially in their number. TVM does not look into buffers; LLVM does.
    """
    count = register(1, "int64")
    T.buffer_store(count, tirx.max(value, tirx.const(least, "int64")), [tirx.const(0, "int32")])
    return tirx.BufferLoad(count, [tirx.const(0, "int32")])


def is_count(buffer: tirx.Buffer) -> bool:
    """Return whether a function's own buffer has the form that counted() makes."""
    shape = list(buffer.shape)
    return str(buffer.dtype) == "int64" and len(shape) == 1 and isinstance(shape[0], tirx.IntImm) and int(shape[0]) == 1


def in_register(extent: Extent) -> Extent:
    """Return a dynamic extent in its own register, at least 0; a static one unchanged."""
    return counted(tirx.Cast("int64", extent), 0) if is_open(extent) else extent
