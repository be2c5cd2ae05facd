"""Nodes that compute shapes, positions and numbers from sizes, as exporters emit them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import helper
from onnx_generator import Draw, Graph, Value


def _shape_of(g: Graph, x: Value) -> Value | None:
    """Return the shape of a tensor, as a tensor."""
    name = g.fresh("t")
    node = helper.make_node("Shape", [x.name], [name])
    return g.values[-1] if g.add_nodes([node], [x], [name], True) else None


class _Chain:
    """Nodes that belong together while they are drawn."""

    def __init__(self, g: Graph) -> None:
        self.g, self.nodes, self.read = g, [], []

    def node(self, operator: str, *inputs: str | Value | Sequence[int], **attributes: object) -> str:
        """Add a node; a list among its inputs is a constant."""
        names = []
        for given in inputs:
            if isinstance(given, str):
                names.append(given)
                continue
            value = given if isinstance(given, Value) else self.g.constant(np.asarray(given, "int64"))
            self.read.append(value)
            names.append(value.name)
        name = self.g.fresh("t")
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def axes(self, operator: str, data: str | Value, axes: Sequence[int]) -> str:
        """Add a Squeeze or Unsqueeze in the variant of the graph's version."""
        if self.g.opset < 13:
            return self.node(operator, data, axes=list(axes))
        return self.node(operator, data, list(axes))

    def size(self, x: Value, axis: int) -> str:
        """Return the extent of an axis, as a vector of one."""
        shape = self.node("Shape", x)
        if self.g.chance(0.5):
            return self.node("Gather", shape, [axis])
        scalar = self.g.constant(np.asarray(axis, "int64"))
        return self.axes("Unsqueeze", self.node("Gather", shape, scalar), [0])

    def scalar(self, x: Value, axis: int) -> str:
        """Return the extent of an axis, as a number."""
        return self.node("Gather", self.node("Shape", x), self.g.constant(np.asarray(axis, "int64")))

    def keep(self, made: str, exact: bool = True) -> None:
        """Run them, and keep them if onnxruntime supports them."""
        self.g.add_nodes(self.nodes, self.read, [made], exact)


def flattened(g: Graph) -> None:
    """Merge some axes, or split one, by a computed shape."""
    x, chain = g.pick("fi", (2, 3, 4)), _Chain(g)
    rank = len(x.shape)
    first = g.number(0, rank - 2)
    last = g.number(first + 1, rank - 1)
    parts = [chain.size(x, axis) for axis in range(first)]
    if g.chance(0.5):
        product = chain.size(x, first)
        for axis in range(first + 1, last + 1):
            product = chain.node("Mul", product, chain.size(x, axis))
        parts.append(product)
        parts += [chain.size(x, axis) for axis in range(last + 1, rank)]
    else:
        parts = [chain.node("Identity", [0]) for _ in range(first)]
        parts.append(chain.node("Identity", [-1]))
        parts += [chain.size(x, axis) for axis in range(last + 1, rank)]
    shape = chain.node("Concat", *parts, axis=0)
    chain.keep(chain.node("Reshape", x, shape))


def parted(g: Graph) -> None:
    """Split heads: the last axis in two, with a constant size, exchanged with the axis before."""
    x, chain = g.pick("f", (2, 3)), _Chain(g)
    divisors = [n for n in (2, 3, 4, 5) if x.shape[-1] % n == 0 and x.shape[-1]]
    if not divisors:
        return
    heads = g.one_of(divisors)
    width = chain.node("Div", chain.size(x, -1), [heads]) if g.chance(0.5) else chain.node("Identity", [-1])
    sizes = [chain.size(x, axis) for axis in range(len(x.shape) - 1)]
    shape = chain.node("Concat", *sizes, chain.node("Identity", [heads]), width, axis=0)
    rank = len(x.shape) + 1
    order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
    chain.keep(chain.node("Transpose", chain.node("Reshape", x, shape), perm=order))


def expanded(g: Graph) -> None:
    """Expand to the shape of another tensor, or with another axis."""
    x, y, chain = g.pick("fi"), g.pick("fi"), _Chain(g)
    if g.chance(0.5):
        chain.keep(chain.node("Expand", x, chain.node("Shape", y)))
        return
    shape = chain.node("Concat", chain.size(y, 0) if y.shape else [2], chain.node("Shape", x), axis=0)
    chain.keep(chain.node("Expand", x, shape))


def counted(g: Graph) -> None:
    """Positions: 0 to a size, as a row or a mask."""
    x = g.pick("fi", (1, 2, 3, 4))
    chain, axis = _Chain(g), g.number(0, len(x.shape) - 1)
    zero, one = (g.constant(np.asarray(n, "int64")) for n in (g.number(0, 1), g.number(1, 2)))
    numbers = chain.node("Range", zero, chain.scalar(x, axis), one)
    if g.chance(0.5):
        chain.keep(chain.node("Cast", numbers, to=g.one_of((1, 6, 7))))
        return
    rows, columns = chain.axes("Unsqueeze", numbers, [1]), chain.axes("Unsqueeze", numbers, [0])
    chain.keep(chain.node(g.one_of(("Less", "Greater")), rows, columns))


def filled(g: Graph) -> None:
    """A constant in the shape of a tensor."""
    x, chain = g.pick("fib"), _Chain(g)
    value = helper.make_tensor("value", g.one_of((1, 6, 7)), [1], [g.number(-2, 2)])
    chain.keep(chain.node("ConstantOfShape", chain.node("Shape", x), value=value))


def cut(g: Graph) -> None:
    """As many elements as another tensor has, from the start or the end, or all but some."""
    if g.opset < 10:
        return
    x, y = g.pick("fi", (1, 2, 3)), g.pick("fi", (1, 2, 3))
    chain, axis = _Chain(g), g.number(0, len(x.shape) - 1)
    size = chain.size(y, g.number(0, len(y.shape) - 1))
    form = g.number(0, 3)
    if form == 0:
        ends: tuple = ([0], size)
    elif form == 1:
        ends = (chain.node("Mul", size, [-1]), [2**31 - 1])
    elif form == 2:
        ends = (chain.node("Sub", size, [g.number(0, 2)]), size)
    else:
        ends = (chain.node("Div", size, [2]), [2**31 - 1])
    chain.keep(chain.node("Slice", x, *ends, [axis], [g.one_of((1, 1, 1, 2))]))


def halved(g: Graph) -> None:
    """Two halves of an axis, one of them negated, as in rotary position embeddings."""
    if g.opset < 10:
        return
    x, chain = g.pick("f", (1, 2, 3, 4)), _Chain(g)
    axis = len(x.shape) - 1
    half = chain.node("Div", chain.size(x, axis), [2])
    left = chain.node("Slice", x, [0], half, [axis])
    right = chain.node("Slice", x, half, [2**31 - 1], [axis])
    chain.keep(chain.node("Concat", chain.node("Neg", right), left, axis=axis))


def resized(g: Graph) -> None:
    """Resize to computed sizes: those of another tensor, or a multiple."""
    if g.opset < 11:
        return
    x, chain = g.pick("f", (3, 4)), _Chain(g)
    if x.array.dtype.name != "float32":
        return
    sizes = [chain.size(x, 0), chain.size(x, 1)]
    y = g.pick("f", (3, 4)) if g.chance(0.3) else None
    for axis in range(2, len(x.shape)):
        if y is not None:
            sizes.append(chain.size(y, -1))
        else:
            sizes.append(chain.node("Mul", chain.size(x, axis), [g.number(1, 3)]))
    target = chain.node("Concat", *sizes, axis=0)
    none = g.constant(np.zeros(0, "float32"))
    places = g.one_of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    more = {"mode": g.one_of(("nearest", "linear", "linear")), "coordinate_transformation_mode": places}
    if more["mode"] == "nearest":
        more["nearest_mode"] = g.one_of(("floor", "round_prefer_floor", "ceil"))
    if g.opset < 13:
        chain.keep(chain.node("Resize", x, none, none, target, **more), False)
    else:
        chain.keep(chain.node("Resize", x, "", "", target, **more), False)


def widened(g: Graph) -> None:
    """Computed padding, to an even number of elements."""
    if g.opset < 11:
        return
    x = g.pick("f", (1, 2, 3))
    chain, rank = _Chain(g), len(x.shape)
    more = chain.node("Mod", chain.size(x, -1), [g.one_of((2, 4))])
    pads = [chain.node("Identity", [0]) for _ in range(2 * rank - 1)]
    chain.keep(chain.node("Pad", x, chain.node("Concat", *pads, more, axis=0)))


def tiled(g: Graph) -> None:
    """Repeat as often as another tensor has elements along an axis."""
    x, y = g.pick("fi", (1, 2, 3)), g.pick("fi", (1, 2, 3))
    chain = _Chain(g)
    place = g.number(0, len(x.shape) - 1)
    parts = [chain.node("Identity", [1]) for _ in x.shape]
    parts[place] = chain.size(y, 0)
    chain.keep(chain.node("Tile", x, chain.node("Concat", *parts, axis=0)))


def largest(g: Graph) -> None:
    """TopK with a computed k."""
    if g.opset < 11:
        return
    x = g.pick("f", (1, 2, 3), exact=True)
    chain, axis = _Chain(g), g.number(0, len(x.shape) - 1)
    if x.array.dtype.name == "float16":
        return
    pair = chain.node("Concat", chain.size(x, axis), [g.number(1, 5)], axis=0)
    if g.opset >= 13:
        count = chain.node("ReduceMin", pair, axes=[0], keepdims=1) if g.opset < 18 else chain.node("ReduceMin", pair)
    else:
        count = chain.node("ReduceMin", pair, axes=[0], keepdims=1)
    values, places = g.fresh("t"), g.fresh("t")
    chain.nodes.append(helper.make_node("TopK", [x.name, count], [values, places], axis=axis))
    chain.read.append(x)
    g.add_nodes(chain.nodes, chain.read, [values, places], True)


def scaled(g: Graph) -> None:
    """Divide by a size, or by its root."""
    x, chain = g.pick("f", (1, 2, 3, 4)), _Chain(g)
    size = chain.node("Cast", chain.scalar(x, g.number(0, len(x.shape) - 1)), to=_element(x))
    if g.chance(0.5):
        size = chain.node("Sqrt", size)
    chain.keep(chain.node(g.one_of(("Div", "Mul")), x, size), False)


def _element(x: Value) -> int:
    return helper.np_dtype_to_tensor_dtype(x.array.dtype)


def attended(g: Graph) -> None:
    """Attention: query and key rows, a mask of positions, and the weighted sum."""
    x, chain = g.pick("f", (3, 4)), _Chain(g)
    rank = len(x.shape)
    keys = chain.node("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    scores = chain.node("MatMul", x, keys)
    shares = chain.node("Softmax", scores, axis=rank - 1)
    chain.keep(chain.node("MatMul", shares, x), False)


def chosen(g: Graph) -> None:
    """The last element of an axis, or one counted from its end by a size."""
    x = g.pick("fi", (1, 2, 3))
    chain, axis = _Chain(g), g.number(0, len(x.shape) - 1)
    place = chain.node("Sub", chain.size(x, axis), [1])
    chain.keep(chain.node("Gather", x, place, axis=axis))


OPEN_DRAWS: tuple[Draw, ...] = (
    attended,
    chosen,
    counted,
    cut,
    expanded,
    filled,
    flattened,
    halved,
    largest,
    parted,
    resized,
    scaled,
    tiled,
    widened,
)
