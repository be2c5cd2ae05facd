"""Import of ONNX models as Relax modules."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import TensorProto, checker

from ...errors import ModelFormatError, UnsupportedOperator
from ...limits import Limits
from ...runtime.pages import Contents
from ...sizes import MayBeEmpty, OpenSizes
from ..imported import ImportedModel, first_line
from .block_tables import settle_tables
from .blocked_pairs import keep_blocks
from .corrected import forget_shapes
from .file import MAX_MESSAGE, parse_onnx, prepare_proto
from .folding import CHEAP, Budget, fold_constants
from .functions import write_out_functions
from .graph import OnnxGraph, keep_names, node_name, operator_name, static_shape
from .importer import ContradictedShape, OnnxImporter, converters, importing
from .open_inputs import open_inputs
from .shapes import bind_shapes
from .tensors import dtype_of
from .values import settle_values

OLDEST_OPSET = 7
# Tensor types; untyped tensors are left to the importer.
SERVED_TYPES = frozenset(
    getattr(TensorProto, name)
    for name in (
        [
            "UNDEFINED",
            "BOOL",
            "INT8",
            "INT16",
            "INT32",
            "INT64",
            "UINT8",
            "UINT16",
            "UINT32",
            "UINT64",
            "FLOAT16",
            "BFLOAT16",
            "FLOAT",
            "DOUBLE",
        ]
    )
)
_ACCEPTED = "expected floats of at least 16 bits, integers of at least 8 bits, bool"
# Handled by the importer itself.
_CONTROL = frozenset(["If", "Constant"])
# Unrolled if their number of iterations is known at compile time.
_LOOPS = frozenset(["Loop", "Scan"])


def import_onnx(
    model: Contents | onnx.ModelProto,
    *,
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    dims: Mapping[str, int],
    params: Mapping[str, Any],
    where: str,
    limits: Limits,
    folder: Path | None = None,
    leave_open: bool = False,
    may_be_empty: MayBeEmpty = MayBeEmpty(),  # noqa: B008  which is frozen
) -> ImportedModel:
    """Import an ONNX model from the contents of its file or from a ModelProto (which is not modified).

    `shapes`, `batch` and `dims` fix dynamic dimensions; the others stay symbolic with `leave_open` and are refused
    without; those in `may_be_empty` may be 0. `params` gives inputs constant values by name, `where` names the model in
    messages, `folder` is where external weights may be. Raises ModelFormatError, LimitError, UnsupportedOperator.
    """
    given = shapes, batch, dims, params, limits, leave_open, may_be_empty
    try:
        return _imported(_read(model, where, folder), *given)
    except ContradictedShape:
        graph = _read(model, where, folder)
        if not forget_shapes(graph):
            raise
        return _imported(graph, *given)


def _read(model: Contents | onnx.ModelProto, where: str, folder: Path | None) -> OnnxGraph:
    return parse_onnx(model, where, folder) if isinstance(model, Contents) else _copied(model, where, folder)


def _imported(
    graph: OnnxGraph,
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    dims: Mapping[str, int],
    params: Mapping[str, Any],
    limits: Limits,
    leave_open: bool,
    may_be_empty: MayBeEmpty,
) -> ImportedModel:
    where = graph.where
    keep_names(graph.proto)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= graph.opset <= newest:
        raise ModelFormatError(
            f"{where}: operator set {graph.opset} is not supported; expected {OLDEST_OPSET} to {newest}, the "
            f"newest of the installed onnx {onnx.__version__}"
        )
    _bind_params(graph, params)
    bind_shapes(graph, shapes, batch, dims, leave_open=leave_open)
    opened = open_inputs(graph, may_be_empty)
    supported = converters().keys() | _CONTROL
    write_out_functions(graph, supported, limits)
    _refuse_unsupported(graph, CHEAP | _LOOPS)
    _check(graph)
    keep_blocks(graph)
    settle_tables(graph)
    budget = Budget(limits, weights=sum(value.nbytes for value in graph.weights.values()))
    types = _folded(graph, budget, supported)
    if settle_values(graph, types):
        types = _folded(graph, budget, supported)
    _refuse_unsupported(graph, frozenset())
    _refuse_types(graph, types)
    importer = OnnxImporter(graph, opened)
    with importing(where):
        module = importer.module()
    inputs = graph.inputs()
    return ImportedModel(
        module=module,
        input_names=tuple(value.name for value in inputs),
        input_shapes=tuple(
            static_shape(value) or () if opened is None else opened.plain[value.name] for value in inputs
        ),
        input_dtypes=tuple(dtype_of(variable) for variable in module["main"].params),
        output_names=tuple(value.name for value in graph.graph.output),
        source="onnx",
        open_sizes=OpenSizes() if opened is None else opened.shapes.sizes(),
    )


def _folded(graph: OnnxGraph, budget: Budget, supported: Collection[str]) -> dict[str, onnx.ValueInfoProto]:
    """Return the types of a graph after folding constants and inlining functions, including those in former loops and
    branches."""
    types = fold_constants(graph, budget)
    while write_out_functions(graph, supported, budget.limits):
        types = fold_constants(graph, budget)
    return types


def _copied(model: onnx.ModelProto, where: str, folder: Path | None) -> OnnxGraph:
    """Parse a ModelProto in the way that its file would be read, so that its weights are copied once."""
    try:
        written = model.SerializeToString()
    except (ValueError, EncodeError):  # larger than a file may be
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
        return prepare_proto(copied, where, folder)
    return parse_onnx(Contents(written), where, folder)


def _bind_params(graph: OnnxGraph, params: Mapping[str, Any]) -> None:
    """Turn inputs into constants."""
    inputs = {value.name: value for value in graph.inputs()}
    unknown = sorted(set(params) - set(inputs))
    if unknown:
        raise ModelFormatError(
            f"{graph.where}: params names {', '.join(map(repr, unknown))}; the inputs are "
            f"{', '.join(map(repr, inputs)) or 'none'}"
        )
    for name, given in params.items():
        declared = inputs[name].type.tensor_type
        value = np.asarray(given.numpy() if hasattr(given, "numpy") else given)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
        shape = static_shape(inputs[name])
        if value.dtype != dtype or (shape is not None and value.shape != shape):
            raise ModelFormatError(
                f"{graph.where}: params[{name!r}] has type {value.dtype} and shape {value.shape}; "
                f"expected {dtype} of shape {shape if shape is not None else 'any'}"
            )
        graph.graph.input.remove(inputs[name])
        graph.add_constant(name, value)


def _refuse_unsupported(graph: OnnxGraph, folded: frozenset[str]) -> None:
    """Check that every operator has a converter or is in `folded`."""
    supported = converters().keys() | _CONTROL | folded
    refused: dict[str, list[str]] = {}
    for node in graph.graph.node:
        operator = operator_name(node)
        if operator not in supported:
            deciding: list[str] = []
            if operator in CHEAP:
                operator += " of values that are not known at compile time"
                deciding = graph.inputs_behind(node.input)
            elif operator == "Scan" and graph.opset < 9 and node.input[0]:
                operator += " whose sequence_lens are not known at compile time to be the whole length"
            elif operator in _LOOPS:
                # The trip count and the initial condition; those of a Scan are in its shapes.
                deciding = graph.inputs_behind(node.input[:2]) if operator == "Loop" else []
                operator += " of a number of iterations that is not known at compile time"
            if deciding:
                operator += f", unless params={{{', '.join(f'{name!r}: value' for name in deciding)}}}"
            refused.setdefault(operator, []).append(node_name(node))
    if refused:
        listed = "; ".join(f"{operator} (nodes {', '.join(names)})" for operator, names in sorted(refused.items()))
        raise UnsupportedOperator(f"{graph.where}: unsupported operators: {listed}")


def _refuse_types(graph: OnnxGraph, types: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Check that every remaining tensor has a type that TVM computes like ONNX: narrower types are rounded
    differently."""
    read = [(node, name) for node in graph.graph.node for name in (*node.input, *node.output)]
    for node, name in read:
        if kind := _unsupported_type(types.get(name)):
            raise UnsupportedOperator(
                f"{graph.where}: node {node_name(node)} ({node.op_type}) has tensor {name!r} of type {kind}; "
                f"{_ACCEPTED}"
            )
    for value in graph.inputs():
        if kind := _unsupported_type(value):
            raise UnsupportedOperator(f"{graph.where}: input {value.name!r} has type {kind}; {_ACCEPTED}")


def _unsupported_type(value: onnx.ValueInfoProto | None) -> str:
    """Return the name of a tensor's type if it is not supported, otherwise ""."""
    kind = value.type.tensor_type.elem_type if value is not None else TensorProto.UNDEFINED
    if kind in SERVED_TYPES:
        return ""
    return next((name for name, number in TensorProto.DataType.items() if number == kind), str(kind))


def _check(graph: OnnxGraph) -> None:
    """Check that the graph is valid ONNX, apart from missing types and shapes of outputs, which are common, and returns
    tensors."""
    for value in graph.graph.output:
        kind = (value.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
        if kind != "tensor":
            raise ModelFormatError(f"{graph.where}: output {value.name!r} has kind {kind}; expected tensors")
    if graph.proto.ByteSize() > MAX_MESSAGE:
        raise ModelFormatError(f"{graph.where}: the graph without its weights exceeds {MAX_MESSAGE} bytes")
    try:
        checked = onnx.ModelProto()
        checked.CopyFrom(graph.proto)
        for value in (*checked.graph.output, *checked.graph.value_info):
            if value.type.WhichOneof("value") in (None, "tensor_type"):
                value.type.tensor_type.shape.SetInParent()
                if value.type.tensor_type.elem_type == TensorProto.UNDEFINED:
                    value.type.tensor_type.elem_type = TensorProto.FLOAT
        checker.check_model(checked)
    except Exception as error:
        raise ModelFormatError(f"{graph.where}: {_with_node(error)}") from None


def _with_node(error: Exception) -> str:
    """Return the first line of the checker's message, in front of it the node that its context names."""
    line = first_line(error)
    found = re.search(r"Bad node spec for node\. Name: (.*) OpType: (\w+)", str(error))
    return line if found is None else f"node {found[1]!r} ({found[2]}): {line[:1].lower()}{line[1:]}"
