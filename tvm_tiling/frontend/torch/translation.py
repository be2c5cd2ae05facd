"""Converters of core ATen operators to Relax, and what they work with.

Each operator has one converter, found by the operator's full name. A converter takes the arguments of the operator's
schema by their names, all of them, with the schema's defaults where the graph leaves one out, so that no argument is
dropped by accident (walk.py calls them).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
import tvm
from tvm import relax

from ..open_shapes import whole
from .open_program import OpenProgram
from .types import DTYPES, NAMES, cast_through, computed_in, is_float

# A tensor as a Relax expression, a number, None, or several of these.
Value: TypeAlias = Any
Converter: TypeAlias = Callable[..., Value]

# Arguments that say where and how PyTorch stores a result, not what it is.
STORAGE = frozenset(["layout", "device", "pin_memory", "memory_format", "non_blocking"])


class Unserved(Exception):
    """Raised by a converter for arguments that it does not serve; its text says which, and what is accepted."""


class Follows(Unserved):
    """Raised for an operand that a refused node was to give."""


@dataclass(frozen=True)
class Missing:
    """An output that a converter does not compute; it is an error only where the graph uses it. `why`: its name."""

    why: str


@dataclass(frozen=True)
class Absent:
    """In place of a value that has no fixed shape or no type of TVM's. `why`: which. `follows`: a refused node gives
    it, so that its readers are refused because of that one."""

    why: str
    follows: bool


@dataclass(frozen=True, eq=False)
class Complex:
    """A tensor of complex numbers, which TVM lacks, as two of floats; a program's inputs and outputs are none."""

    real: relax.Expr
    imag: relax.Expr


CONVERTERS: dict[str, Converter] = {}
# Operators that stay operators where their operands are constants: integers are multiplied as they are.
DEQUANTISING = frozenset(
    f"quantized_decomposed::dequantize_per_{part}" for part in ("tensor.default", "tensor.tensor", "channel.default")
)
# Converters of the same operators where an operand or the result is complex.
OF_COMPLEX: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for the operators of these names, without "aten."; other libraries' in full."""

    def register(convert: Converter) -> Converter:
        for name in names:
            full = name if "::" in name else f"aten::{name}"
            if full in CONVERTERS:
                raise ValueError(f"two converters for {full}")
            CONVERTERS[full] = convert
        return convert

    return register


def converter_of_complex(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for operators, by names as for `converter`, with complex operands or results."""

    def register(convert: Converter) -> Converter:
        for name in names:
            OF_COMPLEX[f"aten::{name}"] = convert
        return convert

    return register


@dataclass
class Translation:
    """What a converter works with. `node`: the one that is being converted. `known`: constants by their content.
    `checks`: tensors that no other one is made of, and whose computation refuses some inputs. `open`: the sizes that
    stay open, if any do."""

    builder: relax.BlockBuilder
    node: torch.fx.Node | None = None
    values: dict[torch.fx.Node, Value] = field(default_factory=dict)
    known: dict[relax.Expr, torch.Tensor] = field(default_factory=dict)
    checks: list[relax.Expr] = field(default_factory=list)
    open: OpenProgram | None = None

    # ---- the result as PyTorch describes it -------------------------------------------------------------------------

    @property
    def result(self) -> torch.Tensor:
        """PyTorch's record of the node's result: a tensor without content; of several, the first."""
        value = self.node.meta["val"]  # type: ignore[union-attr]
        return value[0] if isinstance(value, tuple | list) else value

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the result; where sizes are open, with expressions of them."""
        return self.shape_in(self.result)

    def shape_in(self, record: torch.Tensor) -> tuple[Any, ...]:
        """The shape of a tensor as PyTorch recorded it, in the same way."""
        return tuple(int(extent) if self.open is None else self.open.size(extent) for extent in record.shape)

    @property
    def dtype(self) -> str:
        """The type of the result; of complex numbers, that of their parts."""
        return NAMES[self.result.dtype.to_real() if self.result.dtype.is_complex else self.result.dtype]

    @property
    def operands(self) -> list[torch.Tensor]:
        """PyTorch's records of the tensors that the node reads, in order."""
        values = [node.meta.get("val") for node in self.node.all_input_nodes]  # type: ignore[union-attr]
        return [value for value in values if isinstance(value, torch.Tensor)]

    def content(self, value: Value) -> torch.Tensor | None:
        """The elements of a tensor where they are known before the run."""
        return self.known.get(value)

    # ---- making expressions -----------------------------------------------------------------------------------------

    def emit(self, expr: relax.Expr) -> relax.Var:
        """The expression bound to a variable."""
        return self.builder.emit(expr)

    def constant(self, value: torch.Tensor) -> relax.Constant:
        """A tensor whose elements are known."""
        held = constant(value)
        self.known[held] = value
        return held

    def held(self, value: torch.Tensor) -> Value:
        """As `constant`, of complex numbers as well."""
        if not value.is_complex():
            return self.constant(value)
        parts = torch.view_as_real(value.detach().resolve_conj())
        return Complex(self.constant(parts[..., 0]), self.constant(parts[..., 1]))

    def te(self, function: Callable[..., Any], *args: Any, **named: Any) -> relax.Var:
        """The result of a function on TE tensors as a kernel of its own; `primfunc_name_hint` names it."""
        return self.builder.emit_te(function, *args, **named)

    def cast(self, value: Value, dtype: str) -> relax.Expr:
        """A tensor of type `dtype`; numbers become constants without axes.

        To bool as PyTorch does, that is, whether an element is not 0.
        """
        if isinstance(value, bool | int | float):
            return constant(torch.tensor(value, dtype=DTYPES[dtype]))
        if dtype_of(value) == dtype:
            return value
        if dtype == "bool":
            value = self.cast(value, computed_in(dtype_of(value)))
            return self.emit(unequal(value, relax.const(0, dtype_of(value))))
        between = cast_through(dtype_of(value), dtype)
        if between is not None:
            return self.cast(self.cast(value, between), dtype)
        return self.emit(relax.op.astype(value, dtype))


def unequal(left: relax.Expr, right: relax.Expr) -> relax.Expr:
    """Whether elements differ, as NaN does from all: TVM's "not equal" is false of it."""
    result = relax.op.not_equal(left, right)
    for side in (left, right):
        if may_be_nan(side):
            result = relax.op.logical_or(result, relax.op.isnan(side))
    return result


def may_be_nan(value: relax.Expr) -> bool:
    """Whether a tensor can hold a NaN: a tensor of floats, of constants one that does."""
    if not is_float(dtype_of(value)):
        return False
    return not isinstance(value, tvm.ir.GenericConst) or bool(np.isnan(value.value.numpy()).any())


def dtype_of(value: relax.Expr) -> str:
    """The type of a tensor's elements."""
    return str(value.ty.dtype)


def shape_of(value: relax.Expr) -> tuple[Any, ...]:
    """The shape of a tensor; where sizes are open, with expressions of them."""
    return tuple(map(whole, value.ty.shape))


def constant(value: torch.Tensor) -> relax.Constant:
    """A tensor of PyTorch as a constant, by a copy of its elements. Unserved where TVM lacks its type."""
    value = value.detach()
    if value.layout is not torch.strided or value.is_quantized or value.dtype not in NAMES:
        raise Unserved(f"a constant of type {value.dtype}, {value.layout}; expected a dense tensor of numbers")
    value = value.cpu().resolve_neg().contiguous()
    held = tvm.runtime.empty(tuple(value.shape), NAMES[value.dtype])
    if value.numel():
        # An axis of one element may have any stride, which a view as bytes refuses.
        content = value.as_strided((value.numel(),), (1,)).view(torch.uint8)
        held._create_view((content.numel(),), "uint8").copyfrom(content.numpy())
    return relax.const(held)
