"""The intermediate representation of Relay: a small immutable graph, the same for text and JSON.

Shared expressions are one object, so that `%0 = ...;`, `let` and JSON's node numbers all become plain references. Names
remain only for inputs and functions; `place` is the line of the text, or the number of the JSON node.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# (major, minor), such as (0, 14); None if unknown.
Release = tuple[int, int] | None


@dataclass(frozen=True)
class TensorType:
    """Shape in elements, None for a dynamic dimension, and TVM's name of the element type."""

    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        return f"({', '.join('?' if extent is None else str(extent) for extent in self.shape)}) {self.dtype}"


@dataclass(frozen=True)
class TupleType:
    """A tuple of values."""

    fields: tuple[Type, ...]

    @functools.cached_property
    def parts(self) -> int:
        """Number of types within it, including those of nested tuples."""
        return sum(field.parts if isinstance(field, TupleType) else 1 for field in self.fields)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


@dataclass(frozen=True)
class OtherType:
    """A type other than tensors and tuples: functions, references, data types. It is never checked."""

    name: str

    def __str__(self) -> str:
        return self.name


Type = TensorType | TupleType | OtherType


@dataclass(frozen=True, eq=False)
class Expr:
    """The common part of all expressions. `type` is the one stated by the file, or None."""

    place: int
    type: Type | None


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """A parameter of a function, or a free variable of a bare expression."""

    name: str


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """A value inside the model."""

    value: np.ndarray


@dataclass(frozen=True, eq=False)
class Missing(Expr):
    """A constant that the text refers to, such as meta[relay.Constant][0], but does not contain."""

    name: str


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """A call of an operator by its name, or of a function. `attrs`: only those stated by the file. `node`: the node
    name in the model that was converted to Relay, "" if unknown."""

    op: str | Expr
    args: tuple[Expr, ...]
    attrs: Mapping[str, Any]
    node: str = ""


@dataclass(frozen=True, eq=False)
class MakeTuple(Expr):
    """A tuple of expressions."""

    fields: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Get(Expr):
    """One field of a tuple."""

    value: Expr
    index: int


@dataclass(frozen=True, eq=False)
class If(Expr):
    """A conditional expression."""

    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A function; `attrs` such as Primitive and Composite are set by passes."""

    params: tuple[Var, ...]
    body: Expr
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class GlobalRef(Expr):
    """A reference to a function of the module by its name."""

    name: str


@dataclass(frozen=True)
class Module:
    """Functions by name. `release`: the TVM release that wrote the module; `unit`: what `place` counts, "line" or
    "node"."""

    functions: Mapping[str, Function]
    release: Release
    unit: str
    free: tuple[Var, ...] = field(default=())

    def at(self, expr: Expr) -> str:
        """The location of an expression, for messages."""
        return f"{self.unit} {expr.place}"


def children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that have to be evaluated before `expr`, without the body of a function."""
    if isinstance(expr, Call):
        return (*expr.args, expr.op) if isinstance(expr.op, Expr) else expr.args
    if isinstance(expr, MakeTuple):
        return expr.fields
    if isinstance(expr, Get):
        return (expr.value,)
    if isinstance(expr, If):
        return (expr.condition, expr.then, expr.other)
    return ()


def in_order(root: Expr, known: Container[int] = ()) -> Iterator[Expr]:
    """`root` and its subexpressions, each once, operands first, without those whose id is in `known`. Not recursive."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            yield expr
            continue
        if id(expr) in seen or id(expr) in known:
            continue
        seen.add(id(expr))
        stack.append((expr, True))
        stack.extend((child, False) for child in reversed(children(expr)))


# ---- releases -------------------------------------------------------------------------------------------------------
#
# Changes in the meaning of Relay files between TVM's releases, and the release of each. If a file does not state its
# release (text without metadata does not), the shapes and numbers of operands decide; if they are inconclusive, the
# newer meaning is assumed. Text of 0.6 and earlier is identified by its first line, v0.0.4.

# Before this release, nn.batch_matmul(a, b) transposes b; since then, transpose_a and transpose_b decide.
BATCH_MATMUL_FLAGS = (0, 8)
# Before, a vector as the condition of where selects rows; since then, it broadcasts along the last axis.
WHERE_SPREADS = (0, 8)
# Before, the weight layout of a transposed convolution is named OI... although inputs come first; since then, IO....
INPUTS_FIRST = (0, 12)
# Before, image.resize aligns corners by default; since then, it has a coordinate_transformation_mode.
RESIZE_MODES = (0, 7)


def before(release: Release, change: tuple[int, int]) -> bool:
    """Return whether a file is known to be from before a change."""
    return release is not None and release < change


def since(release: Release, change: tuple[int, int]) -> bool:
    """Return whether a file is known to be from the release of a change or a later one."""
    return release is not None and release >= change
