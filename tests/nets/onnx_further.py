"""Further random operators: bits, trigonometry, tensors from shapes, 8-bit arithmetic, attention, transforms, boxes,
sequences, and onnxruntime's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from onnx_draws import ANY, broadcast
from onnx_generator import Draw, Graph, Node, Value
from onnx_layers import image, weights, windows

MICROSOFT = "com.microsoft"


# ---- element by element ----------------------------------------------------------------------------------------------


def bits(g: Graph) -> Node:
    x = g.pick("iu")
    name = g.one_of(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"))
    if name == "BitwiseNot":
        return Node(name, [x], exact=True)
    if name == "BitShift":
        x = g.constant(g.rng.integers(0, 250, broadcast(g, x.shape)), g.one_of(("uint8", "uint32", "uint64")))
        counts = g.constant(g.rng.integers(0, 8, x.shape), x.array.dtype.name)
        return Node(name, [x, counts], {"direction": g.one_of(("LEFT", "RIGHT"))}, exact=True)
    return Node(name, [x, g.like(x, broadcast(g, x.shape))], exact=True)


def trigonometry(g: Graph) -> Node:
    name = g.one_of(["Tan", "Sinh", "Cosh", "Acosh", "Asin", "Acos", "Atanh", "Asinh", "Atan"])
    x = g.pick()
    if name in ("Asin", "Acos", "Atanh", "Tan"):  # within their domain, and away from poles
        if not g.add(Node("Sin", [x])):
            return Node("Identity", [x], exact=True)
        half = g.constant(np.array(0.5, g.values[-1].array.dtype))
        g.add(Node("Mul", [g.values[-1], half]))
        x = g.values[-1]
    if name == "Acosh":
        g.add(Node("Abs", [x], exact=True))
        two = g.constant(np.array(2, x.array.dtype))
        g.add(Node("Add", [g.values[-1], two]))
        x = g.values[-1]
    return Node(name, [x])


def activation(g: Graph) -> Node:
    x = g.pick()
    name = g.one_of(("Mish", "ThresholdedRelu", "Shrink", "Gelu", "Hardmax", "Swish"))
    if name in ("ThresholdedRelu", "Shrink", "Hardmax"):
        x = g.pick("f", exact=True, ranks=(1, 2, 3, 4))
    attributes: dict[str, Any] = {}
    if name == "ThresholdedRelu":
        attributes["alpha"] = 0.5
    elif name == "Shrink":
        attributes = {"lambd": 0.3, "bias": g.one_of((0.0, 0.25))}
    elif name == "Gelu":
        attributes["approximate"] = g.one_of(("none", "tanh"))
    elif name == "Hardmax":
        attributes["axis"] = g.axis(x)
    return Node(name, [x], attributes, exact=name == "Hardmax")


def cast_like(g: Graph) -> Node:
    x = g.pick("b") if g.chance(0.3) else g.pick("f", exact=True)
    to = g.one_of(("float32", "float64", "float16"))
    return Node("CastLike", [x, g.constant(np.zeros(1, to))], exact=True)


def dropout(g: Graph) -> Node:
    x = g.pick()
    more = [g.constant(np.float32(0.4))] if g.chance(0.5) else []
    if more and g.chance(0.5):
        more.append(g.constant(np.array(False)))
    # onnxruntime's mask before version 12 is false, and the reference's does not have the data's type.
    return Node("Dropout", [x, *more], outputs=g.number(1, 2) if g.opset >= 12 else 1, exact=True)


# ---- tensors from shapes ---------------------------------------------------------------------------------------------


def made_of_numbers(g: Graph) -> Node:
    kind = g.one_of(("ConstantOfShape", "EyeLike", "Range", "Constant"))
    dtype = g.one_of(("float32", "int64", "int32", "float64"))
    if kind == "Constant":
        tensor = helper.make_tensor("value", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [3], g.numbers(3, -4, 4))
        return Node(kind, [], {"value": tensor}, exact=True)
    if kind == "ConstantOfShape":
        value = helper.make_tensor("value", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [1], [g.number(-3, 3)])
        return Node(kind, [g.constant(g.shape(g.number(0, 3)), "int64")], {"value": value}, exact=True)
    if kind == "EyeLike":
        more = {"dtype": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))} if g.chance(0.5) else {}
        return Node(kind, [g.pick("f", ranks=(2,))], {"k": g.number(-2, 2), **more}, exact=True)
    start, step = g.number(-5, 5), g.one_of((1, 2, -1, -3))
    limit = start + step * g.number(0, 6)
    return Node(kind, [g.constant(np.array(number, dtype)) for number in (start, limit, step)], exact=True)


def unique(g: Graph) -> Node | None:
    x = g.pick(g.one_of(("f", "i")), ranks=(1, 2), exact=True)
    if x.kind == "f" and np.isnan(x.array).any():
        return None
    attributes: dict[str, Any] = {"sorted": 1}
    if g.chance(0.4):
        attributes["axis"] = g.axis(x)
    return Node("Unique", [x], attributes, outputs=g.one_of((1, 4)), exact=True)


# ---- 8 bits ----------------------------------------------------------------------------------------------------------


def _zero(g: Graph, dtype: str, shape: tuple[int, ...] = ()) -> Value:
    return g.constant(g.rng.integers(0 if dtype == "uint8" else -3, 4, shape), dtype)


def _scale(g: Graph, shape: tuple[int, ...] = ()) -> Value:
    return g.constant(2.0 ** g.rng.integers(-6, -2, shape), "float32")


def _whole(g: Graph, dtype: str, *shape: int) -> Value:
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    array = g.rng.integers(low, high, shape).astype(dtype)
    return g.constant(array) if g.chance(0.5) else g.input(array)


def quantised(g: Graph) -> Node | None:
    name = g.one_of(("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))
    dtype = g.one_of(("uint8", "int8"))
    if name == "DynamicQuantizeLinear":
        x = g.pick("f", exact=True)  # an infinite range has no zero point
        fits = x.array.dtype == np.float32 and np.isfinite(x.array).all()
        return Node(name, [x], outputs=3, exact=False) if fits else None
    x = g.pick("f", exact=True, ranks=(1, 2, 3, 4)) if name == "QuantizeLinear" else g.pick("iu", ranks=(1, 2, 3, 4))
    if x.array.dtype not in (np.float32, np.int8, np.uint8) or not np.isfinite(x.array).all():
        return None
    dtype = dtype if name == "QuantizeLinear" else x.array.dtype.name
    if g.chance(0.5):
        axis = g.axis(x)
        shape: tuple[int, ...] = (x.shape[axis],)
        return Node(name, [x, _scale(g, shape), _zero(g, dtype, shape)], {"axis": axis}, exact=True)
    more = [_zero(g, dtype)] if dtype == "int8" or name == "DequantizeLinear" or g.chance(0.5) else []
    return Node(name, [x, _scale(g), *more], exact=True)


def quantised_product(g: Graph) -> Node:
    m, k, n = g.numbers(3, 1, 9)
    kinds = g.one_of((("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")))
    outer = g.numbers(g.number(0, 2), 1, 3)
    a, b = _whole(g, kinds[0], *outer, m, k), _whole(g, kinds[1], k, n)
    if g.chance(0.5):
        zeros = [_zero(g, kinds[0]), _zero(g, kinds[1])][: g.number(0, 2)]
        return Node("MatMulInteger", [a, b, *zeros], exact=True)
    out = kinds[0]
    inputs = [a, _scale(g), _zero(g, kinds[0]), b, _scale(g), _zero(g, kinds[1])]
    return Node("QLinearMatMul", [*inputs, g.constant(np.float32(2.0)), _zero(g, out)])


def quantised_convolution(g: Graph) -> Node | None:
    x = _whole(g, "uint8", g.number(1, 2), g.number(1, 4), *g.numbers(2, 3, 7))
    attributes, outputs = windows(g, x, pool=False), g.number(1, 5)
    kind = g.one_of(("uint8", "int8"))
    w = _whole(g, kind, outputs, x.shape[1], *attributes["kernel_shape"])
    if g.chance(0.5):
        return Node(
            "ConvInteger", [x, w, *[_zero(g, "uint8"), _zero(g, kind)][: g.number(0, 2)]], attributes, exact=True
        )
    bias = [g.constant(g.rng.integers(-99, 99, outputs), "int32")] if g.chance(0.5) else []
    inputs = [x, _scale(g), _zero(g, "uint8"), w, _scale(g), _zero(g, kind)]
    return Node("QLinearConv", [*inputs, g.constant(np.float32(1.0)), _zero(g, "uint8"), *bias], attributes)


# ---- layers ----------------------------------------------------------------------------------------------------------


def attention(g: Graph) -> Node | None:
    if g.opset < 23:
        return None
    batch, heads, rows, keys, width = g.number(1, 2), g.number(1, 3), g.number(1, 5), g.number(1, 6), g.number(1, 6)
    shapes = [(batch, heads, rows, width), (batch, heads, keys, width), (batch, heads, keys, width)]
    inputs: list[Value | None] = [g.input(g.rng.normal(size=shape).astype("float32")) for shape in shapes]
    attributes: dict[str, Any] = {}
    if g.chance(0.4):
        inputs.append(g.input(g.rng.normal(size=(rows, keys)).astype("float32")))
    if g.chance(0.3):
        attributes["is_causal"] = 1
    if g.chance(0.3):
        attributes["scale"] = 0.3
    if g.chance(0.2):
        attributes["softcap"] = 2.0
    return Node("Attention", inputs, attributes)


def rms_norm(g: Graph) -> Node | None:
    x = g.pick("f", ranks=(2, 3, 4), least=1)
    if g.opset < 23:
        return None
    axis = g.number(1, len(x.shape) - 1)
    return Node("RMSNormalization", [x, weights(g, x, *x.shape[axis:])], {"axis": axis, "epsilon": 1e-2})


def rotary(g: Graph) -> Node | None:
    if g.opset < 23:
        return None
    batch, heads, rows, half = g.number(1, 2), g.number(1, 3), g.number(1, 4), g.number(1, 4)
    x = g.input(g.rng.normal(size=(batch, heads, rows, 2 * half)).astype("float32"))
    cosine, sine = (g.constant(g.rng.normal(size=(8, half)), "float32") for _ in range(2))
    place = g.constant(g.rng.integers(0, 8, (batch, rows)), "int64")
    return Node("RotaryEmbedding", [x, cosine, sine, place], {"interleaved": g.number(0, 1)})


def into_image(g: Graph) -> Node:
    kernel, dilations, strides = g.numbers(2, 1, 3), g.numbers(2, 1, 2), g.numbers(2, 1, 2)
    size, pads = g.numbers(2, 6, 8), g.numbers(4, 0, 1)
    places = [
        (size[d] + pads[d] + pads[d + 2] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1 for d in range(2)
    ]
    shape = (g.number(1, 2), g.number(1, 3) * kernel[0] * kernel[1], places[0] * places[1])
    x = g.input(g.rng.normal(size=shape).astype("float32"))
    attributes = {"dilations": dilations, "strides": strides, "pads": pads}
    return Node("Col2Im", [x, g.constant(size, "int64"), g.constant(kernel, "int64")], attributes)


def deformed(g: Graph) -> Node | None:
    x = g.pick("f", ranks=(4,), least=4)
    if g.opset < 19 or not np.isfinite(x.array).all():
        return None
    n, c, h, w = x.shape
    kernel = g.numbers(2, 1, 3)
    out = (h - kernel[0] + 1, w - kernel[1] + 1)
    offsets = g.rng.uniform(-1.5, 1.5, (n, 2 * kernel[0] * kernel[1], *out)).astype(x.array.dtype)
    attributes = {"kernel_shape": kernel}
    return Node("DeformConv", [x, weights(g, x, g.number(1, 3), c, *kernel), g.input(offsets)], attributes)


def roi_pool(g: Graph) -> Node | None:
    x = g.pick("f", ranks=(4,), least=2)
    if not np.isfinite(x.array).all():
        return None
    count = g.number(1, 3)
    corners = np.sort(g.rng.integers(0, 8, (count, 2, 2)), axis=1).reshape(count, 4)
    rois = np.concatenate([g.rng.integers(0, x.shape[0], (count, 1)), corners], axis=1).astype(x.array.dtype)
    attributes = {"pooled_shape": g.numbers(2, 1, 3), "spatial_scale": g.one_of((1.0, 0.5))}
    return Node("MaxRoiPool", [x, g.constant(rois)], attributes, exact=True)


def unpooled(g: Graph) -> Node | None:
    x = g.pick("f", ranks=(4,), exact=True, least=2)
    if not np.isfinite(x.array).all() or len(np.unique(x.array)) < x.array.size:
        return None
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    if not g.add(Node("MaxPool", [x], attributes, outputs=2, exact=True)):
        return None
    return Node("MaxUnpool", [g.values[-2], g.values[-1]], attributes, exact=True)


def affine_grid(g: Graph) -> Node | None:
    if g.opset < 20:
        return None
    n, rank = g.number(1, 2), g.number(2, 3)
    theta = g.input(g.rng.normal(size=(n, rank, rank + 1)).astype("float32"))
    size = g.constant([n, 2, *g.numbers(rank, 2, 5)], "int64")
    return Node("AffineGrid", [theta, size], {"align_corners": g.number(0, 1)})


def boxes(g: Graph) -> Node:
    count, classes, batch = g.number(1, 8), g.number(1, 3), g.number(1, 2)
    corners = np.sort(g.rng.random((batch, count, 2, 2)), axis=2).reshape(batch, count, 4).astype("float32")
    scores = g.rng.permutation(batch * classes * count).reshape(batch, classes, count).astype("float32") / 50
    most = g.constant([g.number(0, count)], "int64")
    limits = [g.constant(np.float32([g.one_of((0.3, 0.7))])), g.constant(np.float32([g.one_of((0.0, 0.1))]))]
    more = {"center_point_box": g.number(0, 1)}
    inputs = [g.input(corners), g.input(scores), most, *limits[: g.number(1, 2)]]
    return Node("NonMaxSuppression", inputs, more, exact=True)


# ---- matrices and signals --------------------------------------------------------------------------------------------


def determinant(g: Graph) -> Node:
    outer, n = g.numbers(g.number(0, 2), 1, 3), g.number(1, 4)
    return Node("Det", [g.input(g.rng.normal(size=(*outer, n, n)).astype("float32"))])


def fourier(g: Graph) -> Node | None:
    if g.opset < 17:
        return None
    parts = g.number(1, 2)
    x = g.input(g.rng.normal(size=(g.number(1, 2), g.number(1, 9), parts)).astype("float32"))
    length = g.constant(np.array(g.number(1, 10))) if g.chance(0.4) else None
    attributes: dict[str, Any] = {"inverse": 1} if parts == 2 and g.chance(0.4) else {}
    if parts == 1 and g.chance(0.5):
        attributes["onesided"] = 1
    if g.opset >= 20:
        return Node("DFT", [x, length, g.constant(np.array(1))], attributes)
    return Node("DFT", [x] if length is None else [x, length], {**attributes, "axis": 1})


def short_fourier(g: Graph) -> Node | None:
    if g.opset < 17:
        return None
    x = g.input(g.rng.normal(size=(g.number(1, 2), g.number(8, 20), 1)).astype("float32"))
    length = g.number(2, 8)
    window = g.constant(g.rng.random(length), "float32") if g.chance(0.6) else None
    step = g.constant(np.array(g.number(1, 4)))
    more = {"onesided": g.number(0, 1)}
    return Node("STFT", [x, step, window, g.constant(np.array(length))], more)


# ---- sequences -------------------------------------------------------------------------------------------------------


def sequence(g: Graph) -> Node | None:
    """Tensors added to a sequence, and taken from it."""
    x = g.pick(g.one_of(ANY), ranks=(1, 2, 3))
    axis = g.axis(x)
    held = g.fresh("s")
    if g.chance(0.4):
        sizes = g.constant(np.array(g.number(1, 3))) if g.chance(0.6) else None
        more = {} if sizes is not None else {"keepdims": g.number(0, 1)}
        names = [x.name] if sizes is None else [x.name, sizes.name]
        first = helper.make_node("SplitToSequence", names, [held], axis=axis, **more)
        read = [x] if sizes is None else [x, sizes]
    else:
        read = [x, *(g.like(x, x.shape) for _ in range(g.number(1, 2)))]
        first = helper.make_node("SequenceConstruct", [value.name for value in read], [held])
    made = g.fresh("t")
    take = g.one_of(("SequenceAt", "ConcatFromSequence", "SequenceLength"))
    if take == "SequenceAt":
        place = g.constant(np.array(g.one_of((0, -1))))
        second, read = helper.make_node(take, [held, place.name], [made]), [*read, place]
    elif take == "SequenceLength":
        second = helper.make_node(take, [held], [made])
    else:
        second = helper.make_node(take, [held], [made], axis=axis)
    return Node("Identity", [g.values[-1]], exact=True) if g.add_nodes([first, second], read, [made], True) else None


# ---- onnxruntime's own -----------------------------------------------------------------------------------------------


_OF_ONE, _SIMPLE = ("FastGelu", "Gelu", "QuickGelu"), "SkipSimplifiedLayerNormalization"


def contributed(g: Graph) -> Node | None:
    name = g.one_of((*_OF_ONE, "BiasGelu", "SkipLayerNormalization", _SIMPLE, "EmbedLayerNormalization", "FusedMatMul"))
    if name == "EmbedLayerNormalization":
        batch, rows, width = g.number(1, 2), g.number(1, 4), g.number(1, 6)
        words, kinds = (
            g.constant(g.rng.integers(0, 9, (batch, rows)), "int32"),
            g.constant(np.zeros((batch, rows)), "int32"),
        )
        tables = [g.constant(g.rng.normal(size=(count, width)), "float32") for count in (9, 8, 2)]
        vectors = [g.constant(g.rng.normal(size=width), "float32") for _ in range(2)]
        return Node(name, [words, kinds, *tables, *vectors], {"epsilon": 1e-2}, outputs=2, domain=MICROSOFT)
    x = g.pick("f", ranks=(3,), least=1)
    if x.array.dtype != np.float32:
        return None
    width = x.shape[-1]
    if name in ("SkipLayerNormalization", _SIMPLE):
        more = [weights(g, x, width) for _ in range(g.number(1, 2 if name == _SIMPLE else 3))]
        return Node(name, [x, g.like(x, x.shape), *more], {"epsilon": 1e-2}, domain=MICROSOFT)
    if name == "FusedMatMul":
        flip = g.number(0, 1)
        right = g.like(x, (x.shape[0], x.shape[1], width) if flip else (x.shape[0], width, x.shape[1]))
        return Node(name, [x, right], {"transB": flip, "alpha": 0.5}, domain=MICROSOFT)
    inputs = [x] if name in _OF_ONE and (name != "FastGelu" or g.chance(0.5)) else [x, weights(g, x, width)]
    return Node(name, inputs, domain=MICROSOFT)


def old_image(g: Graph) -> Node | None:
    """A pool whose positions are read: MaxPool's second result."""
    x = image(g)
    if not x.exact or not np.isfinite(x.array).all():
        return None
    kernel = g.numbers(len(x.shape) - 2, 1, 2)
    return Node("MaxPool", [x], {"kernel_shape": kernel, "storage_order": g.number(0, 1)}, outputs=2, exact=True)


FURTHER: list[Draw] = [
    *[bits, trigonometry, activation, activation, cast_like, dropout, made_of_numbers, unique],
    *[quantised, quantised, quantised_product, quantised_convolution, attention, rms_norm, rotary, into_image],
    *[deformed, roi_pool, unpooled, affine_grid, boxes, determinant, fourier, short_fourier, sequence, contributed],
    *[old_image],
]
