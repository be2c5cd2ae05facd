"""Relay as it is read: a small immutable graph, the same from text and from JSON.

What is shared is one object, so that `%0 = ...;`, `let` and JSON's node numbers all become plain references. Names are
gone but for inputs and functions; `place` is the line of the text, or the number of the JSON node.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# (major, minor), as (0, 14); None where nothing tells.
Release = tuple[int, int] | None


@dataclass(frozen=True)
class TensorType:
    """Shape in elements, None for an open dimension, and TVM's name of the type of an element."""

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
        """Types within it, those of tuples in tuples counted."""
        return sum(field.parts if isinstance(field, TupleType) else 1 for field in self.fields)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


@dataclass(frozen=True)
class OtherType:
    """What is no value of tensors: functions, references, data types. It is never checked."""

    name: str

    def __str__(self) -> str:
        return self.name


Type = TensorType | TupleType | OtherType


@dataclass(frozen=True, eq=False)
class Expr:
    """What every expression has. `type`: as the file states it, or None."""

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
    """A constant that the text names, as in meta[relay.Constant][0], and does not hold."""

    name: str


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """A call of an operator by its name, or of a function. `attrs`: only what the file states. `node`: what the model
    that was converted to Relay called it, "" where the file does not say."""

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
    """One of two expressions."""

    condition: Expr
    then: Expr
    other: Expr


@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A function; `attrs` as Primitive and Composite say what a pass made of it."""

    params: tuple[Var, ...]
    body: Expr
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class GlobalRef(Expr):
    """A function of the module by its name."""

    name: str


@dataclass(frozen=True)
class Module:
    """Functions by name. `release`: of the TVM that wrote it; `unit`: what places count, "line" or "node"."""

    functions: Mapping[str, Function]
    release: Release
    unit: str
    free: tuple[Var, ...] = field(default=())

    def at(self, expr: Expr) -> str:
        """Where an expression stands, for messages."""
        return f"{self.unit} {expr.place}"


def children(expr: Expr) -> tuple[Expr, ...]:
    """What has to be known before `expr` is; the body of a function is not among it."""
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
    """`root` and what it is made of, each once, operands first; what `known` has by id is left out. No recursion."""
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
# What changed between TVM's releases in the meaning of a Relay file, and in which release. Where a file does not tell
# its release (text without metadata does not), shapes and numbers of operands decide, and where they cannot, the newer
# meaning holds. Text of 0.6 and before tells by its first line, v0.0.4.

# nn.batch_matmul(a, b) is a @ b transposed before, and what transpose_a and transpose_b say from here on.
BATCH_MATMUL_FLAGS = (0, 8)
# A vector as the condition of where chooses rows before, and is spread along the last axis from here on.
WHERE_SPREADS = (0, 8)
# The layout of a transposed convolution's weight is called OI... before, though inputs come first; IO... from here on.
INPUTS_FIRST = (0, 12)
# image.resize aligns corners unless told otherwise before; it has a coordinate_transformation_mode from here on.
RESIZE_MODES = (0, 7)


def before(release: Release, change: tuple[int, int]) -> bool:
    """Whether a file is known to be from before a change."""
    return release is not None and release < change


def since(release: Release, change: tuple[int, int]) -> bool:
    """Whether a file is known to be from the release of a change or a later one."""
    return release is not None and release >= change
