"""Translation of the graph of an exported program, in core ATen operators, to a Relax function.

The result of a converter is compared with the shape and type that PyTorch recorded for the node: a mismatch is an
error, never a result. A refused node does not stop the translation, so that all refusals are found at once: zeros of
its shape and type replace its result.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import tvm
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx.node import map_arg
from tvm import relax, te, tirx

from ...errors import UnsupportedOperator
from ...refusal import blocks_closed
from ..imported import first_line
from ..node_names import NamingBuilder, NodeNames
from .arguments import arguments_by_name, operand_values, refused_operand
from .assertions import asserted, of_assertions
from .few_bits import FewBits, few_bits
from .node_path import node_path
from .open_operators import ANY_SHAPE, OPEN, TAKE_SIZES, as_number, require_elements
from .open_program import NoSizeError, OpenProgram
from .refusals import Refusal, called, full_name, refusal
from .translation import (
    DEQUANTISING,
    OF_COMPLEX,
    Absent,
    Complex,
    Converter,
    Follows,
    Missing,
    Translation,
    Unsupported,
    Value,
    dtype_of,
    shape_of,
)
from .types import NAMES

# Results computed from constants are folded up to this number of elements, regardless of the operands' size.
_LARGEST_KNOWN = 1 << 16
# Operators that accept low-bit weights as this operand; others get floats.
_WEIGHTS = {"aten::linear.default": "weight", "aten::mm.default": "mat2", "aten::addmm.default": "mat2"}
_WEIGHTS |= {"aten::matmul.default": "other"}
# Assertions of programs about sizes.
_OF_SIZES = frozenset(f"aten::{name}.default" for name in ("_assert_scalar", "sym_constrain_range"))
_OPEN = "the shape of a result depends on values; expected shapes that follow from the inputs' shapes"


class Walk:
    """One function of a module, built from nodes of a program. `refused`: the nodes that are not translated."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        converters: Mapping[str, Converter],
        opened: OpenProgram | None = None,
    ) -> None:
        self._program, self._converters, self._open = program, converters, opened
        self._builder, self._names = NamingBuilder(), NodeNames()
        self._builder.shapes = None if opened is None else opened.shapes
        self._translation = Translation(self._builder, open=opened)
        self._values = self._translation.values
        self._of_assertions = of_assertions(program.graph.nodes)
        self.refused: dict[torch.fx.Node, Refusal] = {}

    def function(
        self, inputs: Sequence[torch.fx.Node], nodes: Iterable[torch.fx.Node], outputs: Sequence[torch.fx.Node]
    ) -> tvm.IRModule | None:
        """A module whose function "main" maps the values of `inputs` to those of `outputs`; None if a node is refused.
        `nodes` are in graph order and include those that produce constants. Without outputs, no function is created."""
        builder = self._builder
        parameters = self._parameters(inputs)
        with blocks_closed(builder), builder.function("main", parameters):
            with builder.dataflow():
                self._constants(nodes)
                for node in nodes:
                    if node.op in ("get_attr", "call_function"):
                        self._translate(node)
                builder.called = ""
                tensors = self._behind_checks(list(map(self._output, outputs)))
                out = builder.emit_output(tensors[0] if len(tensors) == 1 else relax.Tuple(tensors))
            builder.emit_func_output(out)
        return None if self.refused else self._names.attached(builder.get())

    def constant_nodes(self) -> set[torch.fx.Node]:
        """The nodes whose values are known at compile time."""
        known = self._translation.known
        return {
            node
            for node, value in self._values.items()
            if not isinstance(value, relax.Expr | Complex | Absent | Missing | tuple | list) or _is_known(value, known)
        }

    # ---- values read by the nodes -----------------------------------------------------------------------------------

    def _parameters(self, inputs: Sequence[torch.fx.Node]) -> list[relax.Var]:
        taken: set[str] = set()
        parameters = []
        for node in inputs:
            record: Any = node.meta.get("val")
            if (why := self._unfit(record)) is not None:
                self._values[node] = Absent(f"{node.name!r} is {why}", follows=False)
                continue
            shape = tuple(map(int, record.shape)) if self._open is None else self._open.stated(record.shape)
            kind = relax.TensorType(shape, NAMES[record.dtype])
            self._values[node] = relax.Var(_unique(node.name, taken), kind)
            parameters.append(self._values[node])
        return parameters

    def _constants(self, nodes: Iterable[torch.fx.Node]) -> None:
        """The values of placeholders among `nodes` that are parameters, buffers or non-tensors."""
        program = self._program
        wanted = {node.name: node for node in nodes if node.op == "placeholder" and node not in self._values}
        for spec in program.graph_signature.input_specs:
            node = wanted.get(spec.arg.name)
            if node is None:
                continue
            if isinstance(spec.arg, ConstantArgument):
                self._values[node] = spec.arg.value
            elif spec.kind is InputKind.TOKEN:
                self._values[node] = None
            elif spec.kind is not InputKind.USER_INPUT and node.users:
                self._values[node] = self._held(held_tensor(program, spec.target), spec.target)

    def _held(self, value: Any, name: Any) -> Value:
        if not isinstance(value, torch.Tensor):
            return Absent(f"{str(name)!r} is a {type(value).__name__}", follows=False)
        try:
            return self._translation.held(value)
        except Unsupported as error:
            return Absent(f"{str(name)!r} is {error}", follows=False)

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def _translate(self, node: torch.fx.Node, module: torch.nn.Module | None = None) -> None:
        """Compute the value of a node; `module` holds its attributes, by default the program's graph module."""
        if node.op == "get_attr":
            held = _attribute(module or self._program.graph_module, str(node.target))
            self._values[node] = self._held(held, node.target) if isinstance(held, torch.Tensor) else held
            return
        self._translation.node = node
        self._builder.called = self._names.variable(node_path(node))
        if self._open is not None:
            self._open.shapes.why = f"{full_name(called(node)[0])} ({node_path(node)})"
        try:
            self._values[node] = self._element(node) if node.target is operator.getitem else self._converted(node)
        except Unsupported as error:
            self._refuse(node, str(error), isinstance(error, Follows))
        except UnsupportedOperator as error:
            self._refuse(node, str(error))
        except MemoryError:
            raise
        except Exception as error:
            self._refuse(node, f"it cannot be translated: {first_line(error)}")

    def _refuse(self, node: torch.fx.Node, why: str, follows: bool = False) -> None:
        self.refused[node] = refusal(node, why, follows)
        self._values[node] = self._stand_in(node.name, node.meta.get("val"))

    def _stand_in(self, name: str, record: Any) -> Value:
        if isinstance(record, tuple | list):
            return tuple(self._stand_in(name, part) for part in record)
        if (why := self._unfit(record)) is not None:
            return Absent(f"{name!r} is {why}", follows=True)
        return self._translation.emit(relax.op.zeros(self._translation.shape_in(record), NAMES[record.dtype]))

    def _element(self, node: torch.fx.Node) -> Value:
        several, place = node.args
        assert isinstance(several, torch.fx.Node)
        held = self._values[several]
        if isinstance(held, Absent):
            raise refused_operand(held)
        value = held[place]
        if isinstance(value, Missing):
            self._refuse(several, f"it uses {value.why}, which is not computed")
            value = self._values[several][place]
        if several in self.refused:
            self._refuse(node, f"{several.name!r} is refused", follows=True)
            return self._values[node]
        return value

    def _converted(self, node: torch.fx.Node) -> Value:
        record = node.meta.get("val")
        target = called(node)[0]
        name, effects = full_name(target), target is not node.target
        if node in self._of_assertions:
            return asserted(self._translation, node, operand_values(list(node.args), self._values))
        if self._open is not None and isinstance(record, torch.SymInt) and self._open.knows(record):
            return self._open.size(record)
        if self._open is not None and isinstance(record, torch.SymBool):
            return record  # an assertion on it becomes a guard
        if self._is_open(record):
            if any(self._is_open(source.meta.get("val")) for source in node.all_input_nodes):
                raise Follows("a size of an operand is known only at run time")
            raise Unsupported(_OPEN)
        if self._open is not None and name in _OF_SIZES:
            self._guard(node)
            return None
        if target is torch.ops.higher_order.cond:
            return self._conditional(node)
        if isinstance(target, torch._ops.HigherOrderOperator):
            raise Unsupported(
                "higher-order operators, such as a branch or a loop, are not supported; expected operators on tensors"
            )
        if not isinstance(target, torch._ops.OpOverload):
            raise Unsupported("")
        of_complex = isinstance(record, torch.Tensor) and record.is_complex()
        if isinstance(record, torch.Tensor) and not of_complex and (why := self._unfit(record)) is not None:
            raise Unsupported(f"its result is {why}")
        arguments = arguments_by_name(node, self._values)
        of_open = self._open is not None and self._of_open(node, record, arguments)
        if of_open and name not in ANY_SHAPE and name not in OPEN:
            raise Unsupported("not supported for tensors of dynamic shape")
        if of_open:
            require_elements(self._translation, name, arguments)
        if of_open and name not in TAKE_SIZES:
            arguments = {key: self._without_sizes(value) for key, value in arguments.items()}
        if effects:
            convert = self._converters.get(name)
            if convert is None:
                raise Unsupported("")
            returned = convert(self._translation, **arguments)
            return (None, *returned) if isinstance(returned, tuple | list) else (None, returned)
        value = few_bits(self._translation, name, arguments)
        if value is None:
            kept = _WEIGHTS.get(name)
            arguments = {key: held if key == kept else self._as_tensors(held) for key, held in arguments.items()}
        if value is None and name not in DEQUANTISING:
            value = self._known(node)
        if value is None:
            value = self._empty(record)
        if value is None:
            convert = OPEN.get(name) if of_open else None
            convert = convert or self._converters.get(name)
            if of_complex or _has_complex(arguments.values()):
                convert = OF_COMPLEX.get(name)
                if convert is None:
                    raise Unsupported("complex numbers are not supported; expected real ones")
            if convert is None:
                raise Unsupported(self._why_not(node))
            value = convert(self._translation, **arguments)
        self._check(value, record)
        return value

    def _as_tensors(self, value: Value) -> Value:
        """Convert low-bit weights in an argument to floats."""
        if isinstance(value, FewBits):
            return self._translation.constant(value.floats())
        return [self._as_tensors(part) for part in value] if isinstance(value, list) else value

    def _of_open(self, node: torch.fx.Node, record: Any, arguments: Mapping[str, Value]) -> bool:
        """Return whether a node's result, or a tensor or number that it reads, is dynamic."""
        records = [record, *(source.meta.get("val") for source in node.all_input_nodes)]
        return any(map(is_open, records))

    def _without_sizes(self, value: Value) -> Value:
        """Convert sizes in an argument to tensors."""
        if isinstance(value, relax.Expr) and tvm.ir.is_prim_expr(value):
            return as_number(self._translation, value)
        return value

    def _guard(self, node: torch.fx.Node) -> None:
        """Add a guard for an assertion of the program about sizes."""
        assert self._open is not None
        asserted_of = node.args[0]
        held = asserted_of.meta.get("val") if isinstance(asserted_of, torch.fx.Node) else asserted_of
        if isinstance(held, torch.SymBool):
            try:
                self._open.require(held.node.expr)
            except NoSizeError as error:
                raise Unsupported(f"an assertion on {error} is not supported; expected comparisons of sizes") from None
        elif held is False:
            raise Unsupported("an assertion that fails")

    def _is_open(self, record: Any) -> bool:
        """Return whether a record contains a size or number known only at run time, other than the sizes of inputs."""
        return is_open(record) and (self._open is None or not self._open.knows(record))

    def _unfit(self, record: Any) -> str | None:
        """The reason why a value cannot be a Relax value; None if it can."""
        if not isinstance(record, torch.Tensor):
            return f"a {type(record).__name__}; expected a tensor"
        if record.layout is not torch.strided or record.dtype not in NAMES:
            return f"a tensor of type {record.dtype}, {record.layout}; expected a dense tensor of numbers"
        return "a tensor with a size known only at run time" if self._is_open(record) else None

    def _check(self, value: Value, expected: Any) -> None:
        """Check that a converter's result has the shapes and types that PyTorch recorded."""
        if isinstance(expected, tuple | list):
            if not isinstance(value, tuple | list) or len(value) != len(expected):
                raise ValueError(f"{len(expected)} outputs are expected")
            for part, record in zip(value, expected, strict=True):
                self._check(part, record)
        elif isinstance(value, Complex):
            parts = torch.empty(expected.shape, dtype=expected.dtype.to_real(), device="meta")
            self._check(value.real, parts)
            self._check(value.imag, parts)
        elif isinstance(expected, torch.Tensor) and not isinstance(value, Missing):
            few = isinstance(value, FewBits)
            found = (value.shape, NAMES[value.dtype]) if few else (shape_of(value), dtype_of(value))
            wanted = (self._translation.shape_in(expected), NAMES.get(expected.dtype, str(expected.dtype)))
            if found != wanted and not self._agree(found, wanted):
                raise ValueError(
                    f"its translation has type {found[1]} and shape {found[0]}, but PyTorch {wanted[1]} and {wanted[0]}"
                )

    def _agree(self, found: tuple[Any, str], wanted: tuple[Any, str]) -> bool:
        """Return whether shapes and types are known to be equal with dynamic dimensions."""
        if self._open is None or found[1] != wanted[1] or len(found[0]) != len(wanted[0]):
            return False
        return all(self._open.shapes.same(*pair) for pair in zip(found[0], wanted[0], strict=True))

    def _conditional(self, node: torch.fx.Node) -> Value:
        """torch.cond: both branches are computed, and the condition selects from their results."""
        condition, taken, other, operands = operand_values(list(node.args), self._values)
        results = [self._branch(node, side, operands) for side in (taken, other)]
        if not isinstance(condition, relax.Expr):
            return results[0 if condition else 1]
        chosen = []
        for a, b, record in zip(*results, node.meta["val"], strict=True):
            if is_open(record):
                raise Unsupported(_OPEN)
            chosen.append(self._translation.emit(relax.op.where(condition, a, b)))
        self._check(chosen, node.meta["val"])
        return tuple(chosen)

    def _branch(self, node: torch.fx.Node, side: Any, operands: Sequence[Value]) -> Sequence[relax.Expr]:
        """The results of one branch of a node, whose graph takes `operands`."""
        inputs = [inner for inner in side.graph.nodes if inner.op == "placeholder"]
        self._values.update(zip(inputs, operands, strict=True))
        for inner in side.graph.nodes:
            if inner.op in ("get_attr", "call_function"):
                self._translate(inner, side)
        refused = [self.refused[inner] for inner in side.graph.nodes if inner in self.refused]
        own = [each for each in refused if not each.follows]
        if refused:
            self._translation.node = node
            said = "; ".join(f"{each.operator}{': ' + each.why if each.why else ''}" for each in own or refused)
            raise Unsupported(f"in a branch: {said}")
        (returned,) = (inner.args[0] for inner in side.graph.nodes if inner.op == "output")
        results = operand_values(list(returned), self._values)
        if not all(isinstance(result, relax.Expr) for result in results):
            raise Unsupported("a branch returns a value that is not a real tensor; expected tensors")
        return results

    def _why_not(self, node: torch.fx.Node) -> str:
        """The reason why a node without a converter is unsupported: it is random, or too large to evaluate; empty if
        the operator itself is the reason."""
        known = self._translation.known
        if torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
            return "it draws random numbers; expected them as an argument"
        if node.all_input_nodes and all(_is_known(self._values[source], known) for source in node.all_input_nodes):
            return f"a constant of more than {_LARGEST_KNOWN} elements; expected a supported operator"
        return ""

    def _known(self, node: torch.fx.Node) -> Value:
        """The result if it depends only on constants, evaluated by PyTorch now.

        None for random results, and for results that exceed both a limit and the size of their operands.
        """
        record = node.meta.get("val")
        if not isinstance(record, torch.Tensor) or torch.Tag.nondeterministic_seeded in node.target.tags:  # type: ignore[union-attr]
            return None
        sizes = [0]

        def content(source: torch.fx.Node) -> torch.Tensor:
            value = self._values[source]
            held = value.floats() if isinstance(value, FewBits) else self._translation.known[value]
            sizes.append(held.numel())
            return held

        try:
            args, kwargs = map_arg((node.args, node.kwargs), content)
        except (KeyError, TypeError):  # a value known only at run time
            return None
        if record.numel() > max(_LARGEST_KNOWN, *sizes):
            return None
        with torch.no_grad():
            return self._translation.held(node.target(*args, **kwargs))  # type: ignore[operator]

    def _empty(self, record: Any) -> Value:
        """One or several empty results: nothing is computed for them."""
        if is_open(record):
            return None
        if isinstance(record, tuple | list):
            parts = [self._empty(part) for part in record]
            return None if not parts or any(part is None for part in parts) else parts
        if not isinstance(record, torch.Tensor) or 0 not in record.shape:
            return None
        if record.is_complex():
            part = self._translation.emit(relax.op.zeros(tuple(map(int, record.shape)), NAMES[record.dtype.to_real()]))
            return Complex(part, part)
        if record.dtype not in NAMES:
            return None
        return self._translation.emit(relax.op.zeros(tuple(map(int, record.shape)), NAMES[record.dtype]))

    def _behind_checks(self, tensors: list[relax.Expr]) -> list[relax.Expr]:
        """The outputs, the first of which depends on the results of checks, so that they are executed."""

        def behind(value: te.Tensor, check: te.Tensor) -> te.Tensor:
            # Passed checks return nonnegative values.
            passed = check[tuple(0 for _ in check.shape)] >= tirx.const(0, check.dtype)
            return te.compute(
                value.shape,
                lambda *at: tirx.if_then_else(passed, value[at], tirx.const(0, value.dtype)),
                name="checked",
            )

        for check in self._translation.checks if tensors else ():
            tensors = [self._translation.te(behind, tensors[0], check, primfunc_name_hint="checked"), *tensors[1:]]
        return tensors

    def _output(self, node: torch.fx.Node) -> relax.Expr:
        value = self._as_tensors(self._values.get(node))
        if isinstance(value, Missing):
            self._refuse(node, f"it uses {value.why}, which is not computed")
            value = self._values[node]
        if isinstance(value, relax.Expr):
            return value
        # A tensor of a type or shape that TVM does not support: its producer is refused, or it is an input.
        said = value.why if isinstance(value, Absent) else f"{node.name!r} is not a tensor"
        if isinstance(value, Complex):
            said = "an output is complex; expected its parts, as returned by view_as_real"
        self.refused.setdefault(node, refusal(node, said, False))
        return relax.const(0)


def held_tensor(program: torch.export.ExportedProgram, target: Any) -> Any:
    """A parameter, buffer or constant of a program by its name; None if there is none."""
    return program.state_dict[target] if target in program.state_dict else program.constants.get(target)


def is_open(record: Any) -> bool:
    """Return whether PyTorch's record of a result contains a size or number known only at run time."""
    if isinstance(record, tuple | list):
        return any(map(is_open, record))
    if isinstance(record, torch.Tensor):
        return not all(isinstance(extent, int) for extent in record.shape)
    return isinstance(record, torch.SymInt | torch.SymFloat | torch.SymBool)


def _is_known(value: Value, known: Mapping[relax.Expr, torch.Tensor]) -> bool:
    if isinstance(value, Complex):
        return value.real in known and value.imag in known
    return isinstance(value, relax.Expr) and value in known


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _unique(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _has_complex(values: Iterable[Value]) -> bool:
    return any(
        isinstance(value, Complex) or (isinstance(value, tuple | list) and _has_complex(value)) for value in values
    )
