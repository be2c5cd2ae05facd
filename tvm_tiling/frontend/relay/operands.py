"""The context for translating one call: its operands in Relax, its attributes, and how to emit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from ...figures import quantity
from ...lowering.positions import checked_positions
from ..fitting import cast
from ..open_shapes import OpenShapes, Size, text
from ..open_shapes import whole as plain
from ..size_tensors import as_tensor
from ..size_values import SizeValue, of_constant, size_value
from .tree import Release, Type

# Limits on what a few bytes of a file may request: elements of a constant, results of one operator, new axes.
MAX_CONSTANT = 2**20
MAX_PARTS = 10_000
MAX_NEW_AXES = 32

# A value of Relay: a tensor, the sizes it is known as, or a tuple of values.
Value = Any


class OpenOperand(ValueError):
    """A static shape was requested of a tensor of dynamic shape."""


@dataclass(frozen=True)
class Operands:
    """One call. `args`: Relax tensors or their known sizes, tuples for Relay's tuples; `attrs`: with defaults filled
    in; `stated`: the result type given by the file, if any; `made`: the Relax operators and tensor expression kernels
    emitted so far; `shapes`: the known facts about dynamic dimensions."""

    op: str
    args: tuple[Value, ...]
    attrs: dict[str, Any]
    builder: relax.BlockBuilder
    release: Release
    stated: Type | None
    made: list[str]
    shapes: OpenShapes

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    def tensor(self, place: int) -> relax.Expr:
        """The operand at `place`, which has to be a tensor. Raises ValueError."""
        if place >= len(self.args):
            raise ValueError(f"it has {quantity(len(self.args), 'operand')}; expected {place + 1} or more")
        found = self.as_tensor(self.args[place])
        if not isinstance(found, relax.Expr):
            raise ValueError(f"operand {place + 1} is not a tensor; expected a tensor")
        return found

    def as_tensor(self, value: Value) -> Value:
        """Return known sizes as a tensor, and any other value unchanged."""
        return as_tensor(self.builder, value) if isinstance(value, SizeValue) else value

    def tensors(self, place: int) -> list[relax.Expr]:
        """The fields of the tuple at `place`, all tensors. Raises ValueError."""
        fields = self.args[place] if place < len(self.args) else None
        fields = tuple(map(self.as_tensor, fields)) if isinstance(fields, tuple) else None
        if not isinstance(fields, tuple) or not all(isinstance(field, relax.Expr) for field in fields):
            raise ValueError(f"operand {place + 1} is not a tuple of tensors; expected a tuple of tensors")
        if not fields:
            raise ValueError(f"operand {place + 1} is an empty tuple; expected one tensor or more")
        return list(fields)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Emit `expr` and return its variable."""
        self.made.extend(_names(expr))
        return self.builder.emit(expr)

    def te(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> relax.Expr:
        """Emit a tensor expression function applied to `args`."""
        name = self.op.replace(".", "_")
        self.made.append(f"a kernel {name}")
        return self.builder.emit_te(compute, *args, primfunc_name_hint=name, **kwargs)

    def positions(
        self, indices: relax.Expr, extents: Size | list[Size], *, wraps: bool = True, called: str = "index"
    ) -> relax.Expr:
        """`indices` as positions along axes of `extents`, checked at run time. Raises ModelFormatError for constants
        out of range."""
        return checked_positions(self.builder, indices, extents, self.op, wraps=wraps, called=called)

    def within(self, value: Any, count: int, what: str) -> int:
        """An attribute that is an index below `count`. Raises ValueError."""
        number = whole(value)
        if not 0 <= number < count:
            raise ValueError(f"{what} = {number}; expected 0 to {count - 1}")
        return number

    def dims(self, name: str, count: int) -> list[int]:
        """An attribute of one number or of `count` numbers. Raises ValueError."""
        given = numbers(self.attrs[name])
        if len(given) not in (1, count):
            raise ValueError(f"{name} has {len(given)} numbers; expected 1 or {count}")
        return given * count if len(given) == 1 else given

    def pads(self, count: int) -> list[int]:
        """Padding of `count` dimensions: first all values before, then all values after. Raises ValueError."""
        given = numbers(self.attrs["padding"])
        if len(given) == 1:
            return given * (2 * count)
        if len(given) == count:
            return given * 2
        if len(given) == 2 * count:
            return given
        raise ValueError(f"padding has {len(given)} numbers; expected 1, {count} or {2 * count}")

    def known(self, place: int, what: str) -> np.ndarray:
        """The value of an operand that has to be a constant. Raises ValueError."""
        held = self.args[place] if place < len(self.args) else None
        if isinstance(held, SizeValue) and held.is_known:
            return held.values.astype(held.dtype)
        found = None if isinstance(held, SizeValue) else value_of(self.tensor(place))
        if found is None:
            raise ValueError(f"{what} (operand {place + 1}) is not known at compile time; expected a constant")
        return found

    def sizes(self, place: int, what: str) -> list[Size]:
        """The elements of an operand that has to be constant or derived from shapes. Raises ValueError."""
        held = self.args[place] if place < len(self.args) else None
        if isinstance(held, SizeValue) and held.dtype in ("int32", "int64"):
            return list(held.values.flat)
        return [int(number) for number in self.known(place, what).reshape(-1)]

    def number(self, size: Size, dtype: str) -> relax.Expr:
        """A size as a scalar tensor."""
        if isinstance(size, int):
            return constant(size, dtype)
        made = as_tensor(self.builder, size_value(size))
        return made if dtype == "int64" else self.emit(relax.op.astype(made, dtype))

    def extents(self, tensor: relax.Expr) -> list[Size]:
        """The extents of a tensor, as numbers and expressions of dynamic dimensions. Raises ValueError if one is
        neither."""
        return [self.shapes.simplified(extent) for extent in extents_of(tensor)]

    def bound(self, tensor: relax.Expr, axis: int, size: Size) -> relax.Expr:
        """`tensor` with this size along an axis; adds a guard if that is not known. Raises ValueError."""
        extents = self.extents(tensor)
        extents[axis] = self.shapes.agreed(extents[axis], size)
        return cast(self.builder, tensor, extents)

    def spread(self, tensor: relax.Expr, wanted: list[Size]) -> relax.Expr:
        """`tensor` broadcast to a shape. Raises ValueError."""
        own = self.extents(tensor)
        if all(isinstance(extent, int) for extent in (*own, *wanted)):
            return relax.op.broadcast_to(tensor, wanted)
        if len(own) > len(wanted):
            raise ValueError(f"{quantity(len(own), 'dimension')} cannot be broadcast to {len(wanted)}")
        lined = [1] * (len(wanted) - len(own)) + own
        shape = [
            extent if isinstance(has, int) and has == 1 else self.shapes.agreed(extent, has)
            for has, extent in zip(lined, wanted, strict=True)
        ]
        for extent in shape:
            self.shapes.require_at_least(extent, 0)
        before = [1 if isinstance(has, int) and has == 1 else full for has, full in zip(lined, shape, strict=True)]
        data = cast(self.builder, tensor, before[len(wanted) - len(own) :])
        return relax.op.broadcast_to(data, relax.ShapeExpr(shape))


def numbers(given: Any) -> list[int]:
    """An attribute as a list of integers: one number is a list of one. Raises ValueError."""
    listed = given if isinstance(given, list | tuple) else [given]
    try:
        return [whole(value) for value in listed]
    except TypeError:
        raise ValueError(f"{given!r} is not a list of integers") from None


def whole(value: Any) -> int:
    """An integer, possibly written as a float. Raises ValueError."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | int) and -(2**63) <= value < 2**63:
        return int(value)
    raise ValueError(f"{value!r} is not an integer")


def shape_of(tensor: relax.Expr) -> list[int]:
    """The extents of a tensor. Raises OpenOperand if one is dynamic."""
    shape = tensor.ty.shape
    if not isinstance(shape, relax.ShapeExpr) or not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise OpenOperand("an operand's shape is known at run time only; expected static shapes")
    return [int(extent) for extent in shape]


def extents_of(tensor: relax.Expr) -> list[Size]:
    """The extents of a tensor, dynamic ones as expressions of sizes. Raises OpenOperand if they are not known as
    such."""
    shape = tensor.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        raise OpenOperand("an operand's shape is known at run time only; expected static shapes")
    return [plain(extent) for extent in shape]


def rank_of(tensor: relax.Expr) -> int:
    """The number of dimensions of a tensor."""
    return int(tensor.ty.ndim)


def shape_text(shape: Sequence[Size]) -> str:
    """A shape as text for messages."""
    return f"({', '.join(map(text, shape))})"


def as_sizes(value: Value) -> SizeValue | None:
    """A value as sizes, including small constants; None if it is not known as such."""
    if isinstance(value, SizeValue):
        return value
    found = value_of(value) if isinstance(value, relax.Expr) else None
    return None if found is None else of_constant(found)


def dtype_of(tensor: relax.Expr) -> str:
    """TVM's name of a tensor's type."""
    return str(tensor.ty.dtype)


def is_integer(tensor: relax.Expr) -> bool:
    """Return whether a tensor has an integer type."""
    return dtype_of(tensor).startswith(("int", "uint"))


def value_of(tensor: relax.Expr) -> np.ndarray | None:
    """The array in a constant; None for anything else."""
    if isinstance(tensor, tvm.ir.GenericConst) and isinstance(tensor.value, tvm.runtime.Tensor):
        found: np.ndarray = tensor.value.numpy()
        return found
    return None


def bounded(count: int, what: str, most: int = MAX_CONSTANT) -> int:
    """Return `count` if it is within the limit for a file. Raises ValueError."""
    if count > most:
        raise ValueError(f"{what} = {count}; expected up to {most}")
    return count


def constant(value: Any, dtype: str) -> relax.Expr:
    """A constant tensor."""
    return relax.const(np.asarray(value, dtype=dtype), dtype)


def axis_in(axis: Any, rank: int, last: int = 0) -> int:
    """An axis counted from the front; up to `last` more than the rank are allowed. Raises ValueError."""
    number = whole(axis)
    size = rank + last
    if not -size <= number < size:
        raise ValueError(f"axis {number} does not exist in {rank} dimensions; expected {-size} to {size - 1}")
    return number % size if size else 0


def along(vector: relax.Expr, axis: int, rank: int) -> relax.Expr:
    """A vector reshaped to broadcast along `axis` of a tensor of `rank` dimensions; a single element as a scalar."""
    count = math.prod(shape_of(vector))
    if count == 1:
        return relax.op.reshape(vector, [])
    return relax.op.reshape(vector, [count if place == axis else 1 for place in range(rank)])


def _names(expr: relax.Expr) -> list[str]:
    """The Relax operators in an expression, inner ones first."""
    if isinstance(expr, relax.Tuple):
        return [name for field in expr.fields for name in _names(field)]
    if not isinstance(expr, relax.Call):
        return []
    inner = [name for arg in expr.args for name in _names(arg)]
    return [*inner, str(getattr(expr.op, "name", "call"))]
