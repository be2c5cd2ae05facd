"""Integer sums, differences, products and narrowing conversions that wrap around.

TVM simplifies int32 and int64 as if no value overflowed (min(x + 1, x) becomes x), and tells LLVM so for every sum of
32 bits or more. Both are valid for addresses only. A value that may overflow is therefore computed in twice the bits
and truncated; LLVM makes one instruction of that. TVM would apply its knowledge of the wide value's range to the narrow
one; two bitwise complements hide it.

Unchanged are addresses that do not depend on data, values that provably fit, and the updates of a reduction (`C[i] += a
* b`) until their function is scheduled, since schedules recognise their form. In the address of an element at a
position from data, the multiple of the row and the sums around it are unchanged once the function is scheduled: the
position is within its axis, clamped or checked, and what it is computed from wraps around as any other value. LLVM sees
contiguous elements then: 128 rows of 768 numbers are copied in 8 instead of 21 us.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.ir.prim.expr import BitwiseNot

from .known import Known
from .registers import is_count

Expr: TypeAlias = tirx.Expr

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)
_WIDEST_BITS = 64  # of a tensor's elements


def wrapping(func: tirx.PrimFunc, scheduled: bool = False) -> tirx.PrimFunc:
    """Return `func` with integer arithmetic that wraps around; `scheduled`: also in updates of reductions."""
    if not _has_integers(func):
        return func
    wrapped = _Wrapped(func, scheduled)
    everywhere = tvm_ffi.structural_map(func, ((_ARITHMETIC, wrapped.arithmetic), (tirx.Cast, wrapped.cast)))
    return everywhere if scheduled else tvm_ffi.structural_map(everywhere, (tirx.BufferStore, _with_plain_update))


def as_written(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with the changes of wrapping() undone, for machines whose integers wrap around natively."""
    return tvm_ffi.structural_map(func, _PLAIN)


def plain_value(value: Expr) -> Expr:
    """Return an expression with the changes of wrapping() undone."""
    return tvm_ffi.structural_map(value, _PLAIN)


def by_bits(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` in the form for code generation, with the wide values of int32 and int64 as unsigned numbers
    composed of bits.

    TVM simplifies the operand of a cast to int32 or int64 twice, and so an expression below n such casts 2^n times: a
    chain of quantised operations took hours. Pattern matching no longer applies to the result.
    """
    return tvm_ffi.structural_map(func, (tirx.Cast, _of_bits))


def hidden(value: Expr) -> Expr:
    """Return `value` in a form of which TVM knows nothing but its type."""
    return tirx.bitwise_not(tirx.bitwise_not(value))


def limits(dtype: str) -> tuple[int, int] | None:
    """Return the lowest and highest number of an integer type; None for other types."""
    bits = dtype.removeprefix("u").removeprefix("int")
    if not bits.isdigit() or dtype.startswith("float"):
        return None
    return (0, 2 ** int(bits) - 1) if dtype.startswith("u") else (-(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1)


def _has_integers(func: tirx.PrimFunc) -> bool:
    """Return whether any integer tensor is read or written; all other integers are addresses and counts in memory."""
    found: list[str] = []

    given = set(func.params)

    def note(buffer: Any, kind: Any) -> None:
        if buffer in given or not is_count(buffer):
            found.append(str(kind))

    visits = (
        (TensorLoad, lambda load: note(load.source, load.ty)),
        (tirx.BufferStore, lambda store: note(store.buffer, store.value.ty)),
    )
    tvm_ffi.structural_walk(func.body, visits)
    return any(limits(dtype) is not None for dtype in set(found))


def _with_plain_update(store: tirx.BufferStore) -> tirx.BufferStore:
    """Return `store`, whose value wraps around, with the plain sum or product of a reduction's update and of its
    factors."""
    value = _plain(store.value)
    if not isinstance(value, (tirx.Add, tirx.Mul)):
        return store
    operands = (value.a, value.b)
    if not any(isinstance(operand, TensorLoad) and operand.source.same_as(store.buffer) for operand in operands):
        return store
    return tirx.BufferStore(store.buffer, type(value)(*map(_plain_product, operands)), list(store.indices))


def _plain_product(term: Expr) -> Expr:
    product = _plain(term)
    if isinstance(product, tirx.Mul):
        return tirx.Mul(_plain_product(product.a), _plain_product(product.b))
    return term


def _plain(value: Expr) -> Expr:
    """Return the original operation of a `value` that wraps around; others unchanged."""
    operation = _behind_complements(value.value) if isinstance(value, tirx.Cast) else None
    if isinstance(operation, _ARITHMETIC) and all(isinstance(o, tirx.Cast) for o in (operation.a, operation.b)):
        return type(operation)(operation.a.value, operation.b.value)
    return value


def _without_complements(complement: BitwiseNot) -> Expr:
    return complement.a.a if isinstance(complement.a, BitwiseNot) else complement


def _narrowed(cast: tirx.Cast) -> Expr:
    """Return a sum, difference or product that is computed in wider integers only for its lowest bits in its own
    type."""
    operation, dtype = cast.value, str(cast.ty)
    if limits(dtype) is None or not isinstance(operation, _ARITHMETIC) or limits(str(operation.ty)) is None:
        return cast
    operands = (operation.a, operation.b)
    if not all(isinstance(operand, tirx.Cast) and str(operand.value.ty) == dtype for operand in operands):
        return cast
    return type(operation)(*(operand.value for operand in operands))


_PLAIN = ((BitwiseNot, _without_complements), (tirx.Cast, _narrowed))


def _behind_complements(value: Expr) -> Expr | None:
    return value.a.a if isinstance(value, BitwiseNot) and isinstance(value.a, BitwiseNot) else None


def _of_bits(cast: tirx.Cast) -> Expr:
    """Return an int32 or int64 sum, difference or product that was made to wrap around with twice its bits; others
    unchanged."""
    operation, dtype = cast.value, str(cast.ty)
    while (behind := _behind_complements(operation)) is not None:
        operation = behind
    if dtype not in ("int32", "int64") or not isinstance(operation, _ARITHMETIC):
        return cast
    if not all(isinstance(side, tirx.Cast) and str(side.value.ty) == dtype for side in (operation.a, operation.b)):
        return cast
    bits = int(dtype.removeprefix("int"))
    wide = f"uint{2 * bits}"
    left, right = (tirx.Cast(wide, tirx.reinterpret(f"u{dtype}", side.value)) for side in (operation.a, operation.b))
    if isinstance(operation, tirx.Sub):  # unsigned numbers have nothing below 0
        left = left + (tirx.Cast(wide, tirx.const(1, "uint8")) << tirx.const(bits, wide))
    return tirx.reinterpret(dtype, tirx.Cast(f"u{dtype}", hidden(type(operation)(left, right))))


class _Wrapped(Known):
    """The operations of one function; `flat`: each of its accesses has one index, the sum of those along its axes."""

    def __init__(self, func: tirx.PrimFunc, flat: bool) -> None:
        super().__init__(func)
        self._left = self.addresses((*_ARITHMETIC, tirx.Cast))
        if flat:
            visits = (
                (TensorLoad, lambda load: self._leave_sum(load.indices)),
                (tirx.BufferStore, lambda store: self._leave_sum(store.indices)),
            )
            tvm_ffi.structural_walk(func.body, visits)
        tvm_ffi.structural_walk(func.body, (tirx.Cast, self._leave_hidden))

    def _leave_sum(self, indices: Any) -> None:
        """Exclude the sums and multiples of positions that the only index of an access consists of."""
        left = list(indices) if len(indices) == 1 else []
        while left:
            part = left.pop()
            if isinstance(part, _ARITHMETIC):
                self._left.add(part)
                left += (part.a, part.b)
            elif isinstance(part, (tirx.Ramp, tirx.Broadcast)):
                left += (part.base, part.stride) if isinstance(part, tirx.Ramp) else (part.value,)

    def _leave_hidden(self, cast: tirx.Cast) -> None:
        """Exclude what has been made to wrap around before."""
        wide = _behind_complements(cast.value)
        if wide is not None:
            self._left.update((cast, wide))

    def _fits(self, value: Expr, dtype: str) -> bool:
        """Return whether `value`, with unlimited bits, is known to fit `dtype`."""
        bound = self.analyzer.const_int_bound(value)
        if bound.min_value == bound.NEG_INF or bound.max_value == bound.POS_INF:
            return not self.from_data(value)  # dynamic sizes are assumed to fit, as in addresses
        lowest, highest = limits(dtype) or (0, 0)
        return lowest <= bound.min_value and bound.max_value <= highest

    def arithmetic(self, expr: Any) -> Expr:
        dtype = str(expr.ty)
        ends = limits(dtype)
        if ends is None or expr in self._left or self._fits(expr, dtype):
            return expr
        bits = ends[1].bit_length() + (ends[0] < 0)
        if bits > _WIDEST_BITS:
            return expr  # made here before
        # Differences of unsigned numbers are signed, and their products need twice the bits.
        wide = f"{'int' if ends[0] or isinstance(expr, tirx.Sub) else 'uint'}{2 * bits}"
        return tirx.Cast(dtype, hidden(type(expr)(tirx.Cast(wide, expr.a), tirx.Cast(wide, expr.b))))

    def cast(self, expr: Any) -> Expr:
        source, target = limits(str(expr.value.ty)), limits(str(expr.ty))
        if source is not None and str(expr.ty) == "bool":
            # TVM cannot cast constants other than 0 and 1 to bool.
            return tirx.NE(expr.value, tirx.const(0, str(expr.value.ty)))
        if source is None or target is None or (target[0] <= source[0] and source[1] <= target[1]):
            return expr
        if expr in self._left or self._fits(expr.value, str(expr.ty)):
            return expr
        # Hides the bounds of one type, which TVM would apply to the other.
        return hidden(tirx.Cast(str(expr.ty), hidden(expr.value)))
