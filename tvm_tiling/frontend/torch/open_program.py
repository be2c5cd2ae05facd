"""The dynamic dimensions of an exported program: PyTorch's symbols as variables, and the program's conditions on them.

PyTorch records the shape of every result as an expression of its symbols, and its assumptions while tracing as
conditions on them. Both are read; no shapes are inferred here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tvm import tirx

from ...errors import ModelFormatError
from ...limits import MAX_EXTENT
from ...sizes import Extent, MayBeEmpty, Shape
from ..open_shapes import OpenShapes, Size, expr
from .shapes import OpenExtent, given_sizes, open_extents, symbol_values
from .user_values import UserInput


class NoSizeError(ValueError):
    """A PyTorch expression that is not arithmetic on the sizes of inputs."""


@dataclass(frozen=True)
class _Comparison:
    """A comparison as a guard, and as a TVM expression."""

    require: Callable[[OpenShapes, Size, Size], Any]
    holds: Callable[[Any, Any], Any]


@dataclass
class OpenProgram:
    """`shapes`: the dynamic dimensions; `symbols`: PyTorch's symbols by name; `own`: input extents that are treated as
    dimensions of their own although PyTorch computes them from symbols, by PyTorch's text."""

    shapes: OpenShapes = field(default_factory=OpenShapes)
    symbols: dict[str, Size] = field(default_factory=dict)
    own: dict[str, Size] = field(default_factory=dict)

    def knows(self, record: Any) -> bool:
        """Return whether all dynamic extents of a result record are determined by the sizes of inputs."""
        if isinstance(record, tuple | list):
            return all(map(self.knows, record))
        if isinstance(record, torch.Tensor):
            return all(map(self.knows, record.shape))
        if isinstance(record, torch.SymInt):
            with contextlib.suppress(NoSizeError):
                self.size(record)
                return True
            return False
        return not isinstance(record, torch.SymFloat | torch.SymBool)

    def size(self, extent: int | torch.SymInt) -> Size:
        """Convert an extent, or another integer, of PyTorch."""
        if isinstance(extent, int):
            return extent
        return self.shapes.simplified(self._converted(extent.node.expr))

    def stated(self, shape: Sequence[int | torch.SymInt]) -> tuple[Size, ...]:
        """The shape of an input, ignoring what guards say about its extents."""
        return tuple(map(self._stated, shape))

    def _stated(self, extent: int | torch.SymInt) -> Size:
        if isinstance(extent, int):
            return extent
        text = str(extent.node.expr)
        return self.own[text] if text in self.own else self._converted(extent.node.expr)

    def plain(self, shape: Sequence[int | torch.SymInt]) -> Shape:
        """The shape of an input as plain data."""
        found: list[Extent] = []
        for extent in self.stated(shape):
            plain = self.shapes.extent(extent)
            assert plain is not None
            found.append(plain)
        return tuple(found)

    def _converted(self, found: Any) -> Size:
        if found.is_Integer:
            return int(found)
        if found.is_Symbol and str(found) in self.symbols:
            return self.symbols[str(found)]
        rule = _RULES.get(type(found).__name__)
        if rule is None:
            raise NoSizeError(str(found))
        return rule(self.shapes, [self._converted(part) for part in found.args])

    def require(self, condition: Any) -> None:
        """Add a guard for a PyTorch condition. Raises ModelFormatError if it never holds, NoSizeError if it is not a
        comparison."""
        kind = type(condition).__name__
        if kind == "BooleanTrue":
            return
        if kind == "And":
            for part in condition.args:
                self.require(part)
            return
        if kind == "Or":
            left = [part for part in condition.args if not self._never(part)]
            if not any(map(self._always, left)):
                if len(left) != 1:
                    raise NoSizeError(str(condition))
                self.require(left[0])
            return
        comparison = self._comparison(condition)
        if comparison is None:
            raise NoSizeError(str(condition))
        comparison[0].require(self.shapes, *comparison[1:])

    def _always(self, condition: Any) -> bool:
        found = self._comparison(condition)
        return found is not None and self.shapes.proves(found[0].holds(*map(expr, found[1:])))

    def _never(self, condition: Any) -> bool:
        found = self._comparison(condition)
        return found is not None and self.shapes.proves(tirx.Not(found[0].holds(*map(expr, found[1:]))))

    def _comparison(self, condition: Any) -> tuple[_Comparison, Size, Size] | None:
        rule = _COMPARISONS.get(type(condition).__name__)
        return None if rule is None else (rule, *map(self._converted, condition.args))


def _power(shapes: OpenShapes, parts: list[Size]) -> Size:
    base, exponent = parts
    if not isinstance(exponent, int) or not 0 < exponent < 8:
        raise NoSizeError(f"a power of {exponent}")
    return shapes.product([base] * exponent)


def _divided(function: Callable[..., Any]) -> Callable[[OpenShapes, list[Size]], Size]:
    def divide(shapes: OpenShapes, parts: list[Size]) -> Size:
        top, bottom = parts
        if not shapes.at_least(bottom, 1):
            raise NoSizeError("a divisor that may be 0")
        return function(expr(top), expr(bottom))

    return divide


def _folded(pick: Callable[[OpenShapes, Size, Size], Size]) -> Callable[[OpenShapes, list[Size]], Size]:
    def fold(shapes: OpenShapes, parts: list[Size]) -> Size:
        found = parts[0]
        for part in parts[1:]:
            found = pick(shapes, found, part)
        return found

    return fold


# By class names of sympy and of PyTorch.
_RULES: dict[str, Callable[[OpenShapes, list[Size]], Size]] = {
    "Add": _folded(lambda shapes, a, b: a + b),
    "CleanDiv": _divided(tirx.floordiv),
    "FloorDiv": _divided(tirx.floordiv),
    "Max": _folded(lambda shapes, a, b: shapes.larger(a, b)),
    "Min": _folded(lambda shapes, a, b: shapes.smaller(a, b)),
    "Mod": _divided(tirx.floormod),
    "Mul": _folded(lambda shapes, a, b: a * b),
    "Pow": _power,
    "PythonMod": _divided(tirx.floormod),
}
_COMPARISONS = {
    "Equality": _Comparison(lambda shapes, a, b: shapes.agreed(a, b), tirx.EQ),
    "GreaterThan": _Comparison(lambda shapes, a, b: shapes.require_at_least(a, b), tirx.GE),
    "LessThan": _Comparison(lambda shapes, a, b: shapes.require_at_least(b, a), tirx.LE),
    "StrictGreaterThan": _Comparison(lambda shapes, a, b: shapes.require_at_least(a, b + 1), tirx.GT),
    "StrictLessThan": _Comparison(lambda shapes, a, b: shapes.require_at_least(b, a + 1), tirx.LT),
    "Unequality": _Comparison(lambda shapes, a, b: shapes.require_different(a, b), tirx.NE),
}


def open_program(
    program: torch.export.ExportedProgram,
    inputs: Sequence[UserInput],
    batch: int | None,
    dims: Mapping[str, int],
    where: str,
    may_be_empty: MayBeEmpty,
) -> OpenProgram | None:
    """The dynamic dimensions of a program; None if `batch` and `dims` leave none. Raises ModelFormatError if they do
    not match, or the program has conditions that cannot be expressed on sizes."""
    opened = list(open_extents(inputs))
    if not opened:
        return None
    stated = symbol_values(opened, given_sizes(opened, batch, dims, where), where) if dims or batch is not None else {}
    values = {str(symbol): int(value) for symbol, value in stated.items()}
    if all(str(symbol) in values for size in opened for symbol in size.expr.free_symbols):
        return None
    found = OpenProgram(symbols=dict(values))
    ranges = {str(symbol): _limits(values) for symbol, values in program.range_constraints.items()}
    for name, value in values.items():
        least, most = ranges.get(name, _ANY)
        if not least <= value <= most:
            raise ModelFormatError(f"{where}: a size is {value}; the program accepts {max(1, least)} to {most}")
    names = _named(opened)
    leading = {names.get(size.symbol, size.place) for size in opened if size.axis == 0}
    for name, size in names.items():
        if name not in values:
            least, most = ranges.get(name, _ANY)
            found.symbols[name] = found.shapes.variable(size, max(least, may_be_empty.least(size, leading)), most)
    try:
        _computed(found, opened, ranges, may_be_empty)
        require_traced(found, inputs)
    except NoSizeError as error:
        raise ModelFormatError(
            f"{where}: it depends on its dynamic dimensions by {error}; expected arithmetic on sizes of axes"
        ) from None
    except ValueError as error:
        raise ModelFormatError(f"{where}: {found.shapes.why}: {error}") from None
    return found


_ANY = (0, MAX_EXTENT)


def _limits(values: Any) -> tuple[int, int]:
    """The range of a symbol, limited to valid sizes."""
    lower, upper = values.lower, values.upper
    most = int(upper) if getattr(upper, "is_Integer", False) or isinstance(upper, int) else MAX_EXTENT
    return max(0, int(lower)), min(most, MAX_EXTENT)


def _named(opened: Iterable[OpenExtent]) -> dict[str, str]:
    """Names for the symbols that are extents by themselves: those in dynamic_shapes, or else their first location."""
    names: dict[str, str] = {}
    for size in opened:
        if size.expr.is_Symbol and (size.name or size.symbol not in names):
            names[size.symbol] = size.name or size.place
    taken: set[str] = set()
    for symbol, name in names.items():
        if name in taken:
            names[symbol] = next(s.place for s in opened if s.symbol == symbol)
        taken.add(names[symbol])
    return names


def _computed(
    found: OpenProgram,
    opened: Sequence[OpenExtent],
    ranges: Mapping[str, tuple[int, int]],
    may_be_empty: MayBeEmpty,
) -> None:
    """Define symbols that occur only in computed extents, such as multiples, and add guards that computed extents are
    sizes."""
    for size in opened:
        found.shapes.why = f"input {size.input!r}"
        left = [symbol for symbol in size.expr.free_symbols if str(symbol) not in found.symbols]
        if not left:
            if not size.expr.is_Symbol:
                found.shapes.require_at_least(found._converted(size.expr), 0 if may_be_empty else 1)
            continue
        factor, rest = size.expr.as_coeff_Mul()
        if len(left) > 1 or rest != left[0] or not factor.is_Integer or int(factor) < 1:
            raise NoSizeError(f"{size.expr}, whose symbols are not sizes of axes")
        least, most = ranges.get(str(left[0]), _ANY)
        least = max(least, may_be_empty.least(size.place, {size.place} if size.axis == 0 else ()))
        limits = (min(int(factor) * limit, MAX_EXTENT) for limit in (least, most))
        variable = found.shapes.variable(size.place, *limits)
        found.own[str(size.expr)] = variable
        found.symbols[str(left[0])] = found.shapes.quotient([variable], [int(factor)])


def require_traced(found: OpenProgram, inputs: Iterable[UserInput]) -> None:
    """Add guards for PyTorch's assumptions while tracing. Raises NoSizeError for a condition that is not a
    comparison."""
    env = next(
        extent.node.shape_env for given in inputs for extent in given.value.shape if isinstance(extent, torch.SymInt)
    )
    if env is None:
        return
    found.shapes.why = "as PyTorch traced it"
    for guard in env.guards:
        condition = env.replace(guard.expr)
        if all(str(symbol) in found.symbols for symbol in condition.free_symbols):
            found.require(condition)
