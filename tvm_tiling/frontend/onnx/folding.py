"""Constant folding of an ONNX graph before compilation, so that shapes are numbers when TVM reads it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from ...limits import Limits
from .branches import lift_branches, take_branches
from .corrected import correct_shapes, standard_shape
from .evaluated import evaluated
from .graph import SMALL_BYTES, OnnxGraph, attributes, node_name, static_shape
from .loops import unroll_loops
from .shapes import all_known, inferred_types

_ROUNDS_WITHOUT_VALUES = 3
_CORRECTIONS = 64  # rounds: each corrects shapes that do not depend on other wrong ones
# Raised by inference for a node: unknown operator, input of unknown kind, contradictory inputs or attributes.
UNKNOWN = (
    onnx.defs.SchemaError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    ValueError,
)
_ITEM_BYTES = {
    kind: onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
    for kind in onnx.TensorProto.DataType.values()
    if kind != onnx.TensorProto.UNDEFINED
}
# By how many tensors operators on sequences change the length.
_SEQUENCE_CHANGES = {"Identity": 0, "SequenceErase": -1, "SequenceInsert": 1}
# Operators whose work is at most a small multiple of their inputs and outputs.
CHEAP = frozenset(
    [
        "Abs",
        "Add",
        "And",
        "Cast",
        "CastLike",
        "Ceil",
        "Clip",
        "Concat",
        "ConstantOfShape",
        "Cos",
        "DequantizeLinear",
        "Div",
        "Equal",
        "Exp",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "Greater",
        "GreaterOrEqual",
        "Identity",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "MelWeightMatrix",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "OneHot",
        "Or",
        "Pow",
        "Range",
        "Reciprocal",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "Relu",
        "Reshape",
        "Round",
        "ScatterND",
        "Sign",
        "Sin",
        "Slice",
        "Split",
        "Sqrt",
        "Squeeze",
        "Sub",
        "Sum",
        "Tile",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)


@dataclass
class Budget:
    """Bytes of the constants computed so far, checked against the limits; `weights`: bytes of those in the file."""

    limits: Limits
    weights: int
    used: int = 0

    def take(self, what: str, size: int) -> None:
        """Raise LimitError if `size` more bytes exceed the limit for `what`."""
        self.used += size
        self.limits.require_constants(what, self.used, self.weights)


def fold_constants(graph: OnnxGraph, budget: Budget) -> dict[str, onnx.ValueInfoProto]:
    """Replace everything known at compile time by constants. Return the types inferred afterwards.

    The shape of a tensor with a fixed shape counts as known. LimitError if the requested constants exceed the budget.
    """
    rounds, with_values = 0, False
    while True:
        types = _types(graph)
        if with_values:
            types = _types(graph, types)
        _refuse_sizes(graph, types, budget)
        rounds += 1
        changed = _fold_once(graph, types, budget) or take_branches(graph) or unroll_loops(graph, types, budget.limits)
        if not changed and (with_values or all_known(graph, types)):
            # No further condition can become known.
            if not lift_branches(graph):
                return types
            changed = True
        # What follows from constants alone is known and bounded before shapes are computed from shapes.
        with_values = with_values or not changed or rounds >= _ROUNDS_WITHOUT_VALUES


def _types(graph: OnnxGraph, known: dict[str, onnx.ValueInfoProto] | None = None) -> dict[str, onnx.ValueInfoProto]:
    """Return the inferred types of all tensors, with wrong shapes corrected."""
    types = inferred_types(graph, known)
    for _ in range(_CORRECTIONS):
        if not correct_shapes(graph, types):
            break
        types = inferred_types(graph, known)
    return types


def _refuse_sizes(graph: OnnxGraph, types: dict[str, onnx.ValueInfoProto], budget: Budget) -> None:
    """Raise LimitError if a tensor of known shape is too large."""
    most = max(budget.limits.tensor_bytes, budget.weights)
    large = {name: size for name, value in types.items() if (size := size_of(value) or 0) > most}
    if not large:
        return
    for value in graph.inputs():
        budget.limits.require_tensor(f"{graph.where}: input {value.name!r}", large.get(value.name, 0), budget.weights)
    for node in graph.graph.node:
        for name in node.output:
            what = f"{graph.where}: node {node_name(node)} ({node.op_type}): {name!r}"
            budget.limits.require_tensor(what, large.get(name, 0), budget.weights)


def _fold_once(graph: OnnxGraph, types: dict[str, onnx.ValueInfoProto], budget: Budget) -> bool:
    """Process all nodes once. Return whether anything changed."""
    constants, kept, changed = graph.constants(), [], False
    fresh = _Fresh(graph, types)
    outputs = {value.name for value in graph.graph.output}
    for node in graph.graph.node:
        values = _known_values(graph, node, constants, fresh.types, budget)
        if values is None:
            kept.append(node)
            fresh.infer(node, constants)
            continue
        changed = True
        for name, value in zip(node.output, values, strict=False):
            if name:
                constants[name] = value
                fresh.names.add(name)
                graph.add_constant(name, value)
    if not changed:
        return False
    for name in outputs & {name for node in graph.graph.node for name in node.output} - {
        name for node in kept for name in node.output
    }:
        # An output of the graph must be produced by a node.
        inner = graph.fresh_name(f"{name}_value")
        _rename_constant(graph, name, inner)
        kept.append(onnx.helper.make_node("Identity", [inner], [name], name=f"{name}_value"))
    graph.replace_nodes(kept)
    return True


class _Fresh:
    """Types during a pass over the nodes: what follows from constants of the same pass is inferred node by node, so
    that a chain of dependent shapes takes a single pass."""

    def __init__(self, graph: OnnxGraph, types: dict[str, onnx.ValueInfoProto]) -> None:
        self.types = dict(types)
        self.names: set[str] = set()  # tensors that became known in this pass
        self._graph = graph

    def infer(self, node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> None:
        """Record the types of a node's results if they follow from what became known."""
        if not self.names.intersection(node.input) or any(entry.HasField("g") for entry in node.attribute):
            return
        if all(name in self.types and static_shape(self.types[name]) is not None for name in node.output if name):
            return
        kinds, data = {}, {}
        for name in filter(None, node.input):
            value = constants.get(name)
            if value is not None and value.dtype.kind not in "OSU":
                kinds[name] = onnx.helper.make_tensor_type_proto(
                    onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
                )
                if value.nbytes <= SMALL_BYTES:
                    data[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
            elif name in self.types:
                kinds[name] = self.types[name].type
        shapes = {name: static_shape(onnx.ValueInfoProto(name=name, type=kind)) for name, kind in kinds.items()}
        opsets = list(self._graph.proto.opset_import)
        try:
            schema = onnx.defs.get_schema(node.op_type, self._graph.opset, node.domain)
            found = onnx.shape_inference.infer_node_outputs(schema, node, kinds, data, opset_imports=opsets)
        except UNKNOWN:  # the shape stays unknown; the error is reported when the node is converted
            return
        standard = standard_shape(node, shapes)
        for name, kind in found.items():
            if standard is not None:
                kind = onnx.helper.make_tensor_type_proto(kind.tensor_type.elem_type, standard)
            self.types[name] = onnx.ValueInfoProto(name=name, type=kind)
            self.names.add(name)


def _rename_constant(graph: OnnxGraph, old: str, new: str) -> None:
    for tensor in graph.graph.initializer:
        if tensor.name == old:
            tensor.name = new
    if old in graph.weights:
        graph.weights[new] = graph.weights.pop(old)
        next(value for value in graph.graph.input if value.name == old).name = new


def _known_values(
    graph: OnnxGraph,
    node: onnx.NodeProto,
    constants: dict[str, np.ndarray],
    types: dict[str, onnx.ValueInfoProto],
    budget: Budget,
) -> list[np.ndarray] | None:
    """Return the outputs of a node if they are known at compile time."""
    if node.domain:
        return None
    if node.op_type == "Constant":
        return [_constant_value(node)]
    if node.op_type in ("Shape", "Size"):
        return _shape_values(graph, node, types)
    if node.op_type == "SequenceLength":
        length = _sequence_length(graph, node.input[0])
        return None if length is None else [np.array(length, np.int64)]
    if node.op_type not in CHEAP or any(name and name not in constants for name in node.input):
        return None
    if _makes_only_outputs(graph, node) or _divides_by_zero(node, constants) or _stays_quantised(node, constants):
        return None
    sizes = [size_of(types.get(name)) for name in node.output if name]
    if None in sizes:
        return None
    budget.take(f"{graph.where}: node {node_name(node)} ({node.op_type})", sum(filter(None, sizes)))
    return evaluated(node, {entry.domain: entry.version for entry in graph.proto.opset_import}, constants)


def _makes_only_outputs(graph: OnnxGraph, node: onnx.NodeProto) -> bool:
    """Return whether a node is the Identity through which a constant is returned."""
    returned = {value.name for value in graph.graph.output}
    return node.op_type == "Identity" and set(node.output) <= returned


def _stays_quantised(node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> bool:
    """Return whether a node dequantises a tensor that matrix multiplications consume as integers: 8-bit weights and
    their biases."""
    if node.op_type != "DequantizeLinear":
        return False
    data = constants[node.input[0]]
    return data.ndim > 0 and data.dtype in (np.int8, np.uint8, np.int32)


def _divides_by_zero(node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> bool:
    """Return whether a node divides integers by zero, which its converter refuses."""
    if node.op_type not in ("Div", "Mod"):
        return False
    divisors = constants[node.input[1]]
    return divisors.dtype.kind in "iu" and not divisors.all()


def size_of(value: onnx.ValueInfoProto | None) -> int | None:
    """Return the bytes of a tensor of inferred type, or None if its shape or type is unknown."""
    shape = static_shape(value) if value is not None else None
    if value is None or shape is None or value.type.tensor_type.elem_type not in _ITEM_BYTES:
        return None
    return math.prod(shape) * _ITEM_BYTES[value.type.tensor_type.elem_type]


def _constant_value(node: onnx.NodeProto) -> np.ndarray:
    given = attributes(node)
    if "value" in given:
        return numpy_helper.to_array(given["value"])
    for name, dtype in (("value_int", np.int64), ("value_ints", np.int64), ("value_float", np.float32)):
        if name in given:
            return np.array(given[name], dtype)
    if "value_floats" in given:
        return np.array(given["value_floats"], np.float32)
    return np.array(given.get("value_string", given.get("value_strings")), dtype=object)


def _shape_values(
    graph: OnnxGraph, node: onnx.NodeProto, types: dict[str, onnx.ValueInfoProto]
) -> list[np.ndarray] | None:
    value = types.get(node.input[0])
    shape = static_shape(value) if value is not None else None
    if shape is None:
        return None
    graph.relied[node.input[0]] = shape
    if node.op_type == "Size":
        return [np.array(math.prod(shape), np.int64)]
    given = attributes(node)
    return [np.array(shape[given.get("start", 0) : given.get("end")], np.int64)]


def _sequence_length(graph: OnnxGraph, name: str) -> int | None:
    """Return how many tensors a sequence contains, if that follows from how it was made."""
    makers = {made: node for node in graph.graph.node for made in node.output}
    change = 0
    while name in makers:
        node = makers[name]
        if node.op_type == "SequenceConstruct":
            return len(node.input) + change
        if node.op_type == "SequenceEmpty":
            return change
        if node.op_type not in _SEQUENCE_CHANGES:
            return None
        change += _SEQUENCE_CHANGES[node.op_type]
        name = node.input[0]
    return None
