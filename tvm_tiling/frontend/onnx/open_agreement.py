"""ONNX operators whose tensors of open sizes have to agree otherwise than by broadcasting.

The tensors are bound to what they agree on, and the converter for fixed sizes does the rest.
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..fitting import cast
from ..open_shapes import Size
from .einsum import Einsum
from .indexing import CONVERTERS as INDEXING
from .open_node import OpenNode, Rule, axis_of, word
from .recurrent import CONVERTERS as RECURRENT
from .tensors import as_inputs


def _converted(node: OpenNode, converter: Any, shapes: dict[int, list[Size]]) -> relax.Expr:
    """What a converter makes of the inputs, those in `shapes` bound to these."""
    inputs = [node.tensor(place) if node.has(place) else None for place in range(len(node.given))]
    for place, shape in shapes.items():
        inputs[place] = cast(node.bb, inputs[place], [node.shapes.simplified(extent) for extent in shape])
    return converter.get_converter(node.opset)(node.bb, as_inputs(*inputs), node.attr, [])


def _recurrent(converter: Any) -> Rule:
    """LSTM, GRU and RNN, whose states and lengths have to be of the batch of their inputs."""

    def rule(node: OpenNode) -> relax.Expr | None:
        outer = 0 if node.attr.get("layout", 0) else 1
        axes = {0: outer, 4: 0, 5: outer, **({6: outer} if converter.cell == "lstm" else {})}
        batch, shapes = node.extents()[outer], {}
        for place, axis in axes.items():
            if node.has(place):
                batch = node.shapes.agreed(batch, node.extents(place)[axis])
        for place, axis in axes.items():
            if node.has(place):
                shapes[place] = [batch if i == axis else extent for i, extent in enumerate(node.extents(place))]
        return _converted(node, converter, shapes)

    return rule


def _einsum(node: OpenNode) -> relax.Expr | None:
    terms = word(node.attr["equation"]).replace(" ", "").partition("->")[0].split(",")
    shapes = [node.extents(place) for place in range(len(node.given))]
    if any("." in term for term in terms) or [len(term) for term in terms] != [len(shape) for shape in shapes]:
        return None
    agreed: dict[str, Size] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, extent in zip(term, shape, strict=True):
            agreed[letter] = node.shapes.broadcast([agreed.get(letter, 1), extent])
    bound = {
        place: [
            extent if isinstance(extent, int) and extent == 1 else agreed[letter]
            for letter, extent in zip(term, shape, strict=True)
        ]
        for place, (term, shape) in enumerate(zip(terms, shapes, strict=True))
    }
    return _converted(node, Einsum, bound)


def _along(node: OpenNode, updates: int | None) -> dict[int, list[Size]]:
    """Of indices that name elements along an axis: along others as many as the data has where either is open, and as
    many updates."""
    data, indices = node.extents(), node.extents(1)
    if len(data) != len(indices):
        raise ValueError(f"indices of {len(indices)} axes for data of {len(data)}")
    axis = axis_of(node.attr.get("axis", 0), len(data))
    for place, (extent, count) in enumerate(zip(data, indices, strict=True)):
        if place != axis and not (isinstance(extent, int) and isinstance(count, int)):
            data[place] = indices[place] = node.shapes.agreed(extent, count)
    if updates is None:
        return {0: data, 1: indices}
    both = [node.shapes.agreed(*pair) for pair in zip(indices, node.extents(updates), strict=True)]
    return {0: data, 1: both, updates: both}


def _gather_elements(node: OpenNode) -> relax.Expr | None:
    return _converted(node, INDEXING["GatherElements"], _along(node, None))


def _scatter_elements(node: OpenNode) -> relax.Expr | None:
    return _converted(node, INDEXING["ScatterElements"], _along(node, 2))


def _scatter_nd(node: OpenNode) -> relax.Expr | None:
    data, indices, updates = (node.extents(place) for place in range(3))
    if not isinstance(indices[-1], int):
        raise ValueError("indices of an open number of axes")
    wanted = [*indices[:-1], *data[indices[-1] :]]
    if len(wanted) != len(updates):
        raise ValueError(f"updates of {len(updates)} axes; expected {len(wanted)}")
    both = [node.shapes.agreed(*pair) for pair in zip(wanted, updates, strict=True)]
    count = len(indices) - 1
    return _converted(
        node,
        INDEXING["ScatterND"],
        {0: [*data[: indices[-1]], *both[count:]], 1: [*both[:count], indices[-1]], 2: both},
    )


AGREEING: dict[str, Rule] = {
    **{name: _recurrent(converter) for name, converter in RECURRENT.items()},
    "Einsum": _einsum,
    "GatherElements": _gather_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
