"""TVM's ONNX importer with the operators of this package beside its own, and errors that name nodes."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import onnx
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.relax.frontend.onnx import onnx_frontend

from ...errors import ModelFormatError, TilingError, UnsupportedOperator
from ...refusal import blocks_closed
from ...runtime.tensors import tensor_of
from ..imported import first_line
from ..node_names import NamingBuilder, NodeNames, with_bound_parts
from .graph import OnnxGraph, attributes, node_name, nodes_in, operator_name, reported_name, static_shape
from .operators import CONVERTERS
from .tensors import shape_of
from .values import VALUE_INPUTS

# Operators that TVM reads a shape from, where others want a tensor.
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
# Operators whose result is one value, be it a tuple.
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

# Operators of VALUE_INPUTS whose result has an open shape whatever these values are.
_OPEN_ANYWAY = frozenset(["NonMaxSuppression"])


def converters() -> dict[str, Any]:
    """The converter of each operator that can be imported, by its operator_name()."""
    return {**onnx_frontend._get_convert_map(), **CONVERTERS}


class ContradictedShape(ModelFormatError):
    """A tensor has another shape than the one that is declared or inferred for it."""


class OnnxImporter(onnx_frontend.ONNXGraphImporter):
    """Builds the Relax function of a prepared graph."""

    def __init__(self, prepared: OnnxGraph) -> None:
        shapes = {value.name: static_shape(value) for value in prepared.inputs()}
        super().__init__(shapes, None)
        self.bb = NamingBuilder()
        self._names = NodeNames()
        self._prepared = prepared
        self._read = {name for node in nodes_in(prepared.proto) for name in node.input}
        self._read |= {value.name for value in prepared.graph.output}
        self._converters = converters()

    def module(self) -> tvm.IRModule:
        """The graph as a module with the function "main", its variables by their nodes."""
        with blocks_closed(self.bb):
            return self._names.attached(self.from_onnx(self._prepared.graph, self._prepared.opset))

    def _parse_graph_initializers(self, graph: onnx.GraphProto) -> None:
        for name, value in self._prepared.take_constants():
            self._nodes[name] = relax.const(tensor_of(value))

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
        """Nothing: every unserved operator was named before."""

    def _construct_nodes(self, graph: onnx.GraphProto) -> None:
        for node in graph.node:
            self.bb.called = self._names.variable(reported_name(node))
            if node.op_type == "If":
                self._branch(node)
                continue
            results = self._results(node)
            for name, value in zip(node.output, results, strict=False):
                self._nodes[name] = value
                self._require_relied(node, name, value)
        self.bb.called = ""
        for value in graph.output:
            self._nodes[value.name] = self._tensor(self._nodes[value.name])

    def _require_relied(self, node: onnx.NodeProto, name: str, value: relax.Expr) -> None:
        """ContradictedShape where a tensor has another shape than the one that constants were computed from."""
        expected = self._prepared.relied.get(name)
        if expected is None or not isinstance(value.ty, relax.TensorType) or _is_open(value):
            return
        shape = tuple(shape_of(value))
        if shape != expected:
            raise ContradictedShape(
                f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): {name!r} is of shape {shape}; "
                f"expected {expected}, as is declared or inferred for it"
            )

    def _branch(self, node: onnx.NodeProto) -> None:
        """An If whose branches name what was computed before it."""
        given = attributes(node)
        sides = [
            [self._tensor(self._nodes[inner.input[0]]) for inner in given[name].node]
            for name in ("then_branch", "else_branch")
        ]
        for taken, other in zip(*sides, strict=True):
            if not tvm_ffi.structural_equal(taken.ty, other.ty):
                raise UnsupportedOperator(
                    f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): its branches give "
                    f"{_described(taken)} and {_described(other)}, and the run decides between them; "
                    "expected tensors of one shape and type"
                )
        bodies = [relax.SeqExpr([], values[0] if len(values) == 1 else relax.Tuple(values)) for values in sides]
        result = self.bb.emit(relax.If(self._nodes[node.input[0]], *bodies))
        for index, name in enumerate(node.output):
            self._nodes[name] = result if len(node.output) == 1 else self.bb.emit(relax.TupleGetItem(result, index))

    def _tensor(self, value: relax.Expr) -> relax.Expr:
        """A value, as a tensor where it is a shape or an extent."""
        if tvm.ir.is_prim_expr(value):
            vector = self.bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr([value])))
            return self.bb.emit(relax.op.reshape(vector, []))
        return self.bb.emit(relax.op.shape_to_tensor(value)) if isinstance(value.ty, relax.ShapeType) else value

    def _results(self, node: onnx.NodeProto) -> list[relax.Expr]:
        inputs = onnx_frontend.onnx_input(self._nodes[name] if name else None for name in node.input)
        if node.op_type not in _TAKE_SHAPES:
            for place, value in enumerate(inputs):
                if isinstance(value, relax.Expr):
                    inputs[place] = self._tensor(value)
        given = self._parse_attr(node.attribute)
        where = f"node {node_name(node)} ({node.op_type})"
        given["tvm_custom"] = {"name": node.name, "num_outputs": len(node.output), "where": where}
        try:
            result = self._convert_operator(operator_name(node), inputs, given, self.opset)
        except ModelFormatError as error:
            raise ModelFormatError(f"{self._prepared.where}: {error}") from None
        except Exception as error:
            raise self._refusal(node, error) from error
        result = self._bound(node, result)
        if node.op_type in _MAKE_SEQUENCES or node.op_type == "Identity":
            return [result]
        if node.op_type not in _OPEN_ANYWAY and _is_open(result) and (unknown := self._unknown_values(node)):
            raise self._value_refusal(node, unknown)
        if isinstance(result.ty, relax.TensorType) and result.ty.shape is None:
            raise UnsupportedOperator(
                f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): "
                "the shape of its result follows from sizes that are not known before the run"
            )
        if not isinstance(result, relax.Tuple) and isinstance(result.ty, relax.TupleType):
            return [self.bb.emit(relax.TupleGetItem(result, place)) for place in range(len(result.ty.fields))]
        results = list(result) if isinstance(result, relax.Tuple) else [result]
        if len(results) < len([name for name in node.output if name]):
            raise UnsupportedOperator(
                f"{self._prepared.where}: node {node_name(node)} ({node.op_type}) has {len(node.output)} outputs; "
                f"accepted: {len(results)}"
            )
        return results

    def _convert_operator(self, op_name: str, inputs: list, attrs: dict, opset: int) -> relax.Expr:
        converter = self._converters[op_name].get_converter(opset)
        result = converter(self.bb, inputs, attrs, [self._nodes, self._params])
        return self.bb.normalize(with_bound_parts(self.bb, result)) if isinstance(result, relax.Expr) else result

    def _bound(self, node: onnx.NodeProto, result: relax.Expr) -> relax.Expr:
        """What computes the result of a node, as a variable that has the node's name."""
        is_tensor = isinstance(result.ty, relax.TensorType | relax.TupleType)
        if isinstance(result, relax.Call | relax.TupleGetItem) and is_tensor and not self._read.isdisjoint(node.output):
            return self.bb.emit(result)
        return result

    def _refusal(self, node: onnx.NodeProto, error: Exception) -> UnsupportedOperator:
        """What to say of a node that cannot be imported."""
        if unknown := self._unknown_values(node):
            return self._value_refusal(node, unknown)
        where = f"{self._prepared.where}: node {node_name(node)} ({node.op_type})"
        open_inputs = [name for name in node.input if name in self._nodes and _is_open(self._nodes[name])]
        if isinstance(error, TypeError) and open_inputs:
            # An extent that is not known is not a number.
            return UnsupportedOperator(
                f"{where} is not served for the shape of {open_inputs[0]!r}, which is not known before the run"
            )
        return UnsupportedOperator(f"{where} is not served in this form: {first_line(error)}")

    def _unknown_values(self, node: onnx.NodeProto) -> list[str]:
        """The inputs of the model that decide what has to be known of a node before the run."""
        places = VALUE_INPUTS.get(node.op_type, ())
        return self._prepared.inputs_behind(node.input[place] for place in places if place < len(node.input))

    def _value_refusal(self, node: onnx.NodeProto, unknown: list[str]) -> UnsupportedOperator:
        return UnsupportedOperator(
            f"{self._prepared.where}: node {node_name(node)} ({node.op_type}): it takes the value of "
            f"{', '.join(map(repr, unknown))}, which is not known before the run; "
            f"accepted: params={{{', '.join(f'{name!r}: value' for name in unknown)}}}"
        )


def _described(value: relax.Expr) -> str:
    """What a message calls a value: by its type and shape."""
    if not isinstance(value.ty, relax.TensorType):
        return "what is not a tensor"
    extents = value.ty.shape if value.ty.shape is not None else ["?"]
    listed = ", ".join(str(extent.value if isinstance(extent, tirx.IntImm) else extent) for extent in extents)
    return f"{value.ty.dtype} of shape ({listed})"


def _is_open(result: relax.Expr) -> bool:
    """Whether the shape of a tensor is known at run time only."""
    shape = getattr(result.ty, "shape", None)
    if not isinstance(result.ty, relax.TensorType):
        return False
    return not isinstance(shape, relax.ShapeExpr) or not all(isinstance(s, tirx.IntImm) for s in shape.values)


@contextlib.contextmanager
def importing(where: str):
    """Errors of TVM's builder outside of any node, as one sentence."""
    try:
        yield
    except (TilingError, MemoryError):
        raise
    except Exception as error:
        raise UnsupportedOperator(f"{where}: cannot be imported: {first_line(error)}") from error
