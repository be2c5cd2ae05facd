"""Inputs of ONNX operators that have to be known at compile time, and their values inferred from declared shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np
import onnx

from .graph import OnnxGraph, attributes, static_shape

_REDUCE = "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"
REDUCTIONS = frozenset([*_REDUCE.split(), "ReduceSumSquare"])

# Indices of the inputs whose values determine shapes or axes.
VALUE_INPUTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "CenterCropPad": (1,),
    "ConstantOfShape": (0,),
    "Col2Im": (1, 2),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (2,),
    "Expand": (1,),
    "MaxUnpool": (2,),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    **dict.fromkeys(REDUCTIONS, (1,)),
}

# The number of axis subsets doubles with each dimension.
MAX_RANK = 10

Shape = tuple[int, ...]


def settle_values(graph: OnnxGraph, types: dict[str, onnx.ValueInfoProto]) -> bool:
    """Replace values that determine shapes by constants if the declared shapes allow only one choice; return whether
    any were replaced.

    A file that declares the static shape of a Reshape's result, for example, thereby states the value of its second
    input.
    """
    constants, settled = graph.constants(), False
    for node in graph.graph.node:
        rule = _RULES.get(node.op_type)
        if rule is None or len(node.input) <= VALUE_INPUTS[node.op_type][0]:
            continue
        place = VALUE_INPUTS[node.op_type][0]
        name = node.input[place]
        shapes = [static_shape(types[name]) if name in types else None for name in (node.input[0], *node.output)]
        if not name or name in constants or any(shape is None for shape in shapes[1:]):
            continue
        value = rule(node, shapes)
        if value is not None:
            constant = graph.fresh_name(f"{name}_declared")
            graph.add_constant(constant, np.asarray(value, np.int64))
            named = zip((node.input[0], *node.output), shapes, strict=True)
            graph.relied.update((tensor, shape) for tensor, shape in named if shape is not None)
            node.input[place] = constant
            settled = True
    return settled


def _result_shape(node: onnx.NodeProto, shapes: list[Shape]) -> Shape:
    return shapes[1]


def _as_reshape(node: onnx.NodeProto, shapes: list[Shape]) -> Shape:
    """Convert Squeeze and Unsqueeze with unknown axes to Reshape: they say no more than the shape of their result."""
    node.op_type = "Reshape"
    return shapes[1]


def _reshape(node: onnx.NodeProto, shapes: list[Shape]) -> Shape | None:
    zero_kept = not attributes(node).get("allowzero", 0)
    return None if zero_kept and 0 in shapes[1] else shapes[1]


def _repeats(node: onnx.NodeProto, shapes: list[Shape]) -> list[int] | None:
    before, after = shapes
    if before is None or 0 in before:
        return None
    return [new // old for old, new in zip(before, after, strict=True)]


def _top(node: onnx.NodeProto, shapes: list[Shape]) -> list[int]:
    return [shapes[1][attributes(node).get("axis", -1)]]


def _parts(node: onnx.NodeProto, shapes: list[Shape]) -> list[int]:
    return [shape[attributes(node).get("axis", 0)] for shape in shapes[1:]]


def _reduced_axes(node: onnx.NodeProto, shapes: list[Shape]) -> list[int] | None:
    """The axes of a reduction if only one choice of them gives the declared shape."""
    before, after = shapes
    given = attributes(node)
    if before is None or len(before) > MAX_RANK or (given.get("noop_with_empty_axes", 0) and before == after):
        return None
    keep = given.get("keepdims", 1)
    fitting = [axes for axes in _choices(len(before)) if _reduced(before, axes, keep) == after]
    return list(fitting[0]) if len(fitting) == 1 else None


def _choices(rank: int) -> Iterable[tuple[int, ...]]:
    return (axes for count in range(1, rank + 1) for axes in combinations(range(rank), count))


def _reduced(shape: Shape, axes: tuple[int, ...], keep: int) -> Shape:
    if keep:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


_RULES: dict[str, Callable] = {
    "ConstantOfShape": _result_shape,
    "Expand": _result_shape,
    "Reshape": _reshape,
    "Split": _parts,
    "Squeeze": _as_reshape,
    "Tile": _repeats,
    "TopK": _top,
    "Unsqueeze": _as_reshape,
    **dict.fromkeys(REDUCTIONS, _reduced_axes),
}
