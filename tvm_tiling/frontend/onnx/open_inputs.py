"""Shapes of an ONNX model's inputs with dynamic dimensions."""

from __future__ import annotations

from dataclasses import dataclass

from ...sizes import MayBeEmpty, Named, Operation, Shape
from ..extent_text import read_extent
from ..open_shapes import OpenShapes, Size
from .graph import OnnxGraph


@dataclass(frozen=True)
class OpenInputs:
    """`shapes`: what is known about the symbolic sizes; `extents` and `plain`: the shape of each input by name, as
    expressions and as plain data."""

    shapes: OpenShapes
    extents: dict[str, list[Size]]
    plain: dict[str, Shape]


def name_dimensions(graph: OnnxGraph) -> None:
    """Name input dimensions that have neither size nor name by their position, as in x[0]."""
    taken = {dim.dim_param for value in graph.inputs() for dim in value.type.tensor_type.shape.dim}
    for value in graph.inputs():
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") or dim.dim_param.strip():
                continue
            name = f"{value.name}[{axis}]"
            while name in taken:
                name += "_"
            taken.add(name)
            dim.dim_param = name


def open_inputs(graph: OnnxGraph, may_be_empty: MayBeEmpty) -> OpenInputs | None:
    """Return the inputs of a graph whose dimensions have sizes or names; None if no dimension is dynamic.

    A name that is arithmetic on other names, each of which occurs by itself somewhere, is computed from them; any other
    name is a size.
    """
    dims = [dim for value in graph.inputs() for dim in value.type.tensor_type.shape.dim]
    texts = list(dict.fromkeys(dim.dim_param for dim in dims if not dim.HasField("dim_value")))
    if not texts:
        return None
    shapes = OpenShapes()
    found = {text: read_extent(text, texts) for text in texts}
    declared_shapes = [value.type.tensor_type.shape.dim for value in graph.inputs()]
    leading = {dims[0].dim_param for dims in declared_shapes if dims}
    for text, extent in found.items():
        if extent is None:
            shapes.variable(text, may_be_empty.least(text, leading))
    extents, plain = {}, {}
    for value in graph.inputs():
        shapes.why = f"input {value.name!r}"
        sizes: list[Size] = []
        declared: Shape = ()
        for dim in value.type.tensor_type.shape.dim:
            extent = int(dim.dim_value) if dim.HasField("dim_value") else found[dim.dim_param] or Named(dim.dim_param)
            declared += (extent,)
            sizes.append(shapes.size(extent))
            if isinstance(extent, Operation):
                shapes.require_at_least(sizes[-1], 0 if may_be_empty else 1)
        extents[value.name], plain[value.name] = sizes, declared
    return OpenInputs(shapes, extents, plain)
