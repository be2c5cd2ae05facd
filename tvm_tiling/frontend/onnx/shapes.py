"""Static shapes for the inputs of an ONNX model, and the shapes inferred from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import shape_inference

from ...errors import ModelFormatError
from ...limits import MAX_EXTENT
from ..imported import check_dims, first_line
from .graph import OnnxGraph, static_shape
from .open_inputs import name_dimensions

_LONGEST_SHAPE = 32  # maximum elements of shape vectors
# Operators through which shape inference propagates values.
_VALUED = frozenset(["Add", "Cast", "Concat", "Gather", "Mul", "Size", "Slice", "Squeeze", "Sub", "Unsqueeze"])


def bind_shapes(
    graph: OnnxGraph,
    shapes: Mapping[str, Sequence[int]],
    batch: int | None,
    dims: Mapping[str, int],
    *,
    leave_open: bool = False,
) -> None:
    """Assign every input a static shape, or, with `leave_open`, a size or a name for each dimension.

    `shapes` maps input names to complete shapes; `batch` replaces the first dimension of every input that leaves it
    dynamic; `dims` maps dimension names to sizes. A name with a size has it everywhere. Raises ModelFormatError for
    conflicts and remaining dynamic dimensions.
    """
    inputs = {value.name: value for value in graph.inputs()}
    for name, value in inputs.items():
        if not value.type.HasField("tensor_type"):
            kind = (value.type.WhichOneof("value") or "untyped").removesuffix("_type")
            raise ModelFormatError(f"{graph.where}: input {name!r} has kind {kind}; expected tensors")
    unknown = sorted(set(shapes) - set(inputs))
    if unknown:
        raise ModelFormatError(
            f"{graph.where}: shapes names {', '.join(map(repr, unknown))}; the inputs are "
            f"{', '.join(map(repr, inputs)) or 'none'}"
        )
    if leave_open:
        name_dimensions(graph)
    open_names = _open_names(inputs.values())
    check_dims(dims, open_names, graph.where)
    symbols = dict(dims)
    for name, shape in shapes.items():
        _bind_whole(graph, inputs[name], tuple(shape), symbols)
    if batch is not None:
        leading = [value for value in inputs.values() if _leads_open(value)]
        if not leading:
            raise ModelFormatError(f"{graph.where}: batch is given, but no input has a dynamic first dimension")
        for value in leading:
            _settle(graph, value, 0, batch, symbols)
    for value in (*graph.graph.input, *graph.graph.output, *graph.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
    left_open = [value for value in inputs.values() if static_shape(value) is None]
    if leave_open:
        left_open = [value for value in left_open if not value.type.tensor_type.HasField("shape")]
    if left_open:
        open_inputs = [_described(value) for value in left_open]
        example = left_open[0].name
        left = [name for name in open_names if name not in symbols]
        named = f", dims={{{left[0]!r}: ...}} for a dimension by name" if left else ""
        raise ModelFormatError(
            f"{graph.where}: the shape of {', '.join(open_inputs)} is dynamic; expected batch=... for first "
            f"dimensions{named}, or shapes={{{example!r}: (...)}} with a number for each dimension"
        )
    for value in inputs.values():
        for dim in value.type.tensor_type.shape.dim:
            if not 0 <= dim.dim_value <= MAX_EXTENT:
                raise ModelFormatError(
                    f"{graph.where}: a dimension of {_described(value)} is out of range: {dim.dim_value}; "
                    f"expected 0 to {MAX_EXTENT}"
                )


def _leads_open(value: onnx.ValueInfoProto) -> bool:
    sizes = value.type.tensor_type.shape.dim
    return bool(sizes) and not sizes[0].HasField("dim_value")


def _open_names(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    """Names of dimensions without a size, in order."""
    sizes = [dim for value in values for dim in value.type.tensor_type.shape.dim]
    return list(dict.fromkeys(dim.dim_param for dim in sizes if dim.dim_param))


def _bind_whole(graph: OnnxGraph, value: onnx.ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    if any(
        isinstance(extent, bool) or not isinstance(extent, int) or not 0 <= extent <= MAX_EXTENT for extent in shape
    ):
        raise ModelFormatError(
            f"{graph.where}: shapes[{value.name!r}] = {shape}; expected sizes from 0 to {MAX_EXTENT}"
        )
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        declared.shape.CopyFrom(onnx.TensorShapeProto())
        for extent in shape:
            declared.shape.dim.add().dim_value = extent
        return
    fits = len(shape) == len(declared.shape.dim) and all(
        dim.dim_value == extent
        for dim, extent in zip(declared.shape.dim, shape, strict=True)
        if dim.HasField("dim_value")
    )
    if not fits:
        raise ModelFormatError(f"{graph.where}: shapes[{value.name!r}] = {shape} does not match {_described(value)}")
    for axis, extent in enumerate(shape):
        if not declared.shape.dim[axis].HasField("dim_value"):
            _settle(graph, value, axis, extent, symbols)


def _settle(graph: OnnxGraph, value: onnx.ValueInfoProto, axis: int, extent: int, symbols: dict[str, int]) -> None:
    dim = value.type.tensor_type.shape.dim[axis]
    symbol = dim.dim_param
    if symbol and symbols.setdefault(symbol, extent) != extent:
        raise ModelFormatError(
            f"{graph.where}: dimension {symbol!r} of input {value.name!r} is {extent}, but {symbols[symbol]} elsewhere"
        )
    dim.dim_value = extent


def _described(value: onnx.ValueInfoProto) -> str:
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return f"input {value.name!r} (of any rank)"
    dims = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in declared.shape.dim]
    return f"input {value.name!r} ({', '.join(dims)})"


def inferred_types(
    graph: OnnxGraph, known: Mapping[str, onnx.ValueInfoProto] | None = None
) -> dict[str, onnx.ValueInfoProto]:
    """Inferred types and shapes of all tensors, by name, including constants.

    `known`: the result of an inference without values; with it, shapes computed from the shapes of other tensors are
    inferred too.
    """
    proto = graph.proto if known is None else _with_short_values(graph, known)
    try:
        model = shape_inference.infer_shapes(proto, data_prop=known is not None)
    except Exception as error:
        raise ModelFormatError(f"{graph.where}: {first_line(error)}") from None
    constants = (
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
    )
    inferred = (*constants, *model.graph.input, *model.graph.value_info, *model.graph.output)
    return {value.name: value for value in inferred}


def _with_short_values(graph: OnnxGraph, known: Mapping[str, onnx.ValueInfoProto]) -> onnx.ModelProto:
    """The model for inference with values, which takes about 100 bytes per element of every vector that is added,
    multiplied, concatenated or sliced, whether or not it is a shape. A small file can request a vector of any length,
    which inference itself may determine. So operators on vectors not known to be short are replaced by others of the
    same type without values, or by inputs."""
    lengths = {tensor.name: _length(tuple(tensor.dims)) for tensor in graph.graph.initializer}
    lengths.update((name, _length_of(value)) for name, value in known.items())
    long = []
    for place, node in enumerate(graph.graph.node):
        if node.op_type in _VALUED:
            total = sum(lengths.get(name, math.inf) for name in node.input if name)
            if lengths.get(node.output[0], math.inf) == math.inf:
                lengths[node.output[0]] = total
            short = total <= _LONGEST_SHAPE
        else:
            short = not any(attribute.HasField("g") for attribute in node.attribute)
        if not short:
            long.append(place)
    if not long:
        return graph.proto
    stripped = onnx.ModelProto()
    stripped.CopyFrom(graph.proto)
    for place in reversed(long):
        _without_value(stripped.graph, place, known)
    return stripped


def _length(shape: Sequence[int]) -> float:
    """Elements of a vector or a scalar; 0 for tensors of higher rank, whose values are not inferred."""
    return math.prod(shape) if len(shape) < 2 else 0


def _length_of(value: onnx.ValueInfoProto) -> float:
    """Elements of a vector or a scalar of this type; infinite if unknown."""
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return math.inf
    shape = static_shape(value)
    return _length(shape) if shape is not None else math.inf if len(declared.shape.dim) == 1 else 0


def _without_value(graph: onnx.GraphProto, place: int, known: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Prevent inference from computing the values of a node's outputs."""
    node = graph.node[place]
    if node.op_type in ("Add", "Sub", "Mul"):
        node.op_type = "Div"  # same types and shapes, no value
        return
    made = [name for name in node.output if name]
    del graph.node[place]
    for described in (graph.value_info, graph.output):
        for value in [value for value in described if value.name in made]:
            described.remove(value)
    graph.input.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in made)


def all_known(graph: OnnxGraph, types: Mapping[str, onnx.ValueInfoProto]) -> bool:
    """Return whether the shape of every tensor is static."""
    names = {name for node in graph.graph.node for name in node.output if name}
    return all(name in types and static_shape(types[name]) is not None for name in names)
