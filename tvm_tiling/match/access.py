"""Operands as expressions of their axes: elements at arbitrary indices, and their memory address if it is linear."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import tvm_ffi
from tvm import sym, tirx
from tvm.ir import PrimType, TensorLoad

from ..lowering.extents import number_of, product_of
from ..lowering.samples import Extent, is_open
from ..lowering.wrapping import limits

Index: TypeAlias = tirx.Expr | int


@dataclass(frozen=True)
class Access:
    """An operand element as an expression of (batch, row, column) block variables, evaluated at arbitrary indices.

    `buffer` is set if the element is a single load (perhaps cast) whose fused row and column strides are constant; only
    such an operand can be read in place.
    """

    expr: tirx.Expr
    axes: tuple[tuple[tirx.Var, ...], ...]  # the variables of each fused axis, outermost first
    extents: tuple[tuple[Extent, ...], ...]
    dtype: str
    buffer: tirx.Buffer | None
    strides: tuple[int, ...] | None  # elements per step of each fused axis

    def at(self, *indices: Index, dtype: str | None = None) -> tirx.Expr:
        """The element at fused `indices`, one per axis, cast to `dtype`."""
        return self.at_variables(bind(self.axes, self.extents, indices), dtype)

    def at_variables(self, values: dict[tirx.Var, tirx.Expr], dtype: str | None = None) -> tirx.Expr:
        """The element at given values of the axis variables, cast to `dtype`."""
        value = (at_indices if self._compares else substitute)(self.expr, values)
        return value if dtype is None or str(value.ty) == dtype else tirx.Cast(dtype, value)

    @cached_property
    def _compares(self) -> bool:
        return compares_indices(self.expr)


_COMPARISONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


_SUMS = (tirx.Add, tirx.Sub, tirx.Mul)


def _same_types(value: tirx.Expr) -> tirx.Expr:
    """`value` with operands of different types in sums, differences and products in the type of the constant."""
    if not isinstance(value, _SUMS):
        return value
    a, b = _same_types(value.a), _same_types(value.b)
    if str(a.ty) != str(b.ty):
        kind = str((a if isinstance(a, tirx.IntImm) else b).ty)
        a, b = (side if str(side.ty) == kind else tirx.Cast(kind, side) for side in (a, b))
    return value if a.same_as(value.a) and b.same_as(value.b) else type(value)(a, b)


def _of_one_type(comparison: tirx.Expr) -> tirx.Expr:
    """A comparison of an index, whose type may have changed, with an element or constant, in one type: TVM rejects
    comparisons of two types. An element keeps its type; a constant takes the type of the other side."""
    a, b = _same_types(comparison.a), _same_types(comparison.b)
    if str(a.ty) == str(b.ty):
        same = a.same_as(comparison.a) and b.same_as(comparison.b)
        return comparison if same else type(comparison)(a, b)
    number = next((side for side in (b, a) if isinstance(side, tirx.IntImm)), None)
    if loads(a) or loads(b):
        kind = str((a if loads(a) else b).ty)
    elif number is not None:
        kind = str((a if number is b else b).ty)
    else:
        kind = "int64"

    def side(value: tirx.Expr) -> tirx.Expr:
        if str(value.ty) == kind:
            return value
        return tirx.const(int(value), kind) if isinstance(value, tirx.IntImm) else tirx.Cast(kind, value)

    return type(comparison)(side(a), side(b))


def at_indices(expr: tirx.Expr, mapping: dict[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """`expr` with each variable of `mapping` replaced by an index of any type."""
    return tvm_ffi.structural_map(substitute(expr, mapping), (_COMPARISONS, _of_one_type))


def compares_indices(expr: tirx.Expr) -> bool:
    """Return whether `expr` compares anything but floats: at_indices() then differs from substitute()."""
    found: list[tirx.Expr] = []

    def note(comparison: tirx.Expr) -> None:
        if not str(comparison.a.ty).startswith("float"):
            found.append(comparison)

    tvm_ffi.structural_walk(expr, (_COMPARISONS, note))
    return bool(found)


def _is_atom(expr: tirx.Expr) -> bool:
    """Return whether `expr` is an integer constant or a variable, as most indices are: a structural walk takes twenty
    times as long."""
    return isinstance(expr, tirx.IntImm) or (isinstance(expr, tirx.Var) and isinstance(expr.ty, PrimType))


def substitute(expr: tirx.Expr, mapping: dict[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """`expr` with each variable of `mapping` replaced."""
    if _is_atom(expr):
        return mapping.get(expr, expr) if isinstance(expr, tirx.Var) else expr
    return tvm_ffi.structural_map(expr, (tirx.Var, lambda v: mapping.get(v, v)))


def simplified(expr: tirx.Expr) -> tirx.Expr:
    """`expr` with simplified load indices."""
    analyzer = sym.Analyzer()

    def shorter(load: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(load.source, [analyzer.simplify(i) for i in load.indices])

    return tvm_ffi.structural_map(expr, (TensorLoad, shorter))


def bind(
    axes: Sequence[Sequence[tirx.Var]], extents: Sequence[Sequence[Extent]], indices: Sequence[Index]
) -> dict[tirx.Var, tirx.Expr]:
    """The value of each variable where the fused axes are at `indices`; several variables share an axis in mixed
    radix."""
    mapping: dict[tirx.Var, tirx.Expr] = {}
    for variables, sizes, index in zip(axes, extents, indices, strict=True):
        rest = index if isinstance(index, tirx.Expr) else tirx.IntImm("int32", index)
        if any(is_open(size) or size != 1 for size in sizes):
            kept = [(v, size) for v, size in zip(variables, sizes, strict=True) if is_open(size) or size > 1]
            mapping.update((v, tirx.IntImm("int32", 0)) for v in variables)
            variables, sizes = [v for v, _ in kept], [size for _, size in kept]
        for variable, size in zip(reversed(variables[1:]), reversed(sizes[1:]), strict=True):
            mapping[variable] = tirx.floormod(rest, size)
            rest = tirx.floordiv(rest, size)
        if variables:
            mapping[variables[0]] = rest
    return mapping


def variables(expr: tirx.Expr, among: Container[tirx.Var] | None = None) -> set[tirx.Var]:
    """The variables of `expr`, limited to those in `among` if given."""
    if _is_atom(expr):
        return {expr} if isinstance(expr, tirx.Var) and (among is None or expr in among) else set()
    found: set[tirx.Var] = set()

    def visit(variable: tirx.Var) -> None:
        if among is None or variable in among:
            found.add(variable)

    tvm_ffi.structural_walk(expr, (tirx.Var, visit))
    return found


def loads(expr: tirx.Expr) -> list[TensorLoad]:
    """Every load in `expr`."""
    if _is_atom(expr):
        return []
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return found


def strip_cast(expr: tirx.Expr) -> tirx.Expr:
    """`expr` without enclosing casts that preserve every value."""
    while isinstance(expr, tirx.Cast) and _keeps_values(str(expr.value.ty), str(expr.ty)):
        expr = expr.value
    return expr


def multiplied(term: tirx.Expr) -> tirx.Mul | None:
    """The multiplication in `term`, possibly within a cast; None if there is none, or its type cannot represent every
    product of the factors, so that it overflows or rounds before the cast."""
    product = strip_cast(term)
    if not isinstance(product, tirx.Mul):
        return None
    left, right = (str(strip_cast(factor).ty) for factor in (product.a, product.b))
    return product if product is term or _holds_products(left, right, str(product.ty)) else None


# Bits of significand and exponent of the floating-point types.
_FLOATING = {"float64": (53, 11), "float32": (24, 8), "float16": (11, 5), "bfloat16": (8, 8)}


def _keeps_values(narrow: str, wide: str) -> bool:
    """Return whether type `wide` represents every value of type `narrow`."""
    if narrow in _FLOATING and wide in _FLOATING:
        return all(a <= b for a, b in zip(_FLOATING[narrow], _FLOATING[wide], strict=True))
    source, target = _limits(narrow), _limits(wide)
    if source is None:
        return narrow == wide
    if wide in _FLOATING:
        return source[1] <= 1 << _FLOATING[wide][0]
    return target is not None and target[0] <= source[0] and source[1] <= target[1]


def _limits(dtype: str) -> tuple[int, int] | None:
    return (0, 1) if dtype == "bool" else limits(dtype)


def _holds_products(left: str, right: str, wide: str) -> bool:
    """Return whether type `wide` represents every product of values of types `left` and `right`."""
    if left in _FLOATING and right in _FLOATING:
        if wide not in _FLOATING:
            return False
        (digits, powers), (others, other_powers) = _FLOATING[left], _FLOATING[right]
        return digits + others <= _FLOATING[wide][0] and max(powers, other_powers) + 1 <= _FLOATING[wide][1]
    one, other, room = _limits(left), _limits(right), _limits(wide)
    if one is None or other is None:
        return False
    products = [a * b for a in one for b in other]
    if wide in _FLOATING:
        return max(abs(p) for p in products) <= 1 << _FLOATING[wide][0]
    return room is not None and room[0] <= min(products) and max(products) <= room[1]


def address(load: TensorLoad) -> tirx.Expr:
    """Offset of the element that `load` reads from the start of the buffer, in elements."""
    strides = [number_of(s) for s in load.source.strides]
    if not strides:
        strides = [product_of(load.source.shape[d + 1 :]) for d in range(len(load.source.shape))]
    total: tirx.Expr = tirx.IntImm("int32", 0)
    for stride, index in zip(strides, load.indices, strict=True):
        total = total + stride * index
    return total


def linear_strides(
    load: TensorLoad, axes: Sequence[Sequence[tirx.Var]], extents: Sequence[Sequence[Extent]]
) -> tuple[int, ...] | None:
    """Elements per step of each fused axis, or None if the address is not linear in it, or a step is dynamic."""
    variables = [v for axis in axes for v in axis]
    coefficients = sym.detect_linear_equation(sym.Analyzer().simplify(address(load)), variables)
    if len(coefficients) != len(variables) + 1 or not all(isinstance(c, tirx.IntImm) for c in coefficients):
        return None
    step = dict(zip(variables, (int(c) for c in coefficients), strict=False))
    fused = []
    for axis, sizes in zip(axes, extents, strict=True):
        # An axis of one element has no step.
        moving = [(v, size) for v, size in zip(axis, sizes, strict=True) if is_open(size) or size > 1]
        moving = moving or [(v, 1) for v in axis[-1:]]
        for (outer, _), (inner, size) in pairwise(moving):
            if is_open(size) or step[outer] != step[inner] * size:
                return None
        fused.append(step[moving[-1][0]] if moving else 0)
    return tuple(fused)
