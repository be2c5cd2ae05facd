"""Powers of integers: exact, modulo 2 to the power of their bits."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T  # noqa: N812

from ..lowering.checked import Part, in_shares, loops, shares

LARGEST_CHAIN = 16  # the largest exponent that is expanded to a chain of multiplications
_ALONE = {"op_pattern": 8}  # TVM's mark of a kernel that must not be fused


def repeated(bb: relax.BlockBuilder, base: relax.Expr, exponent: int) -> relax.Expr:
    """Return base * ... * base with as few multiplications as repeated squaring needs; the exponent is 0 to
    LARGEST_CHAIN."""
    if exponent == 0:
        return bb.emit(op.full_like(base, relax.const(1, base.ty.dtype)))
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else bb.emit(op.multiply(result, square))
        exponent >>= 1
        if exponent:
            square = bb.emit(op.multiply(square, square))
    return result


def integer_power(bb: relax.BlockBuilder, base: relax.Expr, exponent: relax.Expr) -> relax.Expr:
    """Return powers by repeated squaring, for broadcast tensors of one type. Negative exponents give 0, except for
    bases 1 and -1."""
    shape = relax.ShapeExpr(list(bb.normalize(op.add(base, exponent)).ty.shape))
    wide = [bb.emit(op.broadcast_to(x, shape)) for x in (base, exponent)]
    found = bb.emit_te(_by_squares, *wide, primfunc_name_hint="integer_power", primfunc_attrs=_ALONE)
    return bb.emit(relax.TupleGetItem(found, 0))


def _by_squares(base: te.Tensor, exponent: te.Tensor) -> list[te.Tensor]:
    """Return powers of integers, and the last squares."""
    dtype = str(base.dtype)
    bits = int(dtype.removeprefix("u").removeprefix("int"))

    def number(value: int) -> tirx.Expr:
        return tirx.const(value, dtype)

    def inverse(b: tirx.Expr, e: tirx.Expr) -> tirx.Expr:
        odd = tirx.EQ(tirx.bitwise_and(e, number(1)), number(1))
        of_minus_1 = tirx.Select(odd, number(-1), number(1))
        return tirx.Select(tirx.EQ(b, number(1)), number(1), tirx.Select(tirx.EQ(b, number(-1)), of_minus_1, number(0)))

    def emit(ins: list[tirx.Buffer], outs: list[tirx.Buffer]) -> tirx.Stmt:
        def write(part: Part) -> None:
            with loops(base.shape, part) as at:
                b, e, power, square = (tirx.BufferLoad(buffer, at) for buffer in (*ins, *outs))
                T.buffer_store(outs[0], number(1), at)
                T.buffer_store(outs[1], b, at)
                with T.serial(0, bits) as place:
                    used = tirx.bitwise_and(e >> tirx.Cast(dtype, place), number(1))
                    factor = tirx.Select(tirx.EQ(used, number(1)), square, number(1))
                    T.buffer_store(outs[0], power * factor, at)
                    T.buffer_store(outs[1], square * square, at)
                if not dtype.startswith("u"):
                    T.buffer_store(outs[0], tirx.Select(e < number(0), inverse(b, e), power), at)

        with IRBuilder() as builder, T.seq_scope():
            in_shares(shares(base.shape, 0) if base.shape else 1, 0, write)
        return builder.get()

    shapes: list[Any] = [base.shape, base.shape]
    return te.extern(shapes, [base, exponent], emit, dtype=[dtype, dtype], name="integer_power")
