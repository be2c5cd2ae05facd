"""Fixed shapes for the inputs of an ONNX model, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import shape_inference

from ...errors import ModelFormatError
from ..imported import check_dims, first_line
from .graph import OnnxGraph, static_shape


def bind_shapes(
    graph: OnnxGraph, shapes: Mapping[str, Sequence[int]], batch: int | None, dims: Mapping[str, int]
) -> None:
    """Give every input a fixed shape.

    `shapes` maps names of inputs to whole shapes; `batch` stands for the first dimension of every input that leaves it
    open; `dims` maps names of dimensions to sizes. A name that gets a number has it everywhere. Raises
    ModelFormatError for what does not fit or stays open.
    """
    inputs = {value.name: value for value in graph.inputs()}
    for name, value in inputs.items():
        if not value.type.HasField("tensor_type"):
            kind = (value.type.WhichOneof("value") or "untyped").removesuffix("_type")
            raise ModelFormatError(f"{graph.where}: input {name!r} is of kind {kind}; accepted: tensors")
    unknown = sorted(set(shapes) - set(inputs))
    if unknown:
        raise ModelFormatError(
            f"{graph.where}: shapes names {', '.join(map(repr, unknown))}; the inputs are "
            f"{', '.join(map(repr, inputs)) or 'none'}"
        )
    open_names = _open_names(inputs.values())
    check_dims(dims, open_names, graph.where)
    symbols = dict(dims)
    for name, shape in shapes.items():
        _bind_whole(graph, inputs[name], tuple(shape), symbols)
    if batch is not None:
        leading = [value for value in inputs.values() if _leads_open(value)]
        if not leading:
            raise ModelFormatError(f"{graph.where}: batch given, but no input leaves its first dimension open")
        for value in leading:
            _settle(graph, value, 0, batch, symbols)
    for value in (*graph.graph.input, *graph.graph.output, *graph.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
    open_inputs = [_described(value) for value in inputs.values() if static_shape(value) is None]
    if open_inputs:
        example = next(value.name for value in inputs.values() if static_shape(value) is None)
        left = [name for name in open_names if name not in symbols]
        named = f", dims={{{left[0]!r}: ...}} for a dimension by name" if left else ""
        raise ModelFormatError(
            f"{graph.where}: the shape of {', '.join(open_inputs)} is open; accepted: batch=... for first "
            f"dimensions{named}, or shapes={{{example!r}: (...)}} with a number for each dimension"
        )


def _leads_open(value: onnx.ValueInfoProto) -> bool:
    sizes = value.type.tensor_type.shape.dim
    return bool(sizes) and not sizes[0].HasField("dim_value")


def _open_names(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    """Names of dimensions that have no size, in order."""
    sizes = [dim for value in values for dim in value.type.tensor_type.shape.dim]
    return list(dict.fromkeys(dim.dim_param for dim in sizes if dim.dim_param))


def _bind_whole(graph: OnnxGraph, value: onnx.ValueInfoProto, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    if any(isinstance(extent, bool) or not isinstance(extent, int) or extent < 0 for extent in shape):
        raise ModelFormatError(f"{graph.where}: shapes[{value.name!r}] = {shape}; accepted: sizes from 0")
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
        raise ModelFormatError(f"{graph.where}: shapes[{value.name!r}] = {shape}; the model has {_described(value)}")
    for axis, extent in enumerate(shape):
        if not declared.shape.dim[axis].HasField("dim_value"):
            _settle(graph, value, axis, extent, symbols)


def _settle(graph: OnnxGraph, value: onnx.ValueInfoProto, axis: int, extent: int, symbols: dict[str, int]) -> None:
    dim = value.type.tensor_type.shape.dim[axis]
    symbol = dim.dim_param
    if symbol and symbols.setdefault(symbol, extent) != extent:
        raise ModelFormatError(
            f"{graph.where}: dimension {symbol!r} of input {value.name!r} is {extent} and elsewhere {symbols[symbol]}"
        )
    dim.dim_value = extent


def _described(value: onnx.ValueInfoProto) -> str:
    declared = value.type.tensor_type
    if not declared.HasField("shape"):
        return f"input {value.name!r} (of any rank)"
    dims = [str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in declared.shape.dim]
    return f"input {value.name!r} ({', '.join(dims)})"


def inferred_types(graph: OnnxGraph) -> dict[str, onnx.ValueInfoProto]:
    """What is known of every tensor's type and shape, by name."""
    try:
        model = shape_inference.infer_shapes(graph.proto, data_prop=True)
    except Exception as error:
        raise ModelFormatError(f"{graph.where}: {first_line(error)}") from None
    return {value.name: value for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)}
