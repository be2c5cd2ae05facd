"""Registration of converters of core ATen operators to Relax, and their context.

Each operator has one converter, found by the operator's full name. A converter takes all arguments of the operator's
schema by name, with the schema's defaults for missing ones, so that no argument is dropped by accident (walk.py calls
them).
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

# A tensor as a Relax expression, a number, None, or a collection of these.
Value: TypeAlias = Any
Converter: TypeAlias = Callable[..., Value]

# Arguments that control only how PyTorch stores a result.
STORAGE = frozenset(["layout", "device", "pin_memory", "memory_format", "non_blocking"])


class Unsupported(Exception):
    """Raised by a converter for unsupported arguments; the text names them and what is accepted."""


class Follows(Unsupported):
    """Raised for an operand whose node is refused."""


@dataclass(frozen=True)
class Missing:
    """An output that a converter does not compute; an error only if the graph uses it. `why`: its name."""

    why: str


@dataclass(frozen=True)
class Absent:
    """Placeholder for a value without a static shape or TVM type. `why`: the reason. `follows`: it comes from a refused
    node, so that its readers are refused because of that one."""

    why: str
    follows: bool


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor, which TVM does not support, as two float tensors; never an input or output of a program."""

    real: relax.Expr
    imag: relax.Expr


CONVERTERS: dict[str, Converter] = {}
# Operators that are not folded even if their operands are constants: integers are multiplied as they are.
DEQUANTISING = frozenset(
    f"quantized_decomposed::dequantize_per_{part}" for part in ("tensor.default", "tensor.tensor", "channel.default")
)
# Converters of operators with a complex operand or result.
OF_COMPLEX: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for operators by name, without "aten." for ATen; names of other libraries are complete."""

    def register(convert: Converter) -> Converter:
        for name in names:
            full = name if "::" in name else f"aten::{name}"
            if full in CONVERTERS:
                raise ValueError(f"two converters are registered for {full}")
            CONVERTERS[full] = convert
        return convert

    return register


def converter_of_complex(*names: str) -> Callable[[Converter], Converter]:
    """Register a converter for operators with complex operands or results, by names as in `converter`."""

    def register(convert: Converter) -> Converter:
        for name in names:
            OF_COMPLEX[f"aten::{name}"] = convert
        return convert

    return register


@dataclass
class Translation:
    """The context of a converter. `node`: the node being converted. `known`: constants with their contents. `checks`:
    tensors that no output depends on, whose computation rejects some inputs. `open`: the dynamic dimensions, if any."""

    builder: relax.BlockBuilder
    node: torch.fx.Node | None = None
    values: dict[torch.fx.Node, Value] = field(default_factory=dict)
    known: dict[relax.Expr, torch.Tensor] = field(default_factory=dict)
    checks: list[relax.Expr] = field(default_factory=list)
    open: OpenProgram | None = None

    # ---- the result as recorded by PyTorch --------------------------------------------------------------------------

    @property
    def result(self) -> torch.Tensor:
        """PyTorch's record of the node's result, a tensor without content; for several results, the first one."""
        value = self.node.meta["val"]  # type: ignore[union-attr]
        return value[0] if isinstance(value, tuple | list) else value

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the result, with expressions for dynamic dimensions."""
        return self.shape_in(self.result)

    def shape_in(self, record: torch.Tensor) -> tuple[Any, ...]:
        """The shape of a tensor as recorded by PyTorch, with expressions for dynamic dimensions."""
        return tuple(int(extent) if self.open is None else self.open.size(extent) for extent in record.shape)

    @property
    def dtype(self) -> str:
        """The type of the result; for complex numbers, the type of their parts."""
        return NAMES[self.result.dtype.to_real() if self.result.dtype.is_complex else self.result.dtype]

    @property
    def operands(self) -> list[torch.Tensor]:
        """PyTorch's records of the tensors that the node reads, in order."""
        values = [node.meta.get("val") for node in self.node.all_input_nodes]  # type: ignore[union-attr]
        return [value for value in values if isinstance(value, torch.Tensor)]

    def content(self, value: Value) -> torch.Tensor | None:
        """The elements of a tensor, if known at compile time."""
        return self.known.get(value)

    # ---- making expressions -----------------------------------------------------------------------------------------

    def emit(self, expr: relax.Expr) -> relax.Var:
        """Bind the expression to a variable."""
        return self.builder.emit(expr)

    def constant(self, value: torch.Tensor) -> relax.Constant:
        """A constant tensor."""
        held = constant(value)
        self.known[held] = value
        return held

    def held(self, value: torch.Tensor) -> Value:
        """Like `constant`, including complex tensors."""
        if not value.is_complex():
            return self.constant(value)
        parts = torch.view_as_real(value.detach().resolve_conj())
        return Complex(self.constant(parts[..., 0]), self.constant(parts[..., 1]))

    def te(self, function: Callable[..., Any], *args: Any, **named: Any) -> relax.Var:
        """Emit a function on TE tensors as a separate kernel, named by `primfunc_name_hint`."""
        return self.builder.emit_te(function, *args, **named)

    def cast(self, value: Value, dtype: str) -> relax.Expr:
        """Cast a tensor to type `dtype`; numbers become scalar constants.

        A cast to bool tests for nonzero elements, as in PyTorch.
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
    """Compare for inequality, true for NaN: TVM's not_equal is false for it."""
    result = relax.op.not_equal(left, right)
    for side in (left, right):
        if may_be_nan(side):
            result = relax.op.logical_or(result, relax.op.isnan(side))
    return result


def may_be_nan(value: relax.Expr) -> bool:
    """Return whether a tensor may contain NaN: a float tensor, or a constant that does."""
    if not is_float(dtype_of(value)):
        return False
    return not isinstance(value, tvm.ir.GenericConst) or bool(np.isnan(value.value.numpy()).any())


def dtype_of(value: relax.Expr) -> str:
    """The type of a tensor's elements."""
    return str(value.ty.dtype)


def shape_of(value: relax.Expr) -> tuple[Any, ...]:
    """The shape of a tensor, with expressions for dynamic dimensions."""
    return tuple(map(whole, value.ty.shape))


def constant(value: torch.Tensor) -> relax.Constant:
    """A PyTorch tensor as a constant, copying its elements. Raises Unsupported if TVM does not support its type."""
    value = value.detach()
    if value.layout is not torch.strided or value.is_quantized or value.dtype not in NAMES:
        raise Unsupported(f"a constant of type {value.dtype}, {value.layout}; expected a dense tensor of numbers")
    value = value.cpu().resolve_neg().contiguous()
    held = tvm.runtime.empty(tuple(value.shape), NAMES[value.dtype])
    if value.numel():
        # An axis of one element may have any stride, which a byte view rejects.
        content = value.as_strided((value.numel(),), (1,)).view(torch.uint8)
        held._create_view((content.numel(),), "uint8").copyfrom(content.numpy())
    return relax.const(held)
