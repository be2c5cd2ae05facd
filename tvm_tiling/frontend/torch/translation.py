"""From the graph of an exported program, in core ATen operators, to a Relax function.

Each operator has one converter, found by the operator's full name. A converter takes the arguments of the operator's
schema by their names, all of them, with the schema's defaults where the graph leaves one out, so that no argument is
dropped by accident. What a converter returns is compared with the shape and type that PyTorch recorded for the node: a
difference is an error, never a result.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
import tvm
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx.node import map_arg
from tvm import relax

from ...errors import UnsupportedOperator
from ...refusal import blocks_closed
from ..imported import first_line
from .types import DTYPES, NAMES, cast_through, computed_in, is_float

# A tensor as a Relax expression, a number, None, or several of these.
Value: TypeAlias = Any
Converter: TypeAlias = Callable[..., Value]

# Arguments that say where and how PyTorch stores a result, not what it is.
STORAGE = frozenset(["layout", "device", "pin_memory", "memory_format", "non_blocking"])

# Results of constants up to this many elements are constants, whatever their operands' size.
_LARGEST_KNOWN = 1 << 16


class Unserved(Exception):
    """Raised by a converter for arguments that it does not serve; its text says which, and what is accepted."""


@dataclass(frozen=True)
class Missing:
    """An output that a converter does not compute; it is an error only where the graph uses it. `why`: its name."""

    why: str


CONVERTERS: dict[str, Converter] = {}


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


def full_name(target: Any) -> str:
    """An operator's name, as in aten::add.Tensor; of anything else that a graph calls, its text."""
    if isinstance(target, torch._ops.OpOverload):
        return f"{target._schema.name}.{target._overloadname}"
    return str(target)


@dataclass
class Translation:
    """What a converter works with. `node`: the one that is being converted. `known`: constants by their content."""

    builder: relax.BlockBuilder
    node: torch.fx.Node | None = None
    values: dict[torch.fx.Node, Value] = field(default_factory=dict)
    known: dict[relax.Expr, torch.Tensor] = field(default_factory=dict)

    # ---- the result as PyTorch describes it -------------------------------------------------------------------------

    @property
    def result(self) -> torch.Tensor:
        """PyTorch's record of the node's result: a tensor without content; of several, the first."""
        value = self.node.meta["val"]  # type: ignore[union-attr]
        return value[0] if isinstance(value, tuple | list) else value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(int(extent) for extent in self.result.shape)

    @property
    def dtype(self) -> str:
        """The type of the result."""
        return NAMES[self.result.dtype]

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


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    """The shape of a tensor."""
    return tuple(int(extent) for extent in value.ty.shape)


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


# ---- the walk -------------------------------------------------------------------------------------------------------


def translated(program: torch.export.ExportedProgram, converters: Mapping[str, Converter], where: str) -> tvm.IRModule:
    """The program as a module whose function "main" takes its inputs; its parameters and buffers are constants.

    Raises UnsupportedOperator naming all operators without a converter at once, or the first node whose arguments its
    converter does not serve.
    """
    _refuse_unserved(program, converters, where)
    builder = relax.BlockBuilder()
    translation = Translation(builder)
    inputs = _placeholders(translation, program, where)
    taken: set[str] = set()
    parameters = [
        relax.Var(_unique(node.name, taken), relax.TensorType(tuple(map(int, value.shape)), NAMES[value.dtype]))
        for node, value in inputs
    ]
    for (node, _), parameter in zip(inputs, parameters, strict=True):
        translation.values[node] = parameter
    refused: UnsupportedOperator | None = None
    with blocks_closed(builder), builder.function("main", parameters):
        with builder.dataflow():
            tensors: list[relax.Expr] = []
            try:
                returned = _run(translation, program.graph_module, converters, where)
                tensors = [value for value in returned if isinstance(value, relax.Expr)]
            except UnsupportedOperator as error:
                refused = error  # raised when the function is complete: TVM warns of one that is not
            out = builder.emit_output(tensors[0] if len(tensors) == 1 else relax.Tuple(tensors))
        builder.emit_func_output(out)
    if refused is not None:
        raise refused
    if not tensors:
        raise UnsupportedOperator(f"{where}: it returns no tensor; expected one at least")
    return builder.get()


def _unique(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _placeholders(
    translation: Translation, program: torch.export.ExportedProgram, where: str
) -> list[tuple[torch.fx.Node, torch.Tensor]]:
    """The inputs that a caller passes; all other placeholders get their values."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = []
    for spec in program.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if isinstance(spec.arg, ConstantArgument):
            translation.values[node] = spec.arg.value
        elif spec.kind is InputKind.USER_INPUT:
            value = node.meta["val"]
            if value.dtype not in NAMES:
                raise UnsupportedOperator(f"{where}: input {node.name!r} has type {value.dtype}; expected numbers")
            inputs.append((node, value))
        elif not node.users:
            continue
        else:
            held = program.state_dict if spec.target in program.state_dict else program.constants
            try:
                translation.values[node] = translation.constant(held[spec.target])
            except (Unserved, KeyError) as error:
                raise UnsupportedOperator(f"{where}: {spec.target!r}: {error}") from None
    return inputs


def _run(
    translation: Translation, graph_module: torch.fx.GraphModule, converters: Mapping[str, Converter], where: str
) -> list[Value]:
    """Convert the nodes in order; what the graph returns."""
    for node in graph_module.graph.nodes:
        if node.op == "output":
            return list(_values(node.args[0], translation.values))
        if node.op == "get_attr":
            held = getattr(graph_module, node.target)
            translation.values[node] = translation.constant(held) if isinstance(held, torch.Tensor) else held
        elif node.op == "call_function":
            translation.node = node
            try:
                translation.values[node] = _converted(translation, node, converters)
            except Unserved as error:
                raise UnsupportedOperator(f"{where}: {described(node)} is not supported: {error}") from None
            except (UnsupportedOperator, MemoryError):
                raise
            except Exception as error:
                raise UnsupportedOperator(
                    f"{where}: {described(node)} cannot be translated: {first_line(error)}"
                ) from error
    raise UnsupportedOperator(f"{where}: the graph has no output")


def _values(argument: Any, values: Mapping[torch.fx.Node, Value]) -> Value:
    """An argument with the values of nodes in the place of the nodes."""
    if isinstance(argument, torch.fx.Node):
        value = values[argument]
        if isinstance(value, Missing):
            raise Unserved(f"it uses {value.why}, which is not computed")
        return value
    if isinstance(argument, tuple | list):
        return type(argument)(_values(item, values) for item in argument)
    return argument


def _converted(translation: Translation, node: torch.fx.Node, converters: Mapping[str, Converter]) -> Value:
    if node.target is operator.getitem:
        several, place = node.args
        return translation.values[several][place]  # type: ignore[index]
    arguments, record = _arguments(node, translation.values), node.meta.get("val")
    value = _known(translation, node)
    if value is None:
        value = _empty(translation, record)
    if value is None:
        convert = converters.get(full_name(node.target))
        if convert is None:
            raise Unserved(f"a constant of more than {_LARGEST_KNOWN} elements; expected an operator that is served")
        value = convert(translation, **arguments)
    _check(value, record)
    return value


def _known(translation: Translation, node: torch.fx.Node) -> relax.Constant | None:
    """The result where it depends on nothing but constants: PyTorch's own, computed now.

    None for results that would be larger than what they are made of, beyond a bound, and for random ones.
    """
    record = node.meta.get("val")
    if not isinstance(record, torch.Tensor) or torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
        return None
    sizes = [0]

    def content(source: torch.fx.Node) -> torch.Tensor:
        held = translation.known[translation.values[source]]
        sizes.append(held.numel())
        return held

    try:
        args, kwargs = map_arg((node.args, node.kwargs), content)
    except (KeyError, TypeError):  # something that only the run knows
        return None
    if record.numel() > max(_LARGEST_KNOWN, *sizes):
        return None
    with torch.no_grad():
        return translation.constant(node.target(*args, **kwargs))  # type: ignore[operator]


def _empty(translation: Translation, record: Any) -> relax.Expr | None:
    """A result without elements: nothing is computed for it."""
    if not isinstance(record, torch.Tensor) or 0 not in record.shape or record.dtype not in NAMES:
        return None
    return translation.emit(relax.op.zeros(tuple(map(int, record.shape)), NAMES[record.dtype]))


def _arguments(node: torch.fx.Node, values: Mapping[torch.fx.Node, Value]) -> dict[str, Value]:
    """All arguments of the operator's schema by name, but for those about storage."""
    bound: dict[str, Value] = {}
    for place, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name in STORAGE:
            continue
        if place < len(node.args) and not argument.kwarg_only:
            bound[argument.name] = _values(node.args[place], values)
        elif argument.name in node.kwargs:
            bound[argument.name] = _values(node.kwargs[argument.name], values)
        else:
            bound[argument.name] = argument.default_value
    return bound


def _check(value: Value, expected: Any) -> None:
    """What a converter returned has the shapes and types that PyTorch recorded."""
    if isinstance(expected, tuple | list):
        if not isinstance(value, tuple | list) or len(value) != len(expected):
            raise ValueError(f"{len(expected)} outputs were expected")
        for part, record in zip(value, expected, strict=True):
            _check(part, record)
    elif isinstance(expected, torch.Tensor) and not isinstance(value, Missing):
        found = (shape_of(value), dtype_of(value))
        wanted = (tuple(expected.shape), NAMES.get(expected.dtype, str(expected.dtype)))
        if found != wanted:
            raise ValueError(
                f"its translation gives {found[1]} of shape {found[0]}, PyTorch {wanted[1]} of {wanted[0]}"
            )


# ---- refusals -------------------------------------------------------------------------------------------------------


def described(node: torch.fx.Node) -> str:
    """A node in a message: operator, name, and the line of the user's source where PyTorch recorded it."""
    line = source_line(node)
    return f"operator {full_name(node.target)} (node {node.name!r}{', ' + line if line else ''})"


_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_line(node: torch.fx.Node) -> str:
    """`file.py:12` of the innermost frame of the user's own code; empty where it is not known."""
    inside = str(Path(torch.__file__).parent)
    frames = [
        (name, number)
        for name, number in _FRAME.findall(node.meta.get("stack_trace") or "")
        if not name.startswith(("<", inside))
    ]
    return f"{Path(frames[-1][0]).name}:{frames[-1][1]}" if frames else ""


def _refuse_unserved(program: torch.export.ExportedProgram, converters: Mapping[str, Converter], where: str) -> None:
    """UnsupportedOperator for everything without a converter that is not computed once, from constants."""
    refused: dict[str, list[str]] = {}
    opened: dict[str, list[str]] = {}
    given = program.graph_signature.user_inputs
    varying = {node for node in program.graph.nodes if node.op == "placeholder" and node.name in given}
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        name, record = full_name(node.target), node.meta.get("val")
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if random or not isinstance(record, torch.Tensor) or not varying.isdisjoint(node.all_input_nodes):
            varying.add(node)
        line = source_line(node)
        described = f"{node.name!r}{' at ' + line if line else ''}"
        if isinstance(record, torch.Tensor) and not all(isinstance(extent, int) for extent in record.shape):
            opened.setdefault(name, []).append(described)
        elif node in varying and name not in converters and node.target is not operator.getitem:
            refused.setdefault(name, []).append(described)
    if opened:
        raise UnsupportedOperator(
            f"{where}: the shape of a result depends on values: {_listed(opened)}; expected shapes that follow from "
            f"the inputs' shapes"
        )
    if refused:
        raise UnsupportedOperator(f"{where}: unsupported operators: {_listed(refused)}")


def _listed(nodes: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{name} (nodes {', '.join(places)})" for name, places in sorted(nodes.items()))
