"""Simplifies addresses over axes with symbolic extents.

TVM's analyzer only divides by constants: it does not simplify (i * s + j) // s to i. Here an address is a polynomial of
axes, sizes and remaining quotients. A division is resolved if the remainder is provably between 0 and the divisor;
every axis is at least 0 and below its extent, and no size is negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad

from .samples import Extent

Monomial: TypeAlias = tuple[int, ...]  # indices of atoms, ascending; a squared atom occurs twice
Polynomial: TypeAlias = dict[Monomial, int]
_KIND = "int64"


class OpenIndices:
    """Expressions over `axes`, variables with extents; all other variables are sizes."""

    def __init__(self, axes: Sequence[tuple[tirx.Var, Extent]]) -> None:
        self._atoms: list[tirx.Expr] = []
        self._extents: dict[int, Polynomial] = {}  # upper bounds of atoms (exclusive)
        # Operands of atoms that are quotients or remainders.
        self._divisions: dict[tuple[int, str], tuple[Polynomial, Polynomial]] = {}
        for variable, extent in axes:
            self._extents[self._atom(variable)] = self.polynomial(
                extent if isinstance(extent, tirx.Expr) else tirx.const(extent, _KIND)
            )

    def shortest(self, expr: tirx.Expr) -> tirx.Expr:
        """Return the integer expression `expr` simplified; unchanged if it contains anything but arithmetic and
        variables."""
        return self.expression(self.polynomial(expr), str(expr.ty))

    # ---- polynomials ----------------------------------------------------------------------------------------------

    def polynomial(self, expr: tirx.Expr) -> Polynomial:
        """Return `expr` as a polynomial; parts other than sums, products and divisions are atoms."""
        if isinstance(expr, tirx.IntImm):
            return _number(int(expr))
        if isinstance(expr, tirx.Add):
            return self._recombined(_sum(self.polynomial(expr.a), self.polynomial(expr.b)))
        if isinstance(expr, tirx.Sub):
            return self._recombined(_sum(self.polynomial(expr.a), self.polynomial(expr.b), -1))
        if isinstance(expr, tirx.Mul):
            return self._recombined(_product(self.polynomial(expr.a), self.polynomial(expr.b)))
        if isinstance(expr, (tirx.FloorDiv, tirx.FloorMod)):
            number, divisor = self.polynomial(expr.a), self.polynomial(expr.b)
            return self._divided(number, divisor, isinstance(expr, tirx.FloorMod))
        if isinstance(expr, tirx.Cast) and self._keeps(expr):
            return self.polynomial(expr.value)
        return {(self._atom(expr),): 1}

    def _keeps(self, cast: tirx.Cast) -> bool:
        """Return whether a type conversion only affects an address: to 64 bits, or of a short axis to 32 bits."""
        if (str(cast.value.ty), str(cast.ty)) == ("int32", _KIND):
            return not _loads(cast.value)
        if (str(cast.value.ty), str(cast.ty)) != (_KIND, "int32") or not isinstance(cast.value, tirx.Var):
            return False
        extent = self._extents.get(self._atom(cast.value), {(0,): 1})
        return set(extent) == {()} and extent[()] < 1 << 31

    def expression(self, polynomial: Polynomial, kind: str = _KIND) -> tirx.Expr:
        """Return a polynomial as TIR."""
        total: tirx.Expr | None = None
        for monomial, factor in polynomial.items():
            term: tirx.Expr | None = None
            for atom in monomial:
                term = self._atoms[atom] if term is None else term * self._atoms[atom]
            if term is None:
                term = tirx.const(factor, kind)
            elif factor != 1:
                term = term * tirx.const(factor, kind)
            total = term if total is None else total + term
        return tirx.const(0, kind) if total is None else total

    def _atom(self, expr: tirx.Expr) -> int:
        for number, known in enumerate(self._atoms):
            if known.same_as(expr) or (not isinstance(expr, tirx.Var) and tvm_ffi.structural_equal(known, expr)):
                return number
        self._atoms.append(expr)
        return len(self._atoms) - 1

    # ---- divisions ------------------------------------------------------------------------------------------------

    def _divided(self, number: Polynomial, divisor: Polynomial, remainder: bool) -> Polynomial:
        """Return the quotient or the remainder, rounded down."""
        if divisor == _number(1):
            return {} if remainder else number
        if not divisor or (set(divisor) == {()} and divisor[()] < 0):
            return {(self._atom(self._division(number, divisor, remainder)),): 1}
        whole, rest = _quotient(number, divisor)
        if self.is_within(rest, divisor):
            return rest if remainder else whole
        common = math.gcd(*divisor.values())
        if common > 1 and set(divisor) != {()}:
            # Divide by the constant factor of the divisor first.
            above, below = _quotient(number, _number(common))
            if self.is_within(below, _number(common)):
                part = self._divided(above, {m: f // common for m, f in divisor.items()}, remainder)
                return _sum(_product(part, _number(common)), below) if remainder else part
        atom = self._atom(self._division(rest, divisor, remainder))
        if remainder:
            self._extents[atom] = divisor
            self._divisions[atom, "%"] = rest, divisor
            return {(atom,): 1}
        self._divisions[atom, "/"] = rest, divisor
        end = self._end(rest)
        if end is not None:
            parts, left = _quotient(end, divisor)
            if not left:
                self._extents[atom] = parts
        return self._recombined(_sum(whole, {(atom,): 1}))

    def _division(self, number: Polynomial, divisor: Polynomial, remainder: bool) -> tirx.Expr:
        kind = tirx.floormod if remainder else tirx.floordiv
        return kind(self.expression(number), self.expression(divisor))

    def _end(self, polynomial: Polynomial) -> Polynomial | None:
        """Return one more than the largest value if the smallest is provably at least 0; None otherwise."""
        total = _number(1)
        for monomial, factor in polynomial.items():
            if factor < 0:
                return None
            largest = _number(factor)
            for atom in monomial:
                own = self._extents.get(atom)
                if own is None and not isinstance(self._atoms[atom], tirx.Var):
                    return None  # may be negative
                largest = _product(largest, {(atom,): 1} if own is None else _sum(own, _number(-1)))
            total = _sum(total, largest)
        return total

    def is_within(self, polynomial: Polynomial, end: Polynomial) -> bool:
        """Return whether a polynomial is provably at least 0 and below `end`, given that there are points at all."""
        own = self._end(polynomial)
        return own is not None and self.is_ordered(own, end)

    def is_variable(self, atom: int) -> bool:
        """Return whether an atom is a variable."""
        return isinstance(self._atoms[atom], tirx.Var)

    def replaced(self, polynomial: Polynomial, atoms: Mapping[int, Polynomial]) -> Polynomial:
        """Return a polynomial with some atoms replaced by polynomials."""
        total: Polynomial = {}
        for monomial, factor in polynomial.items():
            term = _number(factor)
            for atom in monomial:
                term = _product(term, atoms.get(atom, {(atom,): 1}))
            total = _sum(total, term)
        return total

    def sum(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """Return a + b."""
        return _sum(a, b)

    def is_ordered(self, least: Polynomial, most: Polynomial) -> bool:
        """Return whether `most` is provably no less than `least`."""
        return all(
            factor >= 0 and all(isinstance(self._atoms[atom], tirx.Var) for atom in monomial)
            for monomial, factor in _sum(most, least, -1).items()
        )

    def _recombined(self, polynomial: Polynomial) -> Polynomial:
        """Simplify (x // n) * n + x % n to x."""
        for atom, kind in list(self._divisions):
            if kind != "%" or not any(atom in monomial for monomial in polynomial):
                continue
            rest, divisor = self._divisions[atom, "%"]
            quotient = next(
                (a for (a, k), parts in self._divisions.items() if k == "/" and parts == (rest, divisor)), None
            )
            if quotient is None:
                continue
            of_rest, of_quotient = _coefficient(polynomial, atom), _coefficient(polynomial, quotient)
            if of_rest is None or of_quotient is None or _product(of_rest, divisor) != of_quotient:
                continue
            left = {m: f for m, f in polynomial.items() if atom not in m and quotient not in m}
            return self._recombined(_sum(left, _product(of_rest, rest)))
        return polynomial

    # ---- linear parts ---------------------------------------------------------------------------------------------

    def steps(self, expr: tirx.Expr, axes: Sequence[tirx.Var]) -> tuple[list[Polynomial], Polynomial] | None:
        """Return the increment for one step of each axis, and the value with all axes at 0; None if `expr` is not
        linear in the axes."""
        left = self.polynomial(expr)
        found = []
        for variable in axes:
            atom = self._atom(variable)
            step = _coefficient(left, atom)
            if step is None:
                return None
            found.append(step)
            left = {m: f for m, f in left.items() if atom not in m}
        among = {self._atom(variable) for variable in axes}
        every = [*found, left]
        if any(self._holds(atom, among) for part in every for monomial in part for atom in monomial):
            return None
        return found, left

    def _holds(self, atom: int, among: set[int]) -> bool:
        """Return whether an atom is one of these atoms or depends on one."""
        expr = self._atoms[atom]
        if isinstance(expr, tirx.Var):
            return atom in among
        variables: list[tirx.Var] = []
        tvm_ffi.structural_walk(expr, (tirx.Var, variables.append))
        return any(v.same_as(self._atoms[other]) for v in variables for other in among)


def _loads(expr: tirx.Expr) -> bool:
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return bool(found)


def quotient_of(extent: tirx.Expr, divisor: tirx.Expr) -> tirx.Expr | None:
    """Return extent / divisor for two expressions of sizes; None if it is not provably an integer."""
    places = OpenIndices(())
    number, by = places.polynomial(extent), places.polynomial(divisor)
    if not by:
        return None
    whole, rest = _quotient(number, by)
    return None if rest else places.expression(whole)


def is_same(a: tirx.Expr, b: tirx.Expr) -> bool:
    """Return whether two expressions of sizes are provably equal."""
    places = OpenIndices(())
    return places.polynomial(a) == places.polynomial(b)


def _number(value: int) -> Polynomial:
    return {(): value} if value else {}


def _sum(a: Mapping[Monomial, int], b: Mapping[Monomial, int], sign: int = 1) -> Polynomial:
    total = dict(a)
    for monomial, factor in b.items():
        value = total.get(monomial, 0) + sign * factor
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return total


def _product(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> Polynomial:
    total: Polynomial = {}
    for one, factor in a.items():
        total = _sum(total, {tuple(sorted(one + other)): factor * another for other, another in b.items()})
    return total


def _coefficient(polynomial: Mapping[Monomial, int], atom: int) -> Polynomial | None:
    """Return the coefficient of an atom; None if the atom occurs in a higher power."""
    found: Polynomial = {}
    for monomial, factor in polynomial.items():
        if atom in monomial:
            if monomial.count(atom) > 1:
                return None
            found[tuple(a for a in monomial if a != atom)] = factor
    return found


def _quotient(number: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return (q, r) with number = q * divisor + r; each term is divided by the divisor's leading term as long as that
    is possible.
    """
    leading = max(divisor, key=lambda monomial: (len(monomial), monomial))
    whole: Polynomial = {}
    for _ in range(len(number) + 1):  # each iteration of a division that terminates removes a term
        term = next((m for m in sorted(number, key=len, reverse=True) if _ratio(number, m, divisor, leading)), None)
        if term is None:
            return whole, number
        found = _ratio(number, term, divisor, leading)
        assert found is not None, "the term was chosen for it"
        monomial, factor = found
        whole = _sum(whole, {monomial: factor})
        number = _sum(number, _product({monomial: factor}, divisor), -1)
    return {}, _sum(number, _product(whole, divisor))


def _ratio(number: Polynomial, term: Monomial, divisor: Polynomial, leading: Monomial) -> tuple[Monomial, int] | None:
    left = list(term)
    for atom in leading:
        if atom not in left:
            return None
        left.remove(atom)
    factor, _ = divmod(number[term], divisor[leading])
    return (tuple(left), factor) if factor else None
