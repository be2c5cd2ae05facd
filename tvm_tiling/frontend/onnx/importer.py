"""TVM's ONNX importer extended by the operators of this package, with errors that name nodes."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from ...errors import ModelFormatError, TilingError, UnsupportedOperator
from ...refusal import blocks_closed
from ...runtime.tensors import bytes_in_place, tensor_of
from ..imported import first_line
from ..node_names import NamingBuilder, NodeNames, with_bound_parts
from ..size_tensors import as_tensor
from ..size_values import MOST_ELEMENTS, SizeValue, of_constant, size_value
from .graph import OnnxGraph, attributes, node_name, nodes_in, operator_name, reported_name, static_shape
from .node_checks import check_node, shape_text
from .node_inference import check_inference
from .open_inputs import OpenInputs
from .open_node import OpenNode, is_open
from .open_operators import OPEN
from .open_supported import ANY_SHAPE
from .operand_checks import Operands, check_operands
from .operators import CONVERTERS
from .size_rules import SizeNode, evaluated, shape_value
from .tensors import shape_of
from .values import VALUE_INPUTS

# Operators for which TVM accepts a shape where others need a tensor.
_TAKE_SHAPES = frozenset(
    [
        "Reshape",
        "Resize",
        "ConstantOfShape",
        "Gather",
        "Slice",
        "Shape",
        "Expand",
        "Concat",
        "Equal",
        "Where",
        "Cast",
        "CastLike",
        "Squeeze",
    ]
)
# Operators whose result is one value, even if it is a tuple.
_MAKE_SEQUENCES = frozenset(
    [
        "Optional",
        "OptionalGetElement",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "ConcatFromSequence",
        "SplitToSequence",
    ]
)

# Operators of VALUE_INPUTS whose result has a data-dependent shape whatever these values are.
_OPEN_ANYWAY = frozenset(["NonMaxSuppression"])


def converters() -> dict[str, Any]:
    """Return the converter of each operator that can be imported, by its operator_name()."""
    return {**onnx_frontend._get_convert_map(), **CONVERTERS}


# Errors whose messages are about code, not about a model.
_OF_CODE = (AttributeError, IndexError, KeyError, ZeroDivisionError)


class ContradictedShape(ModelFormatError):
    """A tensor has a shape other than the one declared or inferred for it."""


class OnnxImporter(onnx_frontend.ONNXGraphImporter):
    """Builds the Relax function of a prepared graph."""

    def __init__(self, prepared: OnnxGraph, opened: OpenInputs | None = None) -> None:
        fixed = {value.name: static_shape(value) for value in prepared.inputs()}
        super().__init__(fixed if opened is None else opened.extents, None)
        self.bb = NamingBuilder()
        self.bb.shapes = self._open = None if opened is None else opened.shapes
        self._values: dict[str, SizeValue] = {}  # for dynamic models: results that are known as sizes
        self._names = NodeNames()
        self._prepared = prepared
        self._read = {name for node in nodes_in(prepared.proto) for name in node.input}
        self._read |= {value.name for value in prepared.graph.output}
        self._converters = converters()

    def module(self) -> tvm.IRModule:
        """Return the graph as a module with the function "main", with variables named after their nodes."""
        with blocks_closed(self.bb):
            return self._names.attached(self.from_onnx(self._prepared.graph, self._prepared.opset))

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        for name, value in self._prepared.take_constants():
            made = bytes_in_place if value.dtype == np.uint8 else tensor_of
            self._nodes[name] = relax.const(made(value))

    def _parse_graph_input(self, graph: onnx.GraphProto) -> None:
        taken: set[str] = set()
        for value in self._prepared.inputs():
            name = re.sub(r"\W", "_", value.name)
            name = f"input_{name}" if not name or name[0].isdigit() else name
            while name in taken:
                name += "_"
            taken.add(name)
            dtype = onnx_frontend.get_type(value.type.tensor_type.elem_type)
            self._nodes[value.name] = self._new_var(name, shape=self._shape[value.name], dtype=dtype)
            self._inputs[value.name] = self._nodes[value.name]
            self._num_input += 1

    def _check_for_unsupported_ops(self, graph: onnx.GraphProto) -> None:
        """Do nothing: unsupported operators have been reported already."""

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            self.bb.called = self._names.variable(reported_name(node))
            if self._open is not None:
                self._open.why = f"node {node_name(node)} ({node.op_type})"
                if self._is_of_sizes(node):
                    continue
            if node.op_type == "If":
                self._branch(node)
                continue
            results = self._results(node)
            for name, value in zip(node.output, results, strict=False):
                self._nodes[name] = value
                self._require_relied(node, name, value)
        self.bb.called = ""
        for value in graph.output:
            self._nodes[value.name] = self._tensor(self._operand(value.name))

    def _require_relied(self, node: onnx.NodeProto, name: str, value: relax.Expr) -> None:
        """Raise ContradictedShape if a tensor has a shape other than the one that constants were computed from."""
        expected = self._prepared.relied.get(name)
        if expected is None or not isinstance(value.ty, relax.TensorType):
            return
        if is_open(value):
            extents = value.ty.shape.values if isinstance(value.ty.shape, relax.ShapeExpr) else []
            if self._open is not None and len(extents) == len(expected):
                for extent, number in zip(extents, expected, strict=True):
                    self._open.agreed(extent, number)
            return
        shape = tuple(shape_of(value))
        if shape != expected:
            raise ContradictedShape(
                f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): {name!r} has shape "
                f"{shape}; expected {expected}, as declared or inferred for it"
            )

    def _branch(self, node: onnx.NodeProto) -> None:
        """Convert an If whose branches refer to values computed before it."""
        given = attributes(node)
        sides = [
            [self._tensor(self._operand(inner.input[0])) for inner in given[name].node]
            for name in ("then_branch", "else_branch")
        ]
        condition = None if self._open is None else self._value(node.input[0])
        if condition is not None and condition.is_known and condition.values.size == 1:
            # A condition on sizes that is always the same.
            self._nodes.update(zip(node.output, sides[0 if condition.values.item() else 1], strict=True))
            return
        for taken, other in zip(*sides, strict=True):
            if not tvm_ffi.structural_equal(taken.ty, other.ty):
                raise UnsupportedOperator(
                    f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): its branches return "
                    f"{_described(taken)} and {_described(other)}, selected at run time; expected tensors of "
                    "the same shape and type"
                )
        bodies = [relax.SeqExpr([], values[0] if len(values) == 1 else relax.Tuple(values)) for values in sides]
        result = self.bb.emit(relax.If(self._operand(node.input[0]), *bodies))
        for index, name in enumerate(node.output):
            self._nodes[name] = result if len(node.output) == 1 else self.bb.emit(relax.TupleGetItem(result, index))

    def _tensor(self, value: relax.Expr) -> relax.Expr:
        """Return a value as a tensor, also if it is a shape or an extent."""
        if tvm.ir.is_prim_expr(value):
            vector = self.bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr([value])))
            return self.bb.emit(relax.op.reshape(vector, []))
        return self.bb.emit(relax.op.shape_to_tensor(value)) if isinstance(value.ty, relax.ShapeType) else value

    # ---- sizes of dynamic models ------------------------------------------------------------------------------------

    def _is_of_sizes(self, node: onnx.NodeProto) -> bool:
        """Return whether the result of a node is known as sizes, and record it in that case."""
        assert self._open is not None
        if node.domain or len(node.output) != 1 or not all(map(self._is_made, filter(None, node.input))):
            return False
        if node.op_type in ("Shape", "Size"):
            extents = self._extents(node.input[0])
            if extents is None:
                return False
            found: SizeValue | None = shape_value(
                extents, attributes(node) if node.op_type == "Shape" else {}, self._open
            )
            if node.op_type == "Size":
                found = size_value(self._open.product(extents))
        else:
            if self._values.keys().isdisjoint(node.input):
                return False
            values = tuple(self._value(name) if name else None for name in node.input)
            if any(value is None and name for name, value in zip(node.input, values, strict=True)):
                return False
            found = evaluated(node.op_type, SizeNode(values, attributes(node), self._open, self.opset))
        if found is not None:
            self._values[node.output[0]] = found
        return found is not None

    def _is_made(self, name: str) -> bool:
        return name in self._nodes or name in self._values

    def _extents(self, name: str) -> list[Any] | None:
        """Return the shape of a tensor, or of a value that is known as sizes."""
        if name in self._values:
            return list(self._values[name].values.shape)
        kind = self._nodes[name].ty
        shape = kind.shape if isinstance(kind, relax.TensorType) else None
        return list(shape.values) if isinstance(shape, relax.ShapeExpr) else None

    def _value(self, name: str) -> SizeValue | None:
        """Return a tensor, possibly constant, as sizes; None if it is not known as such."""
        if name not in self._values and (held := self._nodes.get(name)) is not None:
            value = (
                of_constant(held.value.numpy()) if isinstance(held, tvm.ir.GenericConst) and _is_small(held) else None
            )
            return value
        return self._values.get(name)

    def _operand(self, name: str) -> relax.Expr:
        """Return a tensor, created from its value if it is known as sizes."""
        if name not in self._nodes and name in self._values:
            self._nodes[name] = as_tensor(self.bb, self._values[name])
        return self._nodes[name]

    def _of_open(self, node: onnx.NodeProto, given: dict[str, Any]) -> relax.Expr | None:
        """Return the result of a node with symbolic input or result shapes; None if its converter for fixed shapes
        applies. ValueError if there is no rule for it."""
        assert self._open is not None
        places: list[relax.Expr | None] = [None] * len(node.input)

        def tensor(place: int) -> relax.Expr | None:
            if place >= len(node.input) or not node.input[place]:
                return None
            if places[place] is None:
                places[place] = self._tensor(self._operand(node.input[place]))
            return places[place]

        values = tuple(self._value(name) if name else None for name in node.input)
        by_size = any(name in self._values for name in node.input)
        opened = [name for name in node.input if name and name not in self._values and is_open(self._nodes[name])]
        if not by_size and not opened:
            return None
        name = operator_name(node)
        if name in OPEN:
            present, converter = tuple(map(bool, node.input)), self._converters[name]
            found = OPEN[name](OpenNode(self.bb, tensor, present, values, given, self._open, self.opset, converter))
            if found is not None:
                return self.bb.normalize(with_bound_parts(self.bb, found))
        if opened and name not in ANY_SHAPE:
            raise ValueError(f"not supported for tensors of dynamic shape, such as {opened[0]!r}")
        return None

    def _results(self, node: onnx.NodeProto) -> list[relax.Expr]:
        inputs = onnx_frontend.onnx_input()
        found = None
        given = self._parse_attr(node.attribute)
        where = f"node {node_name(node)} ({node.op_type})"
        given["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output), "where": where}
        with self._refusing(node):
            operands = Operands(
                given, lambda place: self._shape_at(node, place), lambda place: self._integers(node, place)
            )
            check_node(operator_name(node), given, operands.shape_of, operands.values)
            check_operands(operator_name(node), operands)
            self._infer(node)
        if self._open is not None:
            with self._refusing(node):
                found = self._of_open(node, given)
        if found is None:
            inputs.extend(self._operand(name) if name else None for name in node.input)
        if node.op_type not in _TAKE_SHAPES:
            for place, value in enumerate(inputs):
                if isinstance(value, relax.Expr):
                    inputs[place] = self._tensor(value)
        with self._refusing(node):
            result = (
                found if found is not None else self._convert_operator(operator_name(node), inputs, given, self.opset)
            )
            _check_extents(result)
        result = self._bound(node, result)
        if node.op_type in _MAKE_SEQUENCES or node.op_type == "Identity":
            return [result]
        if node.op_type not in _OPEN_ANYWAY and is_open(result) and (unknown := self._unknown_values(node)):
            raise self._value_refusal(node, unknown)
        if isinstance(result.ty, relax.TensorType) and result.ty.shape is None:
            raise UnsupportedOperator(
                f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): the shape of its result "
                "depends on sizes that are not known at compile time"
            )
        if not isinstance(result, relax.Tuple) and isinstance(result.ty, relax.TupleType):
            return [self.bb.emit(relax.TupleGetItem(result, place)) for place in range(len(result.ty.fields))]
        results = list(result) if isinstance(result, relax.Tuple) else [result]
        if len(results) < len([name for name in node.output if name]):
            raise UnsupportedOperator(
                f"{self._prepared.where}: node {node_name(node)} ({node.op_type}) has {len(node.output)} outputs; "
                f"expected {len(results)}"
            )
        return results

    def _shape_at(self, node: onnx.NodeProto, place: int) -> list[int | None] | None:
        """Return the shape of an input of a node, None if it is absent, not known or not a tensor; dynamic extents are
        None."""
        name = node.input[place] if place < len(node.input) else ""
        extents = self._extents(name) if name and self._is_made(name) else None
        if extents is None:
            return None
        return [int(extent) if isinstance(extent, int | tirx.IntImm) else None for extent in extents]

    def _infer(self, node: onnx.NodeProto) -> None:
        """Raise ValueError if the standard refuses the operands of a node."""
        operands: dict[str, tuple[str, list[int | None]]] = {}
        values: dict[str, np.ndarray] = {}
        for place, name in enumerate(node.input):
            if not name or name in operands:
                continue
            shape, held = self._shape_at(node, place), self._nodes.get(name)
            if shape is None:
                return
            operands[name] = self._values[name].dtype if name in self._values else str(held.ty.dtype), shape
            if isinstance(held, tvm.ir.GenericConst) and _is_small(held):
                values[name] = held.value.numpy()
        check_inference(node, operands, values, self.opset, self._prepared.proto.opset_import)

    def _integers(self, node: onnx.NodeProto, place: int) -> list[int] | None:
        """Return the integers of a small constant input of a node; None if it is absent or something else."""
        held = self._nodes.get(node.input[place]) if place < len(node.input) else None
        if not isinstance(held, tvm.ir.GenericConst) or not _is_small(held):
            return None
        return [int(value) for value in held.value.numpy().reshape(-1)]

    @contextlib.contextmanager
    def _refusing(self, node: onnx.NodeProto) -> Iterator[None]:
        """Convert errors of a node to sentences that name it."""
        try:
            yield
        except ModelFormatError as error:
            raise ModelFormatError(f"{self._prepared.where}: {error}") from None
        except Exception as error:
            raise self._refusal(node, error) from error

    def _convert_operator(self, op_name: str, inputs: list, attrs: dict, opset: int) -> relax.Expr:
        converter = self._converters[op_name].get_converter(opset)
        result = converter(self.bb, inputs, attrs, [self._nodes, self._params])
        return self.bb.normalize(with_bound_parts(self.bb, result)) if isinstance(result, relax.Expr) else result

    def _bound(self, node: onnx.NodeProto, result: relax.Expr) -> relax.Expr:
        """Bind the result of a node to a variable named after the node."""
        is_tensor = isinstance(result.ty, relax.TensorType | relax.TupleType)
        if isinstance(result, relax.Call | relax.TupleGetItem) and is_tensor and not self._read.isdisjoint(node.output):
            return self.bb.emit(result)
        return result

    def _refusal(self, node: onnx.NodeProto, error: Exception) -> UnsupportedOperator:
        """Return the error for a node that cannot be imported."""
        if unknown := self._unknown_values(node):
            return self._value_refusal(node, unknown)
        where = f"{self._prepared.where}: node {node_name(node)} ({node.op_type})"
        open_inputs = [name for name in node.input if name in self._nodes and is_open(self._nodes[name])]
        if open_inputs and (isinstance(error, TypeError) or "operator to Expr" in str(error)):
            # An unknown extent is not a number.
            return UnsupportedOperator(
                f"{where} is not supported for the shape of {open_inputs[0]!r}, which is not known at compile time"
            )
        return UnsupportedOperator(f"{where} is not supported in this form: {self._reason(node, error)}")

    def _reason(self, node: onnx.NodeProto, error: Exception) -> str:
        """Return the message of an error; for those about the code itself, the shapes that caused it."""
        said = first_line(error)
        if not isinstance(error, _OF_CODE) and not said.startswith("Check failed"):
            return said
        shapes = [self._shape_at(node, place) for place in range(len(node.input))]
        listed = ", ".join(shape_text(shape) for shape in shapes if shape is not None)
        return f"its attributes do not match its inputs, of shapes {listed}, or are not supported"

    def _unknown_values(self, node: onnx.NodeProto) -> list[str]:
        """Return the inputs of the model that determine what must be known about a node at compile time."""
        return self._prepared.inputs_behind(self._unknown_inputs(node))

    def _unknown_inputs(self, node: onnx.NodeProto) -> list[str]:
        """Return the inputs of a node that must be known at compile time and are not."""
        places = [place for place in VALUE_INPUTS.get(node.op_type, ()) if place < len(node.input)]
        if self._open is not None:
            places = [place for place in places if node.input[place] and self._value(node.input[place]) is None]
        return [node.input[place] for place in places]

    def _reads_sizes(self, node: onnx.NodeProto) -> bool:
        """Return whether the result of a node is the shape of a tensor that follows from the inputs' sizes."""
        if self._open is None or node.op_type not in ("Shape", "Size") or not self._is_made(node.input[0]):
            return False
        extents = self._extents(node.input[0])
        return extents is not None and all(self._open.extent(extent) is not None for extent in extents)

    def _value_refusal(self, node: onnx.NodeProto, unknown: list[str]) -> UnsupportedOperator:
        where = f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): it depends on"
        values = self._prepared.inputs_behind(self._unknown_inputs(node), lambda maker: not self._reads_sizes(maker))
        if not values:
            return UnsupportedOperator(
                f"{where} dynamic sizes of {', '.join(map(repr, unknown))} in a way that is not supported; expected "
                f"fixed sizes, as by shapes={{{', '.join(f'{name!r}: shape' for name in unknown)}}}"
            )
        return UnsupportedOperator(
            f"{where} the value of {', '.join(map(repr, values))}, which is not known at compile time; expected "
            f"params={{{', '.join(f'{name!r}: value' for name in values)}}}"
        )


def _described(value: relax.Expr) -> str:
    """Return the description of a value in messages: its type and shape."""
    if not isinstance(value.ty, relax.TensorType):
        return "a value that is not a tensor"
    extents = value.ty.shape if value.ty.shape is not None else ["?"]
    listed = ", ".join(str(extent.value if isinstance(extent, tirx.IntImm) else extent) for extent in extents)
    return f"{value.ty.dtype} of shape ({listed})"


def _check_extents(result: relax.Expr) -> None:
    """Raise ValueError if an extent of a result is negative, as of a tensor cropped by more than it has."""
    shape = result.ty.shape if isinstance(result.ty, relax.TensorType) else None
    if shape is not None and any(isinstance(extent, tirx.IntImm) and extent.value < 0 for extent in shape):
        raise ValueError(f"its result would be {_described(result)}")


def _is_small(constant: tvm.ir.GenericConst) -> bool:
    return math.prod(shape_of(constant)) <= MOST_ELEMENTS


@contextlib.contextmanager
def importing(where: str):
    """Convert errors of TVM's builder outside of any node to one sentence."""
    try:
        yield
    except (TilingError, MemoryError):
        raise
    except Exception as error:
        raise UnsupportedOperator(f"{where}: cannot be imported: {first_line(error)}") from error
