"""ONNX operators with symbolic shapes that must agree in ways other than broadcasting.

The tensors are cast to the common shape, and the converter for fixed shapes does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import relax

from ...figures import quantity
from ..open_shapes import Size
from .open_node import OpenNode, Rule, axis_of, word
from .recurrent import CONVERTERS as RECURRENT


def _recurrent(cell: str) -> Rule:
    """Return the rule for LSTM, GRU or RNN, whose states and lengths must have the batch of their inputs."""

    def rule(node: OpenNode) -> relax.Expr | None:
        outer = 0 if node.attr.get("layout", 0) else 1
        axes = {0: outer, 4: 0, 5: outer, **({6: outer} if cell == "lstm" else {})}
        batch, shapes = node.extents()[outer], {}
        for place, axis in axes.items():
            if node.has(place):
                batch = node.shapes.agreed(batch, node.extents(place)[axis])
        for place, axis in axes.items():
            if node.has(place):
                shapes[place] = [batch if i == axis else extent for i, extent in enumerate(node.extents(place))]
        return node.converted(shapes)

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
    return node.converted(bound)


def _along(node: OpenNode, updates: int | None) -> dict[int, list[Size]]:
    """Return the shapes of data, indices and updates for indexing along an axis: all must agree along the other axes if
    either is dynamic, and there must be as many updates as indices."""
    data, indices = node.extents(), node.extents(1)
    if len(data) != len(indices):
        raise ValueError(f"indices have {quantity(len(indices), 'axis', 'axes')}, but the data has {len(data)}")
    axis = axis_of(node.attr.get("axis", 0), len(data))
    for place, (extent, count) in enumerate(zip(data, indices, strict=True)):
        if place != axis and not (isinstance(extent, int) and isinstance(count, int)):
            data[place] = indices[place] = node.shapes.agreed(extent, count)
    if updates is None:
        return {0: data, 1: indices}
    both = [node.shapes.agreed(*pair) for pair in zip(indices, node.extents(updates), strict=True)]
    return {0: data, 1: both, updates: both}


def _gather_elements(node: OpenNode) -> relax.Expr | None:
    return node.converted(_along(node, None))


def _scatter_elements(node: OpenNode) -> relax.Expr | None:
    return node.converted(_along(node, 2))


def _scatter_nd(node: OpenNode) -> relax.Expr | None:
    data, indices, updates = (node.extents(place) for place in range(3))
    if not isinstance(indices[-1], int):
        raise ValueError("the last axis of the indices is dynamic")
    wanted = [*indices[:-1], *data[indices[-1] :]]
    if len(wanted) != len(updates):
        raise ValueError(f"updates have {quantity(len(updates), 'axis', 'axes')}; expected {len(wanted)}")
    both = [node.shapes.agreed(*pair) for pair in zip(wanted, updates, strict=True)]
    count = len(indices) - 1
    return node.converted(
        {0: [*data[: indices[-1]], *both[count:]], 1: [*both[:count], indices[-1]], 2: both},
    )


def _alike(*groups: Sequence[tuple[int, int]]) -> Rule:
    """Return the rule for operators whose tensors must agree along some axes: each group is pairs of an input and an
    axis with equal extents."""

    def rule(node: OpenNode) -> relax.Expr | None:
        shapes = {place: node.extents(place) for group in groups for place, _ in group if node.has(place)}
        for group in groups:
            held = [(place, axis) for place, axis in group if place in shapes]
            size: Size | None = None
            for place, axis in held:
                own = shapes[place][axis_of(axis, len(shapes[place]))]
                size = own if size is None else node.shapes.agreed(size, own)
            for place, axis in held:
                shapes[place][axis_of(axis, len(shapes[place]))] = size
        return node.converted(shapes)

    return rule


def _tensor_scatter(node: OpenNode) -> relax.Expr | None:
    """Caches and updates agree along all axes except one."""
    rank = len(node.extents())
    axis = axis_of(node.attr.get("axis", -2), rank)
    places = [((0, i), (1, i)) if i else ((0, 0), (1, 0), (2, 0)) for i in range(rank) if i != axis]
    return _alike(*places)(node)


def _reverse_sequence(node: OpenNode) -> relax.Expr | None:
    return _alike([(0, node.attr.get("batch_axis", 1)), (1, 0)])(node)


AGREEING: dict[str, Rule] = {
    "DeformConv": _alike([(0, 0), (2, 0), (4, 0)]),
    "GridSample": _alike([(0, 0), (1, 0)]),
    "NonMaxSuppression": _alike([(0, 0), (1, 0)], [(0, 1), (1, 2)]),
    "ReverseSequence": _reverse_sequence,
    "RoiAlign": _alike([(1, 0), (2, 0)]),
    "TensorScatter": _tensor_scatter,
    **{name: _recurrent(converter.cell) for name, converter in RECURRENT.items()},
    "Einsum": _einsum,
    "Scatter": _scatter_elements,
    "GatherElements": _gather_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
