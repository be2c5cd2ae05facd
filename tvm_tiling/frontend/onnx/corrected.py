"""Corrections where the onnx package infers shapes that differ from the standard.

It counts pooling windows that start in the padding after the image, gives ConvTranspose with an output_shape smaller
than its image too few axes, adds output_padding to the size that SAME requests, and misplaces negative axes of an
Unsqueeze before version 13. It does not verify declared shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from .graph import OnnxGraph, all_graphs, attributes, static_shape
from .pools import windows_of

_POOLS = frozenset(["AveragePool", "LpPool", "MaxPool"])


def forget_shapes(graph: OnnxGraph) -> bool:
    """Remove the shapes that a file declares for node outputs. Return whether there were any."""
    declared = [value for held in all_graphs(graph.proto) for value in held.value_info] + list(graph.graph.output)
    kinds = [value.type.tensor_type for value in declared if value.type.HasField("tensor_type")]
    shaped = [kind for kind in kinds if kind.HasField("shape")]
    for kind in shaped:
        kind.ClearField("shape")
    return bool(shaped)


def correct_shapes(graph: OnnxGraph, types: Mapping[str, onnx.ValueInfoProto]) -> bool:
    """Declare the correct shapes where `types` has different ones. Return whether there were any; everything that
    follows from them must be inferred again."""
    corrected: set[str] = set()
    shapes = {name: static_shape(value) for name, value in types.items()}
    shapes.update((tensor.name, tuple(tensor.dims)) for tensor in graph.graph.initializer)
    for node in graph.graph.node:
        if corrected.intersection(node.input):
            corrected.update(node.output)
            continue
        shape = standard_shape(node, shapes)
        if shape is None or shapes.get(node.output[0]) == shape:
            continue
        for name in filter(None, node.output):
            _declare(graph, name, shape, types)
            corrected.add(name)
    return bool(corrected)


def standard_shape(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """Return the shape of a node's result if it is one of these operators on a tensor of known shape."""
    if node.domain:
        return None
    if node.op_type == "Unsqueeze":
        return _unsqueezed(attributes(node), shapes.get(node.input[0]))
    if node.op_type not in _POOLS and node.op_type != "ConvTranspose":
        return None
    known = [shapes.get(name) for name in node.input[:2]]
    if not known or any(shape is None or len(shape) < 3 for shape in known):
        return None
    given = attributes(node)
    data = known[0]
    assert data is not None
    if node.op_type in _POOLS:
        try:
            return (*data[:2], *(window.count for window in windows_of(given, data[2:])))
        except (KeyError, ValueError, ZeroDivisionError):  # the converter reports what is wrong
            return None
    weights = known[1]
    assert weights is not None
    spatial = _transposed(given, data[2:])
    return None if spatial is None else (data[0], weights[1] * given.get("group", 1), *spatial)


def _unsqueezed(given: Mapping[str, Any], data: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return a shape with an extent of 1 at each of the axes given as an attribute."""
    if data is None or "axes" not in given:
        return None
    rank = len(data) + len(given["axes"])
    if not all(-rank <= axis < rank for axis in given["axes"]):
        return None
    added = {axis % rank for axis in given["axes"]}
    left = iter(data)
    return tuple(1 if axis in added else next(left) for axis in range(rank)) if len(added) == rank - len(data) else None


def _transposed(given: Mapping[str, Any], spatial: Sequence[int]) -> list[int] | None:
    """Return the spatial extents of a ConvTranspose's output if its attributes state them."""
    if "output_shape" in given:
        stated = list(given["output_shape"])[-len(spatial) :]
        return stated if len(stated) == len(spatial) else None
    strides = given.get("strides", [1] * len(spatial))
    if given.get("auto_pad", "NOTSET") not in ("SAME_UPPER", "SAME_LOWER") or len(strides) != len(spatial):
        return None
    return [extent * stride for extent, stride in zip(spatial, strides, strict=True)]


def _declare(graph: OnnxGraph, name: str, shape: tuple[int, ...], types: Mapping[str, onnx.ValueInfoProto]) -> None:
    known = types.get(name)
    kind = known.type.tensor_type.elem_type if known is not None else onnx.TensorProto.UNDEFINED
    described = onnx.helper.make_tensor_value_info(name, kind, shape)
    for values in (graph.graph.output, graph.graph.value_info):
        for value in values:
            if value.name == name:
                value.CopyFrom(described)
                return
    graph.graph.value_info.append(described)
