"""What the translation of one call has to work with: its operands as Relax, its attributes, and how to emit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from ...lowering.positions import checked_positions
from .tree import Release, Type

# What a few bytes of a file may ask for: elements of a constant, results of one operator, dimensions of size 1.
MAX_CONSTANT = 2**20
MAX_PARTS = 10_000
MAX_NEW_AXES = 32

# A value of Relay: a tensor, or a tuple of values.
Value = Any


@dataclass(frozen=True)
class Operands:
    """One call. `args`: tensors of Relax, tuples for Relay's; `attrs`: with the defaults filled in; `stated`: the type
    that the file gives its result, if it does; `made`: what it became so far, by the names of Relax's operators and of
    functions of tensor expressions."""

    op: str
    args: tuple[Value, ...]
    attrs: dict[str, Any]
    builder: relax.BlockBuilder
    release: Release
    stated: Type | None
    made: list[str]

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    def tensor(self, place: int) -> relax.Expr:
        """The operand at `place`, which has to be a tensor. ValueError."""
        if place >= len(self.args):
            raise ValueError(f"it has {len(self.args)} operands; accepted: {place + 1} or more")
        if not isinstance(self.args[place], relax.Expr):
            raise ValueError(f"operand {place + 1} is not a tensor; accepted: a tensor")
        return self.args[place]

    def tensors(self, place: int) -> list[relax.Expr]:
        """The fields of the tuple at `place`, all tensors. ValueError."""
        fields = self.args[place] if place < len(self.args) else None
        if not isinstance(fields, tuple) or not all(isinstance(field, relax.Expr) for field in fields):
            raise ValueError(f"operand {place + 1} is not a tuple of tensors; accepted: one")
        if not fields:
            raise ValueError(f"operand {place + 1} is an empty tuple; accepted: one tensor or more")
        return list(fields)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """A variable that holds `expr`."""
        self.made.extend(_names(expr))
        return self.builder.emit(expr)

    def te(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Expr:
        """What a function on tensor expressions makes of `args`."""
        name = self.op.replace(".", "_")
        self.made.append(f"a kernel {name}")
        return self.builder.emit_te(compute, *args, primfunc_name_hint=name, **kwargs)

    def positions(
        self, indices: relax.Expr, extents: int | list[int], *, wraps: bool = True, called: str = "index"
    ) -> relax.Expr:
        """`indices` as positions in axes of `extents`, which the model checks when it runs. ModelFormatError where they
        are constants that are none."""
        return checked_positions(self.builder, indices, extents, self.op, wraps=wraps, called=called)

    def within(self, value: Any, count: int, what: str) -> int:
        """An attribute that is a place among `count` of them. ValueError."""
        number = whole(value)
        if not 0 <= number < count:
            raise ValueError(f"{what} = {number}; accepted: 0 to {count - 1}")
        return number

    def dims(self, name: str, count: int) -> list[int]:
        """An attribute of one number or of `count` of them. ValueError."""
        given = numbers(self.attrs[name])
        if len(given) not in (1, count):
            raise ValueError(f"{name} has {len(given)} numbers; accepted: 1 or {count}")
        return given * count if len(given) == 1 else given

    def pads(self, count: int) -> list[int]:
        """Padding of `count` dimensions before and behind each: first all before, then all behind. ValueError."""
        given = numbers(self.attrs["padding"])
        if len(given) == 1:
            return given * (2 * count)
        if len(given) == count:
            return given * 2
        if len(given) == 2 * count:
            return given
        raise ValueError(f"padding has {len(given)} numbers; accepted: 1, {count} or {2 * count}")

    def known(self, place: int, what: str) -> np.ndarray:
        """The value of an operand that has to be a constant. ValueError."""
        found = value_of(self.tensor(place))
        if found is None:
            raise ValueError(f"{what} (operand {place + 1}) is not known before the run; accepted: a constant")
        return found


def numbers(given: Any) -> list[int]:
    """An attribute as a list of integers: one number is a list of one. ValueError."""
    listed = given if isinstance(given, list | tuple) else [given]
    try:
        return [whole(value) for value in listed]
    except TypeError:
        raise ValueError(f"{given!r} where integers are expected") from None


def whole(value: Any) -> int:
    """An integer that may be written as a float. ValueError."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | int) and -(2**63) <= value < 2**63:
        return int(value)
    raise ValueError(f"{value!r} where an integer is expected")


def shape_of(tensor: relax.Expr) -> list[int]:
    """The extents of a tensor. ValueError where one is open."""
    shape = tensor.ty.shape
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise ValueError("an operand's shape is known at run time only; accepted: fixed shapes")
    return [int(extent) for extent in shape]


def dtype_of(tensor: relax.Expr) -> str:
    """TVM's name of a tensor's type."""
    return str(tensor.ty.dtype)


def is_integer(tensor: relax.Expr) -> bool:
    """Whether a tensor holds integers."""
    return dtype_of(tensor).startswith(("int", "uint"))


def value_of(tensor: relax.Expr) -> np.ndarray | None:
    """The array in a constant; None of anything else."""
    if isinstance(tensor, tvm.ir.GenericConst) and isinstance(tensor.value, tvm.runtime.Tensor):
        found: np.ndarray = tensor.value.numpy()
        return found
    return None


def bounded(count: int, what: str, most: int = MAX_CONSTANT) -> int:
    """`count`, if a file may ask for so many. ValueError."""
    if count > most:
        raise ValueError(f"{what} = {count}; accepted: up to {most}")
    return count


def constant(value: Any, dtype: str) -> relax.Expr:
    """A constant tensor."""
    return relax.const(np.asarray(value, dtype=dtype), dtype)


def axis_in(axis: Any, rank: int, last: int = 0) -> int:
    """An axis counted from the front; `last` more than the rank are allowed. ValueError."""
    number = whole(axis)
    size = rank + last
    if not -size <= number < size:
        raise ValueError(f"axis {number} of {rank} dimensions; accepted: {-size} to {size - 1}")
    return number % size if size else 0


def along(vector: relax.Expr, axis: int, rank: int) -> relax.Expr:
    """A vector shaped so that it runs along `axis` of a tensor of `rank` dimensions; one number as a scalar."""
    count = math.prod(shape_of(vector))
    if count == 1:
        return relax.op.reshape(vector, [])
    return relax.op.reshape(vector, [count if place == axis else 1 for place in range(rank)])


def _names(expr: relax.Expr) -> list[str]:
    """The operators of Relax in an expression, inner ones first."""
    if isinstance(expr, relax.Tuple):
        return [name for field in expr.fields for name in _names(field)]
    if not isinstance(expr, relax.Call):
        return []
    inner = [name for arg in expr.args for name in _names(arg)]
    return [*inner, str(getattr(expr.op, "name", "call"))]
