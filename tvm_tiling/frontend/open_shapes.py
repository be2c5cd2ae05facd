"""The dynamic dimensions of a model during import: their variables, known facts, and required conditions.

Extents are integers or TVM expressions of variables. If an operator needs two extents to agree and they are not known
to, a guard records the requirement, and from then on they are treated as equal.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import tvm_ffi
from tvm import relax, sym, tirx

from ..limits import MAX_EXTENT
from ..lowering.plain_extents import plain_extent
from ..match.access import substitute, variables
from ..sizes import Extent, Guard, Named, OpenSize, OpenSizes

Size: TypeAlias = Any  # an int, or a TVM expression of type int64
_LARGE = 1 << 20


class OpenShapes:
    """The dynamic dimensions of one model. `why` names the operator being imported, for guards."""

    def __init__(self) -> None:
        self.why = ""
        self._variables: dict[str, tirx.Var] = {}
        self._names: dict[tirx.Var, str] = {}
        self._sizes: dict[str, OpenSize] = {}
        self._guards: list[Guard] = []
        self._analyzer = sym.Analyzer()
        self._plain = sym.Analyzer()
        self._conditions: list[Any] = []  # conditions of guards
        self._replaced: dict[tirx.Var, Size] = {}  # substitutions implied by guards
        self._equal: list[tuple[Size, Size]] = []

    # ---- names ------------------------------------------------------------------------------------------------------

    def variable(self, name: str, least: int = 1, most: int = MAX_EXTENT) -> tirx.Var:
        """The variable for the dynamic dimension of this name, created on first use."""
        if name not in self._variables:
            called = re.sub(r"[^A-Za-z0-9_]", "_", name) or "size"
            called = f"size_{called}" if called[0].isdigit() else called
            taken = {str(variable.name) for variable in self._names}
            while called in taken:
                called += "_"
            self.adopt(tirx.Var(called, "int64"), name, least, most)
        return self._variables[name]

    def adopt(self, variable: tirx.Var, name: str, least: int = 1, most: int = MAX_EXTENT) -> None:
        """Register a module's variable as the dynamic dimension `name`."""
        self._variables[name], self._names[variable] = variable, name
        self._sizes[name] = OpenSize(name, least, most)
        self._analyzer.update(variable, sym.ConstIntBound(least, most), True)

    def sizes(self) -> OpenSizes:
        """The dynamic dimensions and guards collected so far."""
        return OpenSizes(tuple(self._sizes.values()), tuple(self._guards))

    def extent(self, size: Size) -> Extent | None:
        """A size as plain data; None if it contains other variables or is nested too deeply."""
        return plain_extent(size, self._names)

    def size(self, extent: Extent) -> Size:
        """The expression of an extent, whose names are registered."""
        if isinstance(extent, int):
            return extent
        if isinstance(extent, Named):
            return self._variables[extent.name]
        left, right = self.size(extent.left), self.size(extent.right)
        return self.simplified(_APPLIED[extent.symbol](left, right))

    # ---- what is known ----------------------------------------------------------------------------------------------

    def simplified(self, size: Size) -> Size:
        """A size in its simplest known form: a number if it is determined."""
        if isinstance(size, int | tirx.IntImm):
            return int(size)
        if isinstance(size, tirx.Var) and size not in self._replaced:
            return size
        with self._guarded() as analyzer:
            found = analyzer.simplify(self._replacing(size))
        return int(found) if isinstance(found, tirx.IntImm) else found

    def proves(self, condition: Any) -> bool:
        """Return whether a condition holds for all sizes."""
        if isinstance(condition, bool):
            return condition
        with self._guarded() as analyzer:
            return bool(analyzer.can_prove(self._replacing(condition)))

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sym.Analyzer]:
        """The analyzer with the constraints of the guards. TVM's scopes have to be closed before the analyzer is."""
        with contextlib.ExitStack() as stack:
            for condition in self._conditions:
                stack.enter_context(self._analyzer.constraint_scope(condition))
            yield self._analyzer

    def same(self, a: Size, b: Size) -> bool:
        """Return whether two sizes are known to be equal."""
        a, b = self.simplified(a), self.simplified(b)
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if _alike(a, b):
            return True
        with self._guarded() as analyzer:
            if analyzer.can_prove_equal(expr(a), expr(b)):
                return True
        return any((_alike(a, x) and _alike(b, y)) or (_alike(a, y) and _alike(b, x)) for x, y in self._equal)

    def plainly_same(self, a: Size, b: Size) -> bool:
        """Return whether two sizes are equal by arithmetic alone, as passes after the import find them."""
        return bool(self._plain.can_prove_equal(expr(a), expr(b)))

    def at_least(self, size: Size, least: int) -> bool:
        """Return whether a size is known to be at least a number."""
        if isinstance(size, int | tirx.IntImm):
            return int(size) >= least
        return self.proves(size >= least)

    def least(self, size: Size) -> int:
        """A lower bound of the size."""
        size = self.simplified(size)
        with self._guarded() as analyzer:
            return int(analyzer.const_int_bound(expr(size)).min_value)

    def smaller(self, a: Size, b: Size) -> Size:
        """The smaller of two sizes."""
        return self.simplified(tirx.min(expr(a), expr(b)))

    def larger(self, a: Size, b: Size) -> Size:
        """The larger of two sizes."""
        return self.simplified(tirx.max(expr(a), expr(b)))

    def product(self, sizes: Iterable[Size]) -> Size:
        """The product of sizes."""
        return self.simplified(math.prod(sizes, start=1))

    def quotient(self, whole: Sequence[Size], parts: Sequence[Size]) -> Size:
        """The product of `whole` divided by that of `parts`, with a guard on divisibility if it is not known."""
        above, below = _factors(map(self.simplified, whole)), _factors(map(self.simplified, parts))
        for factor in list(below):
            found = next((other for other in above if _alike(other, factor)), None)
            if found is not None:
                above.remove(found)
                below.remove(factor)
        number, divisor = (math.prod(f for f in fs if isinstance(f, int)) for fs in (above, below))
        if divisor == 0:
            raise ValueError("a size is divided by 0")
        common = math.gcd(number, divisor)
        above, below = ([f for f in fs if not isinstance(f, int)] for fs in (above, below))
        top, bottom = self.product([*above, number // common]), self.product([*below, divisor // common])
        if isinstance(bottom, int) and bottom == 1:
            return top
        rest = self.simplified(tirx.floormod(expr(top), expr(bottom)))
        if not (isinstance(rest, int) and rest == 0):
            self._guard(rest, "==", 0)
        return self.simplified(tirx.floordiv(expr(top), expr(bottom)))

    def multiple(self, size: Size, of: Size) -> int:
        """The integer factor by which `size` is a multiple of `of`, with a guard if that is not known. Raises
        ValueError if it is not an integer for large sizes."""
        large = {variable: tirx.const(_LARGE, "int64") for variable in self._names}
        values = [int(self._plain.simplify(substitute(expr(self.simplified(s)), large))) for s in (size, of)]
        factor = round(values[0] / values[1]) if values[1] > 0 else 0
        if factor < 1:
            raise ValueError(f"{text(size)} elements are not a multiple of {text(of)}")
        self.agreed(size, self.simplified(of * factor))
        return factor

    # ---- requirements -----------------------------------------------------------------------------------------------

    def agreed(self, a: Size, b: Size) -> Size:
        """The common size of `a` and `b`, in the form that all tensors are to use, with a guard if they are not known
        to be equal. Raises ValueError if they cannot be."""
        a, b = self.simplified(a), self.simplified(b)
        if not self.same(a, b):
            self._require_equal(a, b)
            a, b = self.simplified(a), self.simplified(b)
        return b if isinstance(b, int) else a

    def broadcast(self, sizes: Sequence[Size]) -> Size:
        """The extent of an axis along which operands of these extents are broadcast. Dynamic sizes broadcast only
        against the number 1."""
        found: Size = 1
        for size in sizes:
            size = self.simplified(size)
            if isinstance(size, int) and size == 1:
                continue
            found = size if isinstance(found, int) and found == 1 else self.agreed(found, size)
        return found

    def require_at_least(self, size: Size, least: Size) -> None:
        """Require that a size is at least another one, with a guard if that is not known."""
        size, least = self.simplified(size), self.simplified(least)
        if isinstance(size, int) and isinstance(least, int):
            if size < least:
                raise ValueError(f"{size} elements are too few; expected {least} or more")
        elif not self.proves(expr(least) <= expr(size)):
            self._guard(least, "<=", size)

    def require_different(self, size: Size, other: int) -> None:
        """Require that a size differs from a number, with a guard if that is not known."""
        size = self.simplified(size)
        if self.proves(expr(size) < other) or self.proves(expr(size) > other):
            return
        self._guard(size, "!=", other)

    def _require_equal(self, a: Size, b: Size) -> None:
        if isinstance(a, int) and isinstance(b, int):
            raise ValueError(f"{a} elements do not match {b}")
        for one, other in ((a, b), (b, a)):
            # min(x, y) is x where x <= y.
            if isinstance(one, tirx.Min | tirx.Max):
                for chosen, left in ((one.a, one.b), (one.b, one.a)):
                    if self.same(chosen, other):
                        low, high = (chosen, left) if isinstance(one, tirx.Min) else (left, chosen)
                        self._guard(self.simplified(low), "<=", self.simplified(high))
                        return
        self._guard(*self._without_common_factors(a, b))

    def _without_common_factors(self, a: Size, b: Size) -> tuple[Size, str, Size]:
        """The equation without common summands and without common factors, which are positive."""
        terms = _terms(a), _terms(b)
        for term in list(terms[0]):
            found = next((other for other in terms[1] if _alike(other, term)), None)
            if found is not None:
                terms[0].remove(term)
                terms[1].remove(found)
        left, right = (_factors([self.simplified(plus(0, *side))]) for side in terms)
        for factor in list(left):
            found = next((other for other in right if _alike(other, factor)), None)
            if found is not None and self.at_least(factor, 1):
                left.remove(factor)
                right.remove(found)
        numbers = [math.prod(f for f in side if isinstance(f, int)) for side in (left, right)]
        common = math.gcd(*numbers) or 1
        sides = [
            self.product([*(f for f in side if not isinstance(f, int)), number // common])
            for side, number in zip((left, right), numbers, strict=True)
        ]
        return sides[0], "==", sides[1]

    def _guard(self, left: Size, relation: str, right: Size) -> None:
        condition = _CONDITIONS[relation](expr(left), expr(right))
        if self.proves(tirx.Not(condition)):
            raise ValueError(f"{text(left)} {relation} {text(right)} is required, but never holds")
        extents = self.extent(left), self.extent(right)
        if extents[0] is None or extents[1] is None:
            raise ValueError(f"whether {text(left)} {relation} {text(right)} is not known at compile time")
        guard = Guard(extents[0], relation, extents[1], self.why)
        if any((g.left, g.relation, g.right) == (guard.left, relation, guard.right) for g in self._guards):
            return
        self._guards.append(guard)
        if relation == "==":
            self._equal.append((left, right))
            for one, other in ((right, left), (left, right)):
                if isinstance(one, tirx.Var) and one in self._names and one not in variables(expr(other)):
                    self._replace(one, other)
                    return
        self._conditions.append(condition)

    def _replace(self, variable: tirx.Var, size: Size) -> None:
        self._replaced = {
            known: substitute(expr(value), {variable: expr(size)}) for known, value in self._replaced.items()
        }
        self._replaced[variable] = size

    def _replacing(self, size: Size) -> Any:
        if not self._replaced or isinstance(size, int):
            return expr(size)
        return substitute(expr(size), {variable: expr(other) for variable, other in self._replaced.items()})


_CONDITIONS = {"==": tirx.EQ, "!=": tirx.NE, "<=": tirx.LE}
_APPLIED: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: tirx.floordiv(expr(a), expr(b)),
    "%": lambda a, b: tirx.floormod(expr(a), expr(b)),
    "min": lambda a, b: tirx.min(expr(a), expr(b)),
    "max": lambda a, b: tirx.max(expr(a), expr(b)),
}


def expr(size: Size) -> Any:
    """A size as a TVM expression."""
    return tirx.const(size, "int64") if isinstance(size, int) else size


def plus(*sizes: Size) -> Size:
    """The sum of sizes."""
    total: Size = sizes[0]
    for size in sizes[1:]:
        total = total + size
    return total


def whole(size: Size) -> Size:
    """An extent of a shape, with constants as Python integers."""
    return int(size) if isinstance(size, int | tirx.IntImm) else size


def extents_of(tensor: relax.Expr) -> list[Size]:
    """The shape of a tensor, with constants as Python integers."""
    return [whole(extent) for extent in tensor.ty.shape]


def text(size: Size) -> str:
    """A size as text for messages."""
    return str(whole(size)).replace("T.int64", "").replace("T.", "")


def _alike(a: Size, b: Size) -> bool:
    return a == b if isinstance(a, int) and isinstance(b, int) else bool(tvm_ffi.structural_equal(expr(a), expr(b)))


def _terms(size: Size) -> list[Size]:
    found: list[Size] = []
    left = [size]
    while left:
        term = whole(left.pop())
        if isinstance(term, tirx.Add):
            left += [term.b, term.a]
        else:
            found.append(term)
    return found


def _factors(sizes: Iterable[Size]) -> list[Size]:
    found: list[Size] = []
    left = list(sizes)
    while left:
        size = whole(left.pop())
        if isinstance(size, tirx.Mul):
            left += [size.a, size.b]
        else:
            found.append(size)
    return found
