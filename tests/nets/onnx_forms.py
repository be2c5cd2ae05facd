"""Rare variants of element-wise nodes and data movement: attributes and operands that most models omit, all types,
operators of single versions of the standard."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx_draws import ANY, REDUCTIONS, broadcast, indices, points, whole
from onnx_generator import Draw, Graph, Node, Value
from onnx_layers import weights

WHOLE_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def number_of(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


# ---- element by element ----------------------------------------------------------------------------------------------


def shaped_activation(g: Graph) -> Node:
    """Activations with all of their attributes."""
    given: dict[str, tuple[str, ...]] = {
        "Celu": ("alpha",),
        "Elu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "LeakyRelu": ("alpha",),
        "Selu": ("alpha", "gamma"),
        "Swish": ("alpha",),
        "ThresholdedRelu": ("alpha",),
        "Shrink": ("lambd", "bias"),
    }
    name = g.one_of(sorted(given))
    stepped = name in ("ThresholdedRelu", "Shrink")
    positive = name in ("Celu", "Shrink")
    choices = (0.1, 0.75, 1.5, 2.0) if positive else (-0.5, 0.1, 0.75, 1.5, 2.0)
    attributes = {key: g.one_of(choices) for key in given[name] if g.chance(0.7)}
    kinds = "fi" if name == "Shrink" else "f"
    return Node(name, [g.pick(kinds, exact=stepped)], attributes)


def infinite(g: Graph) -> Node:
    attributes = {name: g.number(0, 1) for name in ("detect_negative", "detect_positive") if g.chance(0.6)}
    return Node("IsInf", [g.pick("f", exact=True)], attributes, exact=True)


def whole_numbers(g: Graph) -> Node:
    """Integers of every type: arithmetic that may wrap, signs, limits."""
    name = g.one_of(("Add", "Sub", "Mul", "Max", "Min", "Abs", "Neg", "Sign", "Clip", "Mod", "Div", "Relu", "Equal"))
    x = g.pick("iu")
    dtype = x.array.dtype.name
    if name in ("Abs", "Neg", "Sign", "Relu"):
        return Node(name, [x], exact=True)
    if name == "Clip":
        low, high = sorted(g.numbers(2, 0 if dtype[0] == "u" else -4, 6))
        limits = [g.constant(np.array(v, dtype)) if g.chance(0.6) else None for v in (low, high)]
        return Node(name, [x, *limits], exact=True)
    other = g.array(broadcast(g, x.shape), dtype)
    if name in ("Mod", "Div"):
        other[other == 0] = 3
        if dtype[0] == "i" and g.chance(0.3):
            return Node("Mod", [x, g.constant(other)], {"fmod": 1}, exact=True)
    return Node(name, [x, g.constant(other)], exact=True)


def conversion(g: Graph) -> Node:
    """Conversions between integers of every type and floats, with wrapping."""
    x = g.pick("iub")
    to = g.one_of((*WHOLE_TYPES, "bool", "float32", "float64", "float16"))
    attributes: dict[str, Any] = {"to": number_of(to)}
    if g.opset >= 19 and g.chance(0.2):
        attributes["saturate"] = g.number(0, 1)
    return Node("Cast", [x], attributes, exact=True)


def powers(g: Graph) -> Node:
    """Bases and exponents of mixed types."""
    x = g.pick("fi")
    if x.kind == "i":
        small = g.constant(g.rng.integers(-3, 4, x.shape), g.one_of(("int32", "int64")))
        kind = g.one_of(("int32", "int64", "float32"))
        return Node("Pow", [small, g.constant(g.rng.integers(0, 4, broadcast(g, x.shape)), kind)], exact=True)
    exponent = g.constant(np.array(g.one_of((2, 3, 0.5, -1, -2, 0, 1.5))), g.one_of(("float32", "float64", "float16")))
    if not g.add(Node("Abs", [x], exact=True)):
        return Node("Identity", [x], exact=True)
    return Node("Pow", [g.values[-1], exponent])


def bit_cast(g: Graph) -> Node:
    x = g.pick("fiu", exact=True)
    same = [kind for kind in (*WHOLE_TYPES, "float32") if np.dtype(kind).itemsize == x.array.dtype.itemsize]
    whole_ones = [kind for kind in same if kind != "float32"]
    return Node("BitCast", [x], {"to": number_of(g.one_of(whole_ones))}, exact=True)


def unclipped(g: Graph) -> Node:
    x = g.pick("f")
    low, high = sorted(g.rng.normal(size=2))
    # onnxruntime computes float16 in float32 there, and keeps infinities that a default bound clips.
    share = 1.0 if x.array.dtype == np.float16 and g.opset in (11, 12) else 0.5
    limits = [g.constant(np.array(v, x.array.dtype)) if g.chance(share) else None for v in (low, high)]
    if g.chance(0.1):
        limits = [g.constant(np.array(v, x.array.dtype)) for v in (1, -1)]  # the lower limit above the upper one
    while limits and limits[-1] is None:
        limits.pop()
    return Node("Clip", [x, *limits], exact=True)


def several(g: Graph) -> Node:
    """One to four operands that broadcast."""
    x = g.pick(g.one_of(("f", "f", "i")))
    name = g.one_of(("Max", "Min", "Sum", "Mean"))
    operands = [x, *(g.like(x, broadcast(g, x.shape)) for _ in range(g.number(0, 3)))]
    order = g.rng.permutation(len(operands))
    return Node(name, [operands[place] for place in order], exact=name in ("Max", "Min"))


# ---- along axes ------------------------------------------------------------------------------------------------------


def reduced_types(g: Graph) -> Node:
    """Reductions of every type, of bool if the version supports it; negative axes; of empty tensors."""
    x = g.pick(g.one_of(("f", "iu", "b")))
    name = g.one_of(("ReduceMax", "ReduceMin")) if x.kind == "b" else g.one_of([*REDUCTIONS.split(), "ReduceLogSum"])
    if name == "ReduceLogSum":
        g.add(Node("Abs", [x], exact=True))
        x = g.values[-1]
    rank = len(x.shape)
    axes = [int(a) - (rank if g.chance(0.3) else 0) for a in g.rng.permutation(rank)[: g.number(0, rank)]]
    attributes: dict[str, Any] = {"keepdims": g.number(0, 1)} if g.chance(0.8) else {}
    inputs: list[Value | None] = [x]
    if g.opset >= 18 or name == "ReduceSum":
        inputs += [g.constant(axes, "int64")] if axes or g.chance(0.5) else []
        attributes |= {"noop_with_empty_axes": g.number(0, 1)} if g.chance(0.3) else {}
    elif axes:
        attributes["axes"] = axes
    return Node(name, inputs, attributes, exact=name in ("ReduceMax", "ReduceMin") or x.kind in "iub")


def along_types(g: Graph) -> Node:
    x = g.pick("f", ranks=(1, 2, 3, 4))
    name = g.one_of(("Softmax", "LogSoftmax", "Hardmax", "LpNormalization"))
    x = g.pick("f", ranks=(1, 2, 3, 4), exact=True) if name == "Hardmax" else x
    attributes: dict[str, Any] = {"axis": g.axis(x)} if g.chance(0.8) else {}
    return Node(name, [x], attributes, exact=name == "Hardmax")


def running(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2, 3, 4))
    name = g.one_of(("CumSum", "CumProd"))
    attributes = {key: g.number(0, 1) for key in ("reverse", "exclusive") if g.chance(0.6)}
    axis = g.constant(np.array(g.axis(x)), g.one_of(("int32", "int64")))
    return Node(name, [x, axis], attributes, exact=x.kind == "i")


def best(g: Graph) -> Node:
    """TopK with its defaults, of integers of several types, unsorted if all elements are taken."""
    x = g.pick(g.one_of(("f", "iu")), ranks=(1, 2, 3, 4), exact=True)
    axis = -1 if g.chance(0.4) else g.axis(x)
    k = g.constant([g.number(0, x.shape[axis])], "int64")
    attributes: dict[str, Any] = {} if axis == -1 else {"axis": axis}
    attributes |= {"largest": g.number(0, 1)} if g.opset >= 11 and g.chance(0.6) else {}
    return Node("TopK", [x, k], attributes, outputs=2, exact=True)


def scored(g: Graph) -> Node | None:
    """Losses, whose definitions are expanded."""
    x = g.pick("f", ranks=(2, 3, 4), least=1)
    if g.opset < 12 or x.array.dtype == np.float16:
        return None
    classes = x.shape[1]
    target = whole(g, g.rng.integers(0, classes, (x.shape[0], *x.shape[2:])))
    more = [weights(g, x, classes)] if g.chance(0.4) else []
    attributes: dict[str, Any] = {"reduction": g.one_of(("mean", "sum", "none"))}
    attributes |= {"ignore_index": g.number(0, classes - 1)} if g.chance(0.3) else {}
    if g.chance(0.5):
        return Node("NegativeLogLikelihoodLoss", [x, target, *more], attributes)
    return Node("SoftmaxCrossEntropyLoss", [x, target, *more], attributes, outputs=g.number(1, 2))


# ---- moved elements --------------------------------------------------------------------------------------------------


def reshaped(g: Graph) -> Node:
    """Reshape with zeros that copy an extent, or are one; -1."""
    x = g.pick(g.one_of(ANY))
    shape = [0 if g.chance(0.4) else extent for extent in x.shape]
    if shape and g.chance(0.4):
        shape[g.number(0, len(shape) - 1)] = -1
    if len(shape) > 1 and g.chance(0.4):  # merges the last two
        shape = [*shape[:-2], -1] if -1 not in shape[:-2] else shape
    return Node("Reshape", [x, g.constant(shape, "int64")], exact=True)


def axes_moved(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(0, 1, 2, 3))
    count = g.number(1, 3)
    total = len(x.shape) + count
    axes = [int(a) - (total if g.chance(0.3) else 0) for a in g.rng.permutation(total)[:count]]
    return Node("Unsqueeze", [x, g.constant(axes, "int64")], exact=True)


def cut_short(g: Graph) -> Node:
    """Slices without axes or steps, with 32-bit numbers, beyond the ends."""
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4))
    rank, kind = len(x.shape), g.one_of(("int32", "int64"))
    count = g.number(1, rank)
    starts, ends = g.numbers(count, -4, 3), g.numbers(count, -2, 12)
    given = [g.constant(starts, kind), g.constant(ends, kind)]
    if g.chance(0.6):
        axes = [int(a) - (rank if g.chance(0.5) else 0) for a in g.rng.permutation(rank)[:count]]
        given.append(g.constant(axes, kind))
        if g.chance(0.5):
            given.append(g.constant([g.one_of((1, 2, 3, -1, -3)) for _ in axes], kind))
    return Node("Slice", [x, *given], exact=True)


def padded_axes(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4), least=2)
    rank = len(x.shape)
    mode = g.one_of(("constant", "edge", "reflect", *(("wrap",) if g.opset >= 19 else ())))
    if g.opset < 18:
        pads = g.constant(g.numbers(2 * rank, -1, 1), "int64")
        return Node("Pad", [x, pads], {"mode": mode}, exact=True)
    count = g.number(1, rank)
    axes = g.rng.permutation(rank)[:count] - (rank if g.chance(0.4) else 0)
    # After a truncated end, onnxruntime wraps the rest, and the standard the whole tensor.
    pads = g.constant(g.numbers(2 * count, 0 if mode == "wrap" else -1, 1), "int64")
    filler = g.constant(g.array([], x.array.dtype.name)) if mode == "constant" and g.chance(0.5) else None
    return Node("Pad", [x, pads, filler, g.constant(axes, g.one_of(("int32", "int64")))], {"mode": mode}, exact=True)


def gathered_batch(g: Graph) -> Node:
    """GatherND with batch axes that all operands share."""
    x = g.pick(g.one_of(ANY), ranks=(2, 3, 4), least=1)
    shared = g.number(0, len(x.shape) - 1)
    depth = g.number(1, len(x.shape) - shared)
    shape = [*x.shape[:shared], *g.shape(g.number(0, 2))]
    at = [g.rng.integers(-extent if g.chance(0.3) else 0, extent, shape) for extent in x.shape[shared : shared + depth]]
    index = np.stack(at, -1).astype("int64")
    held = g.constant(index) if g.chance(0.5) else g.input(index)
    return Node("GatherND", [x, held], {"batch_dims": shared} if shared else {}, exact=True)


def scattered_again(g: Graph) -> Node:
    """Several updates of one element, if they are added or compared."""
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2, 3), least=1)
    choices = ("add", "mul", "max", "min") if g.opset >= 18 else ("add", "mul")
    more = {"reduction": g.one_of(choices)} if g.opset >= 16 else {}
    exact = more.get("reduction") in ("max", "min")
    if g.opset < 16 or g.chance(0.2):
        at = points(g, x, 3, len(x.shape))
        return Node("ScatterND", [x, at, g.like(x, [at.shape[0]])], exact=True)
    if g.chance(0.5):
        depth = g.number(1, len(x.shape))
        index = np.stack([g.rng.integers(-e, e, (2, 3)) for e in x.shape[:depth]], -1).astype("int64")
        held = g.constant(index) if g.chance(0.5) else g.input(index)
        return Node("ScatterND", [x, held, g.like(x, [2, 3, *x.shape[depth:]])], more, exact=exact)
    axis = g.axis(x)
    shape = [g.number(1, extent) for extent in x.shape]
    shape[axis] = g.number(1, 6)
    return Node(
        "ScatterElements",
        [x, whole(g, indices(g, shape, x.shape[axis])), g.like(x, shape)],
        {"axis": axis, **more},
        exact=exact,
    )


def old_scatter(g: Graph) -> Node:
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2, 3), least=1)
    axis = g.axis(x)
    shape = [1 if place == axis % len(x.shape) else extent for place, extent in enumerate(x.shape)]
    return Node(
        "Scatter", [x, whole(g, g.rng.integers(0, x.shape[axis], shape)), g.like(x, shape)], {"axis": axis}, exact=True
    )


_HOT = [*[("int64", "int64", "int64"), ("float32", "float32", "float32"), ("int64", "int32", "float32")]]
_HOT += [("int64", "float32", "int64"), ("int32", "float32", "int32"), ("float32", "int64", "int64")]


def hot_anywhere(g: Graph) -> Node:
    """Along any axis, with indices, values and depths of the types that onnxruntime supports."""
    depth, rank = g.number(1, 5), g.number(0, 2)
    index, kind, number = g.one_of(_HOT)
    at = g.constant(indices(g, g.shape(rank), depth + 1), index)
    held = g.constant(np.array(depth) if g.chance(0.5) else np.array([depth]), number)
    return Node("OneHot", [at, held, g.constant(g.array([2], kind))], {"axis": g.number(-rank - 1, rank)}, exact=True)


def shape_part(g: Graph) -> Node:
    x = g.pick("fib")
    attributes = {name: g.number(-3, 3) for name in ("start", "end") if g.chance(0.7)} if g.opset >= 15 else {}
    return Node("Shape", [x], attributes, exact=True)


def chosen_flat(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3))
    return Node("Compress", [x, g.input(g.array([g.number(0, x.array.size)], "bool"))], exact=True)


def unsorted(g: Graph) -> Node | None:
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2), exact=True)
    if x.kind == "f" and np.isnan(x.array).any():
        return None
    attributes: dict[str, Any] = {"sorted": 0, **({"axis": g.axis(x)} if g.chance(0.4) else {})}
    return Node("Unique", [x], attributes, outputs=g.one_of((1, 2, 3, 4)), exact=True)


def split_up(g: Graph) -> Node:
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3, 4), least=1)
    axis = g.axis(x)
    divisors = [d for d in range(1, min(4, x.shape[axis]) + 1) if g.opset >= 18 or x.shape[axis] % d == 0]
    count = g.one_of(divisors)
    more = {"num_outputs": count} if g.opset >= 18 else {}
    return Node("Split", [x], {"axis": axis, **more} if axis or g.chance(0.5) else more, outputs=count, exact=True)


def centred(g: Graph) -> Node | None:
    if g.opset < 18:
        return None
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2, 3))
    rank = len(x.shape)
    axes = [int(a) - (rank if g.chance(0.3) else 0) for a in g.rng.permutation(rank)[: g.number(1, rank)]]
    more = {"axes": axes} if g.chance(0.7) else {}
    size = g.constant(g.numbers(len(axes) if more else rank, 1, 9), "int64")
    return Node("CenterCropPad", [x, size], more, exact=True)


def filled(g: Graph) -> Node:
    """Tensors from shapes and numbers alone, by every attribute for them."""
    kind = g.one_of(("Constant", "ConstantOfShape", "Range", "EyeLike"))
    if kind == "Constant":
        name, value = g.one_of(
            (("value_float", 1.5), ("value_floats", [0.5, -2.0]), ("value_int", -3), ("value_ints", [1, 2, 3]))
        )
        return Node(kind, [], {name: value}, exact=True)
    if kind == "ConstantOfShape":
        shape = g.constant([0 if g.chance(0.15) else g.number(1, 4) for _ in range(g.number(0, 3))], "int64")
        if g.chance(0.4):
            return Node(kind, [shape], exact=True)
        dtype = g.one_of((*WHOLE_TYPES, "bool", "float16", "float64", "float32"))
        return Node(kind, [shape], {"value": helper.make_tensor("value", number_of(dtype), [1], [1])}, exact=True)
    if kind == "EyeLike":
        return Node(kind, [g.pick(g.one_of(("f", "i", "b")), ranks=(2,))], {"k": g.number(-9, 9)}, exact=True)
    start, step = g.one_of((0.0, -1.5, 2.25)), g.one_of((0.5, -0.25, 1.5))
    limit = start + step * g.number(0, 6) + g.one_of((0.0, step / 2))
    dtype = g.one_of(("float32", "float64"))
    return Node(kind, [g.constant(np.array(number, dtype)) for number in (start, limit, step)], exact=True)


def window(g: Graph) -> Node | None:
    if g.opset < 17:
        return None
    name = g.one_of(("HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix"))
    kinds = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
    attributes: dict[str, Any] = {"output_datatype": g.one_of(kinds)} if g.chance(0.4) else {}
    if name == "MelWeightMatrix":
        numbers = [g.constant(np.array(n), "int64") for n in (g.number(1, 6), 2 * g.number(4, 20), 8000)]
        edges = [g.constant(np.array(f), "float32") for f in (g.one_of((0, 100)), g.one_of((2000, 4000)))]
        return Node(name, [*numbers, *edges], attributes)
    attributes |= {"periodic": g.number(0, 1)} if g.chance(0.6) else {}
    return Node(name, [g.constant(np.array(g.number(1, 12)), g.one_of(("int32", "int64")))], attributes)


def written(g: Graph) -> Node | None:
    """A run of elements written to a cache."""
    if g.opset < 24:
        return None
    x = g.pick("f", ranks=(3, 4), least=1)
    axis = g.number(1, len(x.shape) - 1)
    count = g.number(1, x.shape[axis])
    update = g.like(x, [count if place == axis else extent for place, extent in enumerate(x.shape)])
    circular = g.chance(0.5)
    starts = g.rng.integers(0, x.shape[axis] if circular else x.shape[axis] - count + 1, x.shape[0]).astype("int64")
    at = [g.constant(starts) if g.chance(0.5) else g.input(starts)] if g.chance(0.8) else []
    attributes = {"axis": axis - (len(x.shape) if g.chance(0.5) else 0), "mode": "circular" if circular else "linear"}
    return Node("TensorScatter", [x, update, *at], attributes, exact=True)


# ---- products --------------------------------------------------------------------------------------------------------


def sums_of_products(g: Graph) -> Node:
    """Einsum of one to three operands: letters in any order, summed or kept, an ellipsis, a diagonal."""
    x = g.pick("f", ranks=(1, 2, 3))
    letters = list(string.ascii_lowercase[: len(x.shape)])
    extents = dict(zip(letters, x.shape, strict=True))
    terms, operands = ["".join(letters)], [x]
    for _ in range(g.number(0, 2)):
        chosen = [letter for letter in extents if g.chance(0.5)]
        if g.chance(0.5) or not chosen:
            fresh = string.ascii_letters[len(extents)]
            extents[fresh] = g.number(1, 5)
            chosen.append(fresh)
        order = [chosen[place] for place in g.rng.permutation(len(chosen))]
        if g.chance(0.1):
            order = [order[0], *order]
        terms.append("".join(order))
        operands.append(weights(g, x, *(extents[letter] for letter in order)))
    kept = [letter for letter in extents if g.chance(0.6)]
    kept = [kept[place] for place in g.rng.permutation(len(kept))]
    equation = (", " if g.chance(0.3) else ",").join(terms)
    if g.chance(0.2) and len(operands) > 1 and len(x.shape) > 1:
        equation, operands = "...i,ij->...j", [x, weights(g, x, x.shape[-1], g.number(1, 4))]
    elif g.chance(0.85):
        equation += ("->" if g.chance(0.7) else " -> ") + "".join(kept)
    return Node("Einsum", operands, {"equation": equation})


def whole_product(g: Graph) -> Node:
    kind = g.one_of(("int32", "int64", "uint32", "uint64"))
    m, k, n = g.numbers(3, 1, 6)
    low = 0 if kind[0] == "u" else -5
    left = g.input(g.rng.integers(low, 9, (m, k)).astype(kind))
    right = g.constant(g.rng.integers(low, 9, (k, n)), kind)
    return Node(g.one_of(("MatMul", "Gemm")), [left, right], exact=True)


def empty_product(g: Graph) -> Node:
    """Matrix multiplications, some with zero rows or an empty reduction axis."""
    m, k, n = (0 if g.chance(0.3) else g.number(1, 5) for _ in range(3))
    kind = g.one_of(("float32", "float64"))
    left, right = g.input(g.array((m, k), kind)), g.constant(g.array((k, n), kind))
    bias = [g.constant(g.array((n,), kind))] if g.chance(0.5) else []
    return Node("Gemm", [left, right, *bias]) if bias or g.chance(0.4) else Node("MatMul", [left, right])


FORMS: list[Draw] = [
    *[shaped_activation, infinite, whole_numbers, whole_numbers, conversion, conversion, powers, bit_cast, unclipped],
    *[several, reduced_types, reduced_types, along_types, running, best, scored, reshaped, axes_moved, cut_short],
    *[padded_axes, gathered_batch, scattered_again, old_scatter, hot_anywhere, shape_part, chosen_flat, unsorted],
    *[split_up, centred, filled, window, written, sums_of_products, sums_of_products, whole_product, empty_product],
]
