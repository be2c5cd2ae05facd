"""Dynamic dimensions: names, arithmetic, and constraints.

Plain data without TVM. An extent is an integer, or an expression of dynamic dimensions by name. In JSON a name is a
string, a number a number, and an operation a list of its symbol and two operands, as in ["*", "batch", ["+", "tokens",
1]].
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .errors import WorkloadError
from .limits import MAX_EXTENT

APART = ".."  # between the ends of a range in text
USUAL = 128  # default value of a dynamic dimension for decisions
MOST_DEPTH = 64  # operations within operations
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "min": min,
    "max": max,
}
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
}


@dataclass(frozen=True)
class Range:
    """Sizes from `first` to `last`, which is None if unbounded."""

    first: int
    last: int | None = None

    @classmethod
    def of(cls, what: str, given: Range | tuple[int, int]) -> Range:
        """A range, or a pair of its ends. Raises WorkloadError, starting with `what`, for anything else."""
        ends = (given.first, given.last) if isinstance(given, Range) else given
        if isinstance(ends, tuple) and len(ends) == 2 and type(ends[0]) is int and ends[0] >= 1:
            first, last = ends
            if last is None or (type(last) is int and first <= last <= MAX_EXTENT):
                return cls(first, last)
        raise WorkloadError(f"{what} = {given!r}; expected first and last size of a range, as in (1, 512)")

    def __contains__(self, size: int) -> bool:
        return self.first <= size and (self.last is None or size <= self.last)

    def covers(self, other: Range) -> bool:
        """Return whether another range lies completely within this one."""
        ends = self.last is None or (other.last is not None and other.last <= self.last)
        return self.first <= other.first and ends

    def __str__(self) -> str:
        return f"{self.first}{APART}" + ("" if self.last is None else str(self.last))


@dataclass(frozen=True)
class OpenSize:
    """A dynamic dimension of the inputs, with `least` to `most` elements."""

    name: str
    least: int = 1
    most: int = MAX_EXTENT


@dataclass(frozen=True)
class MayBeEmpty:
    """The dynamic dimensions that may be 0: those of these `names`, and with `leading` the first dimensions of
    inputs."""

    names: frozenset[str] = frozenset()
    leading: bool = False

    def __bool__(self) -> bool:
        return bool(self.names) or self.leading

    def least(self, name: str, leading: Collection[str]) -> int:
        """The minimum of the dimension of this name; `leading`: names of first dimensions."""
        return 0 if name in self.names or (self.leading and name in leading) else 1


@dataclass(frozen=True)
class Named:
    """The dynamic dimension of this name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Operation:
    """`symbol` is "+", "-", "*", "//", "%", "min" or "max"; divisions round down."""

    symbol: str
    left: Extent
    right: Extent

    def __str__(self) -> str:
        if self.symbol in ("min", "max"):
            return f"{self.symbol}({self.left}, {self.right})"
        sides = (
            f"({side})" if isinstance(side, Operation) and side.symbol not in ("min", "max") else str(side)
            for side in (self.left, self.right)
        )
        return f" {self.symbol} ".join(sides)


Extent: TypeAlias = int | Named | Operation
Shape: TypeAlias = tuple[Extent, ...]


@dataclass(frozen=True)
class Guard:
    """A constraint on the sizes of a run: `left` and `right` in the `relation` "==", "!=" or "<="; `why` names the
    operator."""

    left: Extent
    relation: str
    right: Extent
    why: str = ""

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right}" + (f" ({self.why})" if self.why else "")

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether it holds for these sizes."""
        return _RELATIONS[self.relation](evaluated(self.left, sizes), evaluated(self.right, sizes))


@dataclass(frozen=True)
class OpenSizes:
    """The dynamic dimensions of a model and their constraints."""

    sizes: tuple[OpenSize, ...] = ()
    guards: tuple[Guard, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sizes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dimensions, in order."""
        return tuple(size.name for size in self.sizes)

    def usual(self, leading: Collection[str]) -> dict[str, int]:
        """The sizes used for decisions, and for example inputs: 1 for first dimensions, USUAL for others, clamped to
        their ranges."""
        return {size.name: max(size.least, min(size.most, 1 if size.name in leading else USUAL)) for size in self.sizes}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the inverse of from_dict()."""
        return {
            "sizes": [[size.name, size.least, size.most] for size in self.sizes],
            "guards": [[to_plain(g.left), g.relation, to_plain(g.right), g.why] for g in self.guards],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> OpenSizes:
        """The dimensions for the result of to_dict() after a JSON round trip. Raises ValueError or TypeError for
        anything else."""
        sizes = tuple(OpenSize(str(name), int(least), int(most)) for name, least, most in plain.get("sizes", ()))
        guards = tuple(
            Guard(from_plain(left), str(relation), from_plain(right), str(why))
            for left, relation, right, why in plain.get("guards", ())
        )
        known = {size.name for size in sizes}
        if strange := {*names_of(side for g in guards for side in (g.left, g.right))} - known:
            raise ValueError(f"a guard refers to the unknown size {min(strange)[:40]!r}")
        if any(guard.relation not in _RELATIONS for guard in guards):
            raise ValueError("a guard has a relation other than ==, != and <=")
        return cls(sizes, guards)

    def require(self, sizes: Mapping[str, int]) -> None:
        """Raise WorkloadError if a size is out of its range or a guard does not hold."""
        for size in self.sizes:
            if not size.least <= sizes[size.name] <= size.most:
                raise WorkloadError(
                    f"size {size.name!r} of the inputs is {sizes[size.name]}; expected {size.least} to {size.most}"
                )
        for guard in self.guards:
            if not guard.holds(sizes):
                listed = ", ".join(f"{name} = {value}" for name, value in sizes.items())
                raise WorkloadError(f"the inputs have {listed}, but the model requires {guard}")

    def bound(self, shapes: Sequence[Shape], given: Sequence[tuple[int, ...]], names: Sequence[str]) -> dict[str, int]:
        """The size of every name if inputs called `names`, of `shapes`, have the shapes `given`, checked as by
        require(). Raises WorkloadError with the input that has another shape."""
        sizes: dict[str, int] = {}
        for shape, found in zip(shapes, given, strict=True):
            for extent, number in zip(shape, found, strict=False):
                if isinstance(extent, Named):
                    sizes.setdefault(extent.name, number)
        for name, shape, found in zip(names, shapes, given, strict=True):
            if len(shape) != len(found) or any(
                evaluated(extent, sizes) != number for extent, number in zip(shape, found, strict=True)
            ):
                known = "".join(f", {size} = {number}" for size, number in sizes.items())
                raise WorkloadError(f"input {name!r} has shape {found}, but the model takes {shape_text(shape)}{known}")
        self.require(sizes)
        return sizes


def evaluated(extent: Extent, sizes: Mapping[str, int]) -> int:
    """The value of an extent. Raises WorkloadError if it divides by 0."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, Named):
        return sizes[extent.name]
    left, right = evaluated(extent.left, sizes), evaluated(extent.right, sizes)
    if right == 0 and extent.symbol in ("//", "%"):
        raise WorkloadError(
            f"size {extent} divides by {extent.right}, which is 0 for these inputs; expected other sizes"
        )
    return _OPERATIONS[extent.symbol](left, right)


def names_of(extents: Iterable[Extent]) -> Iterator[str]:
    """The names in extents, in order, with repetitions."""
    for extent in extents:
        if isinstance(extent, Named):
            yield extent.name
        elif isinstance(extent, Operation):
            yield from names_of((extent.left, extent.right))


def leading_of(shapes: Iterable[Shape]) -> tuple[str, ...]:
    """The names of first dimensions, in order."""
    first = (shape[0] for shape in shapes if shape)
    return tuple(dict.fromkeys(extent.name for extent in first if isinstance(extent, Named)))


def fixed(shape: Shape) -> tuple[int, ...] | None:
    """A shape whose extents are numbers; None for others."""
    numbers = tuple(extent for extent in shape if isinstance(extent, int))
    return numbers if len(numbers) == len(shape) else None


def shape_text(shape: Shape) -> str:
    """A shape as displayed in a message."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def to_plain(extent: Extent) -> Any:
    """An extent as plain values for JSON; the inverse of from_plain()."""
    if isinstance(extent, Operation):
        return [extent.symbol, to_plain(extent.left), to_plain(extent.right)]
    return extent.name if isinstance(extent, Named) else extent


def from_plain(plain: Any, depth: int = 0) -> Extent:
    """The extent for the result of to_plain() after a JSON round trip. Raises ValueError for anything else."""
    if type(plain) is int:
        return plain
    if isinstance(plain, str):
        return Named(plain)
    if isinstance(plain, list) and len(plain) == 3 and plain[0] in _OPERATIONS and depth < MOST_DEPTH:
        return Operation(plain[0], from_plain(plain[1], depth + 1), from_plain(plain[2], depth + 1))
    raise ValueError(f"{str(plain)[:40]!r} is not a size")
