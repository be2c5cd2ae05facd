"""Random nodes: element-wise operators and data movement; layers are in onnx_layers.py."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper
from onnx_generator import Draw, Graph, Node, Value

SMOOTH = "Sigmoid Tanh Relu Erf Sin Cos Atan Softplus Softsign Selu Elu LeakyRelu HardSigmoid Celu Exp Asinh HardSwish"
KEPT = ("Identity", "Neg", "Abs", "Relu")  # exact results stay exact
CUTTING = ("Ceil", "Floor", "Round", "Sign", "IsNaN", "IsInf")
REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare"


def smooth(g: Graph) -> Node:
    name = g.one_of(SMOOTH.split())
    attributes = {}
    if name in ("Elu", "LeakyRelu", "Celu", "HardSigmoid") and g.chance(0.5):
        attributes["alpha"] = g.one_of((0.1, 0.5, 2.0))
    return Node(name, [g.pick()], attributes)


def kept(g: Graph) -> Node:
    return Node(g.one_of(KEPT), [g.pick(g.one_of(("f", "f", "i")))], exact=True)


def cutting(g: Graph) -> Node:
    return Node(g.one_of(CUTTING), [g.pick("f", exact=True)], exact=True)


def guarded(g: Graph) -> Node:
    """Functions of positive numbers."""
    x = g.pick()
    if not g.add(Node("Abs", [x], exact=True)):
        return Node("Identity", [x], exact=True)
    return Node(g.one_of(("Sqrt", "Log", "Reciprocal", "Sqrt")), [g.values[-1]])


def broadcast(g: Graph, shape: tuple[int, ...]) -> list[int]:
    """Return a shape that broadcasts with another."""
    kept = [1 if g.chance(0.3) else extent for extent in shape]
    return kept[g.number(0, len(kept)) :] if g.chance(0.3) else kept


def binary(g: Graph) -> Node:
    name = g.one_of(("Add", "Sub", "Mul", "Div", "Add", "Mul", "Max", "Min", "Sum", "Mean"))
    kinds = "f" if name in ("Sum", "Mean", "Div") else g.one_of(("f", "f", "f", "iu"))
    x = g.pick(kinds)
    same = [v for v in g.values if v.array.dtype == x.array.dtype and v.shape == x.shape]
    y = g.one_of(same) if g.chance(0.5) else g.like(x, broadcast(g, x.shape))
    inputs = [x, y] if g.chance(0.7) else [y, x]
    if name in ("Max", "Min", "Sum", "Mean") and g.chance(0.3):
        inputs.append(g.like(x, broadcast(g, x.shape)))
    return Node(name, inputs, exact=kinds != "f" or name in ("Max", "Min"))


def whole_division(g: Graph) -> Node:
    x = g.pick("i")
    divisor = g.array(broadcast(g, x.shape), x.array.dtype.name)
    divisor[divisor == 0] = 3
    return Node(g.one_of(("Div", "Mod")), [x, g.constant(divisor)], exact=True)


def float_remainder(g: Graph) -> Node:
    x = g.pick("f", exact=True)
    divisor = g.array(broadcast(g, x.shape), x.array.dtype.name)
    divisor[divisor == 0] = 2
    return Node("Mod", [x, g.constant(divisor)], {"fmod": 1}, exact=True)


def power(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")))
    exponents = g.rng.integers(0, 4, broadcast(g, x.shape))
    return Node("Pow", [x, g.constant(exponents, g.one_of(("float32", "int64", "int32")))], exact=x.kind == "i")


def compared(g: Graph) -> Node:
    name = g.one_of(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"))
    x = g.pick("fib" if name == "Equal" else "fi", exact=True)
    same = [v for v in g.values if v.array.dtype == x.array.dtype and v.shape == x.shape and v.exact]
    y = g.one_of(same) if g.chance(0.5) else g.like(x, broadcast(g, x.shape))
    return Node(name, [x, y], exact=True)


def logical(g: Graph) -> Node:
    x = g.pick("b")
    if g.chance(0.3):
        return Node("Not", [x], exact=True)
    return Node(g.one_of(("And", "Or", "Xor")), [x, g.like(x, broadcast(g, x.shape))], exact=True)


def where(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")))
    condition = g.constant(g.array(broadcast(g, x.shape), "bool")) if g.chance(0.5) else g.pick("b")
    return Node("Where", [condition, x, g.like(x, broadcast(g, x.shape))], exact=True)


def clip(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")))
    least = 0 if x.array.dtype.kind == "u" else -2
    low, high = (g.constant(np.array(number, x.array.dtype)) for number in (g.number(least, 0), g.number(1, 3)))
    # onnxruntime computes float16 in float32 there, and keeps infinities that a default bound clips.
    widened = x.array.dtype == np.float16 and g.opset in (11, 12)
    return Node("Clip", [x, low if widened or g.chance(0.8) else None, high], exact=True)


def cast(g: Graph) -> Node:
    to = g.one_of(("float32", "float32", "float64", "float16", "int32", "int64", "bool", "int8", "uint8"))
    x = g.pick("fiub", exact=True)
    finite = x.array[np.isfinite(x.array)] if x.kind == "f" else x.array.astype("float64")
    low = 0 if to[0] == "u" else -100
    whole = np.dtype(to).kind in "iu"
    if whole and (finite.size != x.array.size or finite.min(initial=0) < low or finite.max(initial=0) > 100):
        return Node("Cast", [x], {"to": TensorProto.FLOAT}, exact=True)
    return Node("Cast", [x], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}, exact=True)


def reduced(g: Graph) -> Node:
    name = g.one_of([*REDUCTIONS.split(), "ReduceLogSum"])
    x = g.pick(g.one_of(("f", "f", "f", "i")))
    rank = len(x.shape)
    axes = [int(a) - (rank if g.chance(0.3) else 0) for a in g.rng.permutation(rank)[: g.number(0, rank)]]
    attributes: dict = {"keepdims": g.number(0, 1)}
    inputs: list[Value | None] = [x]
    if g.opset >= 18 or name == "ReduceSum":
        if axes or g.chance(0.3):
            inputs.append(g.constant(axes, "int64"))
        if g.chance(0.2):
            attributes["noop_with_empty_axes"] = g.number(0, 1)
    elif axes:
        attributes["axes"] = axes
    return Node(name, inputs, attributes, exact=name in ("ReduceMax", "ReduceMin") or x.kind == "i")


def place_of_extreme(g: Graph) -> Node | None:
    x = g.pick("fi", exact=True, ranks=(1, 2, 3, 4))
    if x.kind == "f" and np.isnan(x.array).any():
        return None
    attributes = {"axis": g.axis(x), "keepdims": g.number(0, 1), "select_last_index": g.number(0, 1)}
    return Node(g.one_of(("ArgMax", "ArgMin")), [x], attributes, exact=True)


def along_axis(g: Graph) -> Node:
    x = g.pick("f", ranks=(1, 2, 3, 4))
    name = g.one_of(("Softmax", "LogSoftmax", "Softmax", "LpNormalization"))
    attributes = {"axis": g.axis(x)}
    if name == "LpNormalization":
        attributes["p"] = g.number(1, 2)
    return Node(name, [x], attributes)


def running_sum(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2, 3))
    attributes = {"reverse": g.number(0, 1), "exclusive": g.number(0, 1)}
    return Node("CumSum", [x, g.constant(np.array(g.axis(x)))], attributes, exact=x.kind == "i")


def top(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "f", "i")), ranks=(1, 2, 3), exact=True)
    axis = g.axis(x)
    k = g.constant([g.number(0, x.shape[axis])], "int64")
    return Node("TopK", [x, k], {"axis": axis, "largest": g.number(0, 1)}, outputs=2, exact=True)


# ---- moved elements --------------------------------------------------------------------------------------------------

ANY = ("f", "f", "i", "b")


def transpose(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY))
    order = [int(a) for a in g.rng.permutation(len(x.shape))]
    return Node("Transpose", [x], {"perm": order} if g.chance(0.8) and order else {}, exact=True)


def reshape(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY))
    size, shape = x.array.size, []
    while size > 1 and len(shape) < 4 and g.chance(0.7):
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(g.one_of(divisors))
        size //= shape[-1]
    shape.append(size)
    if 0 not in shape and g.chance(0.3):
        shape[g.number(0, len(shape) - 1)] = -1
    return Node("Reshape", [x, g.constant(shape, "int64")], {"allowzero": 1} if g.opset >= 14 else {}, exact=True)


def ranks(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY))
    rank = len(x.shape)
    ones = [axis for axis, extent in enumerate(x.shape) if extent == 1]
    if ones and g.chance(0.5):
        axes = g.constant([a - (rank if g.chance(0.5) else 0) for a in ones[: g.number(1, len(ones))]], "int64")
        return Node("Squeeze", [x, axes] if g.chance(0.8) else [x], exact=True)
    if g.chance(0.3):
        return Node("Flatten", [x], {"axis": g.number(-rank, rank)}, exact=True)
    return Node("Unsqueeze", [x, g.constant([g.number(-rank - 1, rank)], "int64")], exact=True)


def repeated(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY))
    if g.chance(0.5):
        return Node("Tile", [x, g.constant(g.numbers(len(x.shape), 0 if g.chance(0.1) else 1, 3), "int64")], exact=True)
    shape = [g.number(2, 4) if extent == 1 and g.chance(0.5) else extent for extent in x.shape]
    return Node("Expand", [x, g.constant(g.shape(1) + shape if g.chance(0.3) else shape, "int64")], exact=True)


def joined(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4))
    axis, parts = g.axis(x), [x]
    for _ in range(g.number(1, 3)):
        shape = list(x.shape)
        shape[axis] = g.number(0 if g.chance(0.1) else 1, 4)
        parts.append(g.like(x, shape))
    order = g.rng.permutation(len(parts))
    return Node("Concat", [parts[place] for place in order], {"axis": axis}, exact=True)


def split(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4))
    axis, count = g.axis(x), g.number(1, 3)
    configs = np.sort(g.rng.integers(0, x.shape[axis] + 1, count - 1))
    sizes = np.diff(np.concatenate([[0], configs, [x.shape[axis]]]))
    if g.opset >= 18 and g.chance(0.3):
        return Node("Split", [x], {"axis": axis, "num_outputs": count}, outputs=count, exact=True)
    return Node("Split", [x, g.constant(sizes, "int64")], {"axis": axis}, outputs=count, exact=True)


def sliced(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4))
    axes = [int(a) for a in g.rng.permutation(len(x.shape))[: g.number(1, len(x.shape))]]
    starts, ends = (g.numbers(len(axes), -9, 9) for _ in range(2))
    steps = [g.one_of((1, 1, 2, -1, -2)) for _ in axes]
    if g.chance(0.6):  # usually something is left
        starts, ends = [0 if s > 0 else -1 for s in steps], [2**40 if s > 0 else -(2**40) for s in steps]
        starts[0] += 1 if steps[0] > 0 else 0
    given = [g.constant(values, "int64") for values in (starts, ends, axes, steps)]
    return Node("Slice", [x, *given], exact=True)


def padded(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "f", "i")), ranks=(1, 2, 3, 4), least=3)
    mode = g.one_of(("constant", "constant", "edge", "reflect", *(("wrap",) if g.opset >= 19 else ())))
    low = -1 if mode == "constant" and g.chance(0.2) else 0
    pads = g.constant(g.numbers(2 * len(x.shape), low, 2), "int64")
    number = g.number(0 if x.array.dtype.kind == "u" else -3, 3)
    value = g.constant(np.array(number, x.array.dtype)) if mode == "constant" and g.chance(0.5) else None
    return Node("Pad", [x, pads] if value is None else [x, pads, value], {"mode": mode}, exact=True)


def indices(g: Graph, shape: list[int], extent: int) -> np.ndarray:
    """Return indices within an axis, some counted from its end."""
    return g.rng.integers(-extent if g.chance(0.5) else 0, extent, shape)


def whole(g: Graph, array: np.ndarray) -> Value:
    typed = array.astype(g.one_of(("int64", "int64", "int32")))
    return g.constant(typed) if g.chance(0.5) else g.input(typed)


def gathered(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4), least=1)
    axis = g.axis(x)
    if g.chance(0.5):
        index = indices(g, g.shape(g.number(0, 2)), x.shape[axis])
        return Node("Gather", [x, whole(g, index)], {"axis": axis}, exact=True)
    shape = [g.number(1, extent) for extent in x.shape]
    shape[axis] = g.number(1, 6)
    return Node("GatherElements", [x, whole(g, indices(g, shape, x.shape[axis]))], {"axis": axis}, exact=True)


def points(g: Graph, x: Value, count: int, depth: int) -> Value:
    """Return coordinates of the first axes, all different."""
    extents = x.shape[:depth]
    chosen = g.rng.permutation(int(np.prod(extents)))[:count]
    return g.constant(np.stack(np.unravel_index(chosen, extents), -1), "int64")


def gathered_points(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4), least=1)
    return Node("GatherND", [x, points(g, x, g.number(1, 5), g.number(1, len(x.shape)))], exact=True)


def scattered(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "f", "i")), ranks=(1, 2, 3, 4), least=1)
    reductions = ("none", "add", "mul") + (("max", "min") if g.opset >= 18 else ())
    reduction = g.one_of(reductions) if g.opset >= 16 else "none"
    more = {"reduction": reduction} if reduction != "none" else {}
    exact = reduction not in ("add", "mul")
    if g.chance(0.4):
        depth = g.number(1, len(x.shape))
        at = points(g, x, g.number(1, 5), depth)
        return Node("ScatterND", [x, at, g.like(x, [at.shape[0], *x.shape[depth:]])], more, exact=exact)
    axis = g.axis(x)
    shape = [g.number(1, extent) for extent in x.shape]
    order = g.rng.permuted(np.broadcast_to(np.arange(x.shape[axis]), (*shape, x.shape[axis])), axis=-1)
    places = np.moveaxis(order.reshape(-1, x.shape[axis])[: int(np.prod(shape)) // shape[axis]], -1, 0)
    places = places[: shape[axis]].reshape([shape[axis], *(e for a, e in enumerate(shape) if a != axis % len(shape))])
    at = whole(g, np.ascontiguousarray(np.moveaxis(places, 0, axis)))
    return Node("ScatterElements", [x, at, g.like(x, shape)], {"axis": axis, **more}, exact=exact)


def triangle(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")), ranks=(2, 3, 4))
    k = [g.constant(np.array(g.number(-3, 3)))] if g.chance(0.7) else []
    return Node("Trilu", [x, *k], {"upper": g.number(0, 1)}, exact=True)


def hot(g: Graph) -> Node:
    depth = g.number(1, 5)
    index = whole(g, indices(g, g.shape(g.number(0, 2)), depth))
    pair = g.constant(g.array([2], "float32"))
    return Node("OneHot", [index, g.constant(np.array(depth)), pair], {"axis": g.number(-1, 0)}, exact=True)


def shapes(g: Graph) -> Node:
    return Node(g.one_of(("Shape", "Size")), [g.pick("fib")], exact=True)


def reversed_parts(g: Graph) -> Node:
    x = g.pick("f", ranks=(2, 3, 4), least=1)
    batch = g.number(0, 1)
    lengths = g.constant(g.numbers(x.shape[batch], 1, x.shape[1 - batch]), "int64")
    return Node("ReverseSequence", [x, lengths], {"batch_axis": batch, "time_axis": 1 - batch}, exact=True)


def data_dependent(g: Graph) -> Node:
    if g.chance(0.3):
        return Node("NonZero", [g.pick("fib", exact=True, ranks=(1, 2, 3))], exact=True)
    x = g.pick("f", ranks=(1, 2, 3), least=1)
    axis = g.axis(x)
    return Node("Compress", [x, g.input(g.array([x.shape[axis]], "bool"))], {"axis": axis}, exact=True)


DRAWS: list[Draw] = [
    *[smooth, binary, binary, reduced, reshape, transpose, sliced, joined],
    *[kept, cutting, guarded, whole_division, float_remainder, power, compared, logical, where, clip, cast],
    *[place_of_extreme, along_axis, running_sum, top, ranks, repeated, split, padded, gathered, gathered_points],
    *[scattered, triangle, hot, shapes, reversed_parts, data_dependent],
]
