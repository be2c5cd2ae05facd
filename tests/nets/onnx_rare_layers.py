"""Rare variants of layers: attributes and operands that most models omit, empty images, types that few models have, and
all supported variants of onnxruntime's own operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_forms import number_of
from onnx_generator import Draw, Graph, Node, Value
from onnx_layers import image, weights, windows

MICROSOFT = "com.microsoft"


def _finite(value: Value) -> bool:
    return bool(np.isfinite(value.array).all())


def _normal(g: Graph, *shape: int) -> Value:
    return g.input(g.rng.normal(size=shape).astype("float32"))


# ---- images ----------------------------------------------------------------------------------------------------------


def grouped(g: Graph) -> Node:
    """Convolutions with groups, along one, two and three axes, without kernel_shape, some of no image or one pixel."""
    kind, rank = g.one_of(("float32", "float32", "float64", "float16")), g.one_of((1, 2, 2, 3))
    groups, depth = g.number(1, 3), g.number(1, 2)
    empty = g.chance(0.1)
    x = g.input(g.array([0 if empty else g.number(1, 2), groups * depth, *g.numbers(rank, 3, 7)], kind))
    attributes = {**windows(g, x, pool=False), "group": groups}
    kernel = attributes["kernel_shape"]
    turned, outputs = g.chance(0.5), g.number(1, 3)
    shape = (groups * depth, outputs) if turned else (groups * outputs, depth)
    if g.chance(0.3):
        attributes.pop("kernel_shape")
    bias = [weights(g, x, groups * outputs)] if g.chance(0.5) else []
    w = weights(g, x, *shape, *kernel)
    w = w if g.chance(0.7) else g.input(w.array)
    return Node("ConvTranspose" if turned else "Conv", [x, w, *bias], attributes)


def small_pool(g: Graph) -> Node | None:
    """Pools of 8 bits, and of empty images."""
    if g.chance(0.5):
        x = g.input(g.array([g.number(1, 2), g.number(1, 3), *g.numbers(2, 3, 6)], g.one_of(("int8", "uint8"))))
        attributes = windows(g, x, pool=True)
        return Node("MaxPool", [x], attributes, outputs=g.number(1, 2), exact=True)
    x = g.input(g.array([0, 2, 4, 5], g.one_of(("float32", "float64"))))
    name = g.one_of(("MaxPool", "AveragePool", "GlobalAveragePool", "LpPool"))
    return Node(name, [x], {} if name[0] == "G" else {"kernel_shape": [2, 2]}, exact=name == "MaxPool")


def normed(g: Graph) -> Node | None:
    """Norms with their defaults, further results and types of their own."""
    name = g.one_of(("BatchNormalization", "LayerNormalization", "LRN", "GlobalLpPool", "MeanVarianceNormalization"))
    if name == "LayerNormalization":
        x = g.pick("f", ranks=(1, 2, 3, 4), least=1)
        axis = g.number(-len(x.shape), len(x.shape) - 1)
        given = [weights(g, x, *x.shape[axis:]) for _ in range(g.number(1, 2))]
        more = {"axis": axis} if axis != -1 or g.chance(0.5) else {}
        more |= {"stash_type": 1} if g.chance(0.2) else {}
        return Node(name, [x, *given], more, outputs=g.number(1, 3))
    if name == "MeanVarianceNormalization":
        x = g.pick("f", ranks=(2, 3, 4), least=2)
        axes = [int(a) for a in g.rng.permutation(len(x.shape))[: g.number(1, len(x.shape))]]
        return Node(name, [x], {"axes": axes})
    x = image(g)
    if name == "GlobalLpPool":
        return Node(name, [x], {"p": g.number(1, 3)})
    if name == "LRN":
        more = {key: value for key, value in (("alpha", 0.2), ("beta", 0.6), ("bias", 2.0)) if g.chance(0.6)}
        return Node(name, [x], {"size": g.one_of((1, 2, 3, 4, 5)), **more}) if _finite(x) else None
    channels = x.shape[1]
    scale, shift, mean = (weights(g, x, channels) for _ in range(3))
    variance = g.constant(np.abs(scale.array) + np.asarray(0.5, x.array.dtype))
    if g.opset >= 14 and g.chance(0.3):
        attributes = {"training_mode": 1, "momentum": g.one_of((0.9, 0.5))}
        return Node(name, [x, scale, shift, mean, variance], attributes, outputs=g.one_of((1, 3)))
    return Node(name, [x, scale, shift, mean, variance])


def resized_further(g: Graph) -> Node | None:
    """Resize with every attribute, and Upsample of early versions."""
    x = g.pick("f", ranks=(4, 4, 4, 2, 3, 5), least=1)
    rank = len(x.shape)
    if not _finite(x):
        return None
    mode = g.one_of(("nearest", "linear", "cubic"))
    if g.opset < 11:
        outer = 2 if rank > 2 else 0
        scales = g.constant([1.0] * outer + [g.one_of((1.0, 2.0, 3.0)) for _ in range(rank - outer)], "float32")
        name, mode = "Resize" if g.opset == 10 else "Upsample", g.one_of(("nearest", "linear"))
        attributes: dict[str, Any] = {"mode": mode}
        if g.opset < 9:
            return Node(name, [x], {**attributes, "scales": scales.array.tolist()}, exact=mode == "nearest")
        return Node(name, [x, scales], attributes, exact=mode == "nearest")
    places = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"]
    places += ["half_pixel_symmetric"] if g.opset >= 19 else []
    where = g.one_of(places)
    attributes = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes["nearest_mode"] = g.one_of(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes |= {"cubic_coeff_a": g.one_of((-0.5, -0.75))} if g.chance(0.5) else {}
    if mode != "nearest":
        attributes |= {"exclude_outside": 1} if g.chance(0.3) else {}
        attributes |= {"antialias": 1} if g.opset >= 18 and g.chance(0.3) else {}
    resized = list(range(rank - min(2, rank), rank))
    if g.opset >= 18 and g.chance(0.5):
        axes = [int(resized[place]) for place in g.rng.permutation(len(resized))]
        attributes["axes"] = [axis - (rank if g.chance(0.3) else 0) for axis in axes]
    chosen = attributes.get("axes", range(rank))
    roi: Value | None = None
    if where == "tf_crop_and_resize":
        count = len(chosen)
        low, high = g.rng.uniform(0, 0.4, count), g.rng.uniform(0.6, 1.2, count)
        fixed = [place for place, axis in enumerate(chosen) if axis % rank not in resized]
        low[fixed], high[fixed] = 0, 1
        roi = g.constant(np.concatenate([low, high]).astype(g.one_of(("float32", x.array.dtype.name))))
        attributes |= {"extrapolation_value": -2.0} if g.chance(0.5) else {}
        if "axes" in attributes:
            # onnxruntime crops no axis of scale 1, and the reference, which decides, supports no axes counted from the
            # end.
            attributes["axes"] = [axis % rank for axis in chosen]
    missing = None if g.opset >= 13 else g.constant(np.zeros(0, "float32"))
    if g.chance(0.5):
        sizes = [g.number(1, 8) if axis % rank in resized else x.shape[axis] for axis in chosen]
        if g.opset >= 18 and "axes" in attributes and g.chance(0.4):
            attributes["keep_aspect_ratio_policy"] = g.one_of(("stretch", "not_larger", "not_smaller"))
            # onnxruntime keeps the extent of an axis counted from the end.
            attributes["axes"] = [axis % rank for axis in chosen]
        inputs: list[Value | None] = [x, roi or missing, missing, g.constant(sizes, "int64")]
        return Node("Resize", inputs, attributes, exact=mode == "nearest")
    scales = [g.one_of((0.5, 1.0, 2.0, 1.5)) if axis % rank in resized else 1.0 for axis in chosen]
    if where in ("align_corners", "half_pixel_symmetric", "tf_crop_and_resize"):
        scales = [float(max(1, round(scale))) for scale in scales]  # lengths without a remainder
    return Node("Resize", [x, roi or missing, g.constant(scales, "float32")], attributes, exact=mode == "nearest")


def sampled(g: Graph) -> Node | None:
    """Interpolation in volumes, regions by every attribute, blocks of three."""
    name = g.one_of(("GridSample", "RoiAlign", "DepthToSpace", "SpaceToDepth"))
    if name == "GridSample":
        if g.opset < 20:
            return None
        x = g.input(g.rng.normal(size=(2, 2, *g.numbers(3, 2, 4))).astype("float32"))
        grid = g.rng.uniform(-1.5, 1.5, (2, *g.numbers(3, 1, 3), 3)).astype("float32")
        attributes: dict[str, Any] = {"mode": g.one_of(("linear", "nearest")), "align_corners": g.number(0, 1)}
        return Node(
            name, [x, g.input(grid)], {**attributes, "padding_mode": g.one_of(("zeros", "border", "reflection"))}
        )
    x = g.pick("f", ranks=(4,), least=1)
    if name == "RoiAlign":
        if not _finite(x):
            return None
        count = g.number(0 if g.chance(0.1) else 1, 3)
        corners = np.sort(g.rng.uniform(0, 6, (count, 2, 2)), axis=1).reshape(count, 4).astype(x.array.dtype)
        attributes = {"mode": g.one_of(("avg", "max")), "sampling_ratio": g.number(0, 3)}
        if g.opset >= 16 and g.chance(0.6):
            attributes["coordinate_transformation_mode"] = g.one_of(("half_pixel", "output_half_pixel"))
        attributes |= {"output_height": g.number(1, 3), "output_width": g.number(1, 3)} if g.chance(0.7) else {}
        at = g.constant(g.numbers(count, 0, x.shape[0] - 1), "int64")
        return Node(name, [x, g.constant(corners), at], attributes)
    block = g.number(2, 3)
    n, c, h, w = g.number(1, 2), g.number(1, 2), g.number(1, 3), g.number(1, 3)
    kind = g.one_of(("float32", "float64", "uint8", "float16"))
    more = {"mode": g.one_of(("DCR", "CRD"))} if name == "DepthToSpace" and g.opset >= 11 and g.chance(0.7) else {}
    shape = (n, c * block * block, h, w) if name == "DepthToSpace" else (n, c, h * block, w * block)
    return Node(name, [g.input(g.array(shape, kind))], {"blocksize": block, **more}, exact=True)


def deformed_further(g: Graph) -> Node | None:
    if g.opset < 19:
        return None
    groups, shifted = g.number(1, 2), g.number(1, 2)
    kernel, strides, dilations, pads = (
        g.numbers(2, 1, 3),
        g.numbers(2, 1, 2),
        g.numbers(2, 1, 2),
        g.numbers(4, 0, 1),
    )
    n, c, size = g.number(1, 2), 2 * groups, g.numbers(2, 5, 7)
    out = [(size[d] + pads[d] + pads[d + 2] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1 for d in range(2)]
    taps = kernel[0] * kernel[1]
    x = _normal(g, n, c, *size)
    offsets = g.input(g.rng.uniform(-1.5, 1.5, (n, shifted * 2 * taps, *out)).astype("float32"))
    outputs = groups * g.number(1, 2)
    bias = weights(g, x, outputs) if g.chance(0.5) else None
    mask = [g.input(g.rng.random((n, shifted * taps, *out)).astype("float32"))] if g.chance(0.5) else []
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": groups, "offset_group": shifted}
    return Node(
        "DeformConv",
        [x, weights(g, x, outputs, c // groups, *kernel), offsets, *([bias, *mask] if mask or bias else [])],
        {**attributes, "kernel_shape": kernel},
    )


def image_of_columns(g: Graph) -> Node | None:
    """Col2Im of one to three axes, with its defaults."""
    rank = g.number(1, 3)
    kernel, size = g.numbers(rank, 1, 2), g.numbers(rank, 3, 5)
    places = [s - k + 1 for s, k in zip(size, kernel, strict=True)]
    x = _normal(g, g.number(1, 2), g.number(1, 2) * int(np.prod(kernel)), int(np.prod(places)))
    return Node("Col2Im", [x, g.constant(size, "int64"), g.constant(kernel, "int64")])


def unpooled_further(g: Graph) -> Node | None:
    """MaxUnpool with strides and pads, to a stated or derived shape."""
    rank = g.number(1, 3)
    kernel, strides = g.numbers(rank, 1, 2), g.numbers(rank, 2, 3)
    size = [k + s * g.number(1, 2) for k, s in zip(kernel, strides, strict=True)]
    values = g.rng.permutation(2 * int(np.prod(size))).reshape(1, 2, *size)
    x = g.input(values.astype("float32"))
    attributes = {"kernel_shape": kernel, "strides": strides}
    if not g.add(Node("MaxPool", [x], attributes, outputs=2, exact=True)):
        return None
    shape = [g.constant(x.shape, "int64")] if g.chance(0.5) else []
    return Node("MaxUnpool", [g.values[-2], g.values[-1], *shape], attributes, exact=True)


# ---- recurrent layers ------------------------------------------------------------------------------------------------


def recurrent_further(g: Graph) -> Node | None:
    """Initial cells, peepholes, coupled gates, batch first, float64, few results."""
    name, gates = g.one_of((("LSTM", 4), ("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    kind = g.one_of(("float32", "float32", "float64"))
    steps, batch, width, hidden = g.number(1, 5), g.number(1, 3), g.number(1, 5), g.number(1, 5)
    way = g.one_of(("forward", "reverse", "bidirectional"))
    d, first = (2 if way == "bidirectional" else 1), g.opset >= 14 and g.chance(0.3)
    x = g.input(g.rng.normal(size=(batch, steps, width) if first else (steps, batch, width)).astype(kind))
    state = (batch, d, hidden) if first else (d, batch, hidden)
    inputs: list[Value | None] = [
        x,
        weights(g, x, d, gates * hidden, width),
        weights(g, x, d, gates * hidden, hidden),
        weights(g, x, d, 2 * gates * hidden) if g.chance(0.6) else None,
        g.constant(g.numbers(batch, 0 if g.chance(0.2) else 1, steps), "int32") if g.chance(0.3) else None,
        weights(g, x, *state) if g.chance(0.6) else None,
    ]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    if name == "LSTM":
        inputs.append(weights(g, x, *state) if g.chance(0.6) else None)
        inputs.append(weights(g, x, d, 3 * hidden) if g.chance(0.5) else None)
        attributes |= {"input_forget": 1} if g.chance(0.2) else {}
    attributes |= {"layout": 1} if first else {}
    attributes |= {"linear_before_reset": g.number(0, 1)} if name == "GRU" else {}
    return Node(name, inputs, attributes, outputs=g.number(1, 3 if name == "LSTM" else 2))


# ---- 8 and 16 bits ---------------------------------------------------------------------------------------------------


def _zeros(g: Graph, kind: str, *shape: int) -> Value:
    return g.constant(g.rng.integers(0 if kind[0] == "u" else -3, 4, shape), kind)


def _scales(g: Graph, *shape: int, kind: str = "float32") -> Value:
    return g.constant(2.0 ** g.rng.integers(-6, -1, shape), kind)


def quantised_further(g: Graph) -> Node | None:
    """Blocks, types of 16 and 32 bits, float16, the domain of onnxruntime."""
    x = g.pick("f", exact=True, ranks=(1, 2, 3, 4), least=1)
    contributed = g.chance(0.3)
    kind = g.one_of(("int8", "uint8", "int16", "uint16") if g.opset >= 21 or contributed else ("int8", "uint8"))
    domain, more = (MICROSOFT if contributed else ""), {}
    float_kind = x.array.dtype.name if g.opset >= 19 or contributed else "float32"
    if x.array.dtype == np.float64 or not _finite(x):
        return None
    axis = g.number(0, len(x.shape) - 1)
    shape: tuple[int, ...] = ()
    if g.chance(0.5):
        shape, more = (x.shape[axis],), {"axis": axis - (len(x.shape) if g.chance(0.3) else 0)}
    elif g.opset >= 21 and not contributed and g.chance(0.5):
        block = g.one_of((1, 2, 3, 4))
        shape = tuple(-(-extent // block) if place == axis else extent for place, extent in enumerate(x.shape))
        more = {"axis": axis, "block_size": block}
    if g.chance(0.5):
        zero = [_zeros(g, kind, *shape)] if g.chance(0.8) or "block_size" not in more else []
        if not zero and g.opset >= 21:
            more["output_dtype"] = number_of(kind)
        return Node("QuantizeLinear", [x, _scales(g, *shape, kind=float_kind), *zero], more, domain=domain, exact=True)
    kind = "int32" if g.chance(0.2) else kind
    held = g.input(g.array(x.shape, kind))
    zero = [] if kind == "int32" or g.chance(0.2) else [_zeros(g, kind, *shape)]
    return Node("DequantizeLinear", [held, _scales(g, *shape, kind=float_kind), *zero], more, domain=domain)


def quantised_layers(g: Graph) -> Node:
    """Zero points and scales of rows and of channels; groups."""
    if g.chance(0.5):
        m, k, n = g.numbers(3, 1, 6)
        kinds = g.one_of((("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")))
        a = g.input(g.rng.integers(0, 100, (m, k)).astype(kinds[0]))
        b = g.constant(g.rng.integers(0, 100, (k, n)), kinds[1])
        zero = _zeros(g, kinds[1], n) if g.chance(0.6) else _zeros(g, kinds[1])
        if g.chance(0.5):
            return Node("MatMulInteger", [a, b, _zeros(g, kinds[0]), zero], exact=True)
        scale = _scales(g, *zero.shape)
        given = [a, _scales(g), _zeros(g, kinds[0]), b, scale, zero, g.constant(np.float32(2)), _zeros(g, kinds[0])]
        return Node("QLinearMatMul", given)
    groups, kind = g.number(1, 2), g.one_of(("uint8", "int8"))
    x = g.input(g.rng.integers(0, 100, (1, 2 * groups, 5, 6)).astype(kind))
    outputs = groups * g.number(1, 2)
    attributes = {**windows(g, x, pool=False), "group": groups}
    w = g.constant(g.rng.integers(-50, 50, (outputs, 2, *attributes["kernel_shape"])), "int8")
    scale = _scales(g, outputs) if g.chance(0.6) else _scales(g)
    zero = g.constant(np.zeros(scale.shape), "int8")
    bias = [g.constant(g.rng.integers(-99, 99, outputs), "int32")] if g.chance(0.5) else []
    given = [x, _scales(g), _zeros(g, kind), w, scale, zero, g.constant(np.float32(1)), _zeros(g, kind), *bias]
    return Node("QLinearConv", given, attributes)


# ---- attention and signals -------------------------------------------------------------------------------------------


def attention_further(g: Graph) -> Node | None:
    """Shared heads, three axes, bool masks, past keys and values, further results."""
    if g.opset < 23:
        return None
    batch, heads, shared = g.number(1, 2), g.number(1, 2), g.number(1, 2)
    rows, keys, width, out, past = g.number(1, 4), g.number(1, 5), g.number(1, 4), g.number(1, 4), g.number(0, 3)
    sizes = [(heads * shared, rows, width), (heads, keys, width), (heads, keys, out)]
    attributes: dict[str, Any] = {}
    if g.chance(0.3):
        inputs: list[Value | None] = [_normal(g, batch, r, h * w) for h, r, w in sizes]
        attributes |= {"q_num_heads": heads * shared, "kv_num_heads": heads}
    else:
        inputs = [_normal(g, batch, *size) for size in sizes]
    held = g.chance(0.3)
    total = keys + (past if held else 0)
    mask: Value | None = None
    if g.chance(0.5):
        shape = g.one_of(([rows, total], [batch, 1, rows, total], [1, heads * shared, rows, total]))
        mask = g.input(g.array(shape, "bool")) if g.chance(0.4) else _normal(g, *shape)
    inputs.append(mask)
    if held:
        inputs += [_normal(g, batch, heads, past, width), _normal(g, batch, heads, past, out)]
    attributes |= {"is_causal": 1} if g.chance(0.3) and mask is None else {}
    attributes |= {"softcap": 1.5} if g.chance(0.2) else {}
    attributes |= {"scale": 0.4} if g.chance(0.3) else {}
    count = g.one_of((1, 3, 4)) if held else 1
    attributes |= {"qk_matmul_output_mode": g.number(0, 3)} if count == 4 else {}
    return Node("Attention", inputs, attributes, outputs=count)


def rotary_further(g: Graph) -> Node | None:
    """With three axes, of a part of each head, without positions."""
    if g.opset < 23:
        return None
    batch, heads, rows, half = g.number(1, 2), g.number(1, 3), g.number(1, 4), g.number(1, 4)
    turned = g.number(1, half)
    attributes: dict[str, Any] = {"interleaved": g.number(0, 1)}
    attributes |= {"rotary_embedding_dim": 2 * turned} if turned < half else {}
    flat = g.chance(0.5)
    attributes |= {"num_heads": heads} if flat else {}
    x = _normal(g, batch, rows, heads * 2 * half) if flat else _normal(g, batch, heads, rows, 2 * half)
    placed = g.chance(0.5)
    shape = (6, turned) if placed else (batch, rows, turned)
    tables = [g.constant(g.rng.normal(size=shape), "float32") for _ in range(2)]
    places = [g.constant(g.rng.integers(0, 6, (batch, rows)), "int64")] if placed else []
    return Node("RotaryEmbedding", [x, *tables, *places], attributes)


def transformed_further(g: Graph) -> Node | None:
    """Transforms along any axis, of float64, to other lengths; short ones without a length."""
    if g.opset < 17:
        return None
    kind = g.one_of(("float32", "float64"))
    if g.chance(0.4):
        x = g.input(g.rng.normal(size=(g.number(1, 2), g.number(8, 16), g.number(1, 2))).astype(kind))
        held = g.constant(g.rng.random(g.number(2, 8)), kind)
        one = {"onesided": 0} if x.shape[-1] == 2 else {"onesided": 1} if g.chance(0.5) else {}
        return Node("STFT", [x, g.constant(np.array(g.number(1, 5))), held], one)
    parts = g.number(1, 2)
    shape = [*g.numbers(g.number(1, 3), 1, 6), parts]
    x, axis = g.input(g.rng.normal(size=shape).astype(kind)), g.number(0, len(shape) - 2)
    negative = axis - len(shape) if g.chance(0.4) else axis
    length = g.constant(np.array(g.number(1, 9))) if g.chance(0.4) else None
    attributes: dict[str, Any] = {"inverse": 1} if g.chance(0.3) else {"onesided": 1} if parts == 1 else {}
    if g.opset >= 20:
        return Node("DFT", [x, length, g.constant(np.array(negative))], attributes)
    return Node("DFT", [x] if length is None else [x, length], {**attributes, "axis": axis})


def decomposed(g: Graph) -> Node | None:
    """RMSNormalization and GroupNormalization with their defaults."""
    if g.opset < 21:  # where GroupNormalization is deprecated
        return None
    if g.opset >= 23 and g.chance(0.5):
        x = g.pick("f", ranks=(2, 3, 4), least=1)
        axis = g.number(-len(x.shape), -1)
        return Node("RMSNormalization", [x, weights(g, x, *x.shape[axis:])], {"axis": axis} if axis != -1 else {})
    x = image(g)
    channels = x.shape[1]
    groups = g.one_of([d for d in range(1, channels + 1) if channels % d == 0])
    given = [weights(g, x, channels) for _ in range(2)]
    return Node("GroupNormalization", [x, *given], {"num_groups": groups})


# ---- onnxruntime's own -----------------------------------------------------------------------------------------------


def contributed_further(g: Graph) -> Node | None:
    """Every supported variant of onnxruntime's own operators."""
    name = g.one_of(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization"))
    name = g.one_of((name, name, "FusedMatMul", "QuickGelu", "FastGelu", "BiasGelu", "Gelu"))
    batch, rows, width = g.number(1, 2), g.number(1, 4), g.number(1, 6)
    attributes: dict[str, Any] = {"epsilon": g.one_of((1e-5, 1e-2))} if name.endswith("Normalization") else {}
    if name == "EmbedLayerNormalization":
        words = g.constant(g.rng.integers(0, 9, (batch, rows)), "int32")
        kinds = g.constant(g.rng.integers(0, 2, (batch, rows)), "int32") if g.chance(0.7) else None
        tables = [g.constant(g.rng.normal(size=(count, width)), "float32") for count in (9, 8, 2)]
        tables[2:] = tables[2:] if kinds is not None else [None]
        vectors = [g.constant(g.rng.normal(size=width), "float32") for _ in range(2)]
        mask = g.constant(g.rng.integers(0, 2, (batch, rows)), "int32") if g.chance(0.5) else None
        places = [g.constant(g.rng.integers(0, 8, (batch, rows)), "int32")] if g.chance(0.4) else []
        more = [mask, *places] if places or mask else []
        inputs = [words, kinds, *tables, *vectors, *more]
        return Node(name, inputs, attributes, outputs=g.number(2, 3), domain=MICROSOFT)
    kind = g.one_of(("float32", "float32", "float16"))
    x = g.input(g.array((batch, rows, width), kind))
    if name.startswith("Skip"):
        flat = [*x.shape[1:]] if g.chance(0.2) else [1, *x.shape[1:]] if g.chance(0.2) else x.shape
        simple = name.startswith("SkipSimplified")
        gamma, *others = (weights(g, x, width) for _ in range(2 if simple else 3))
        held = [other if g.chance(0.6) else None for other in others]
        while held and held[-1] is None:
            held.pop()
        inputs = [x, g.like(x, flat), gamma, *held]
        if g.chance(0.4):  # the sum, the fourth result; onnxruntime has no mean for the simplified operator
            unnamed = (1, 2) if simple or g.chance(0.5) else ()
            return Node(name, inputs, attributes, outputs=4, domain=MICROSOFT, unnamed=unnamed)
        return Node(name, inputs, attributes, domain=MICROSOFT)
    if name == "FusedMatMul":
        turned, other = g.number(0, 1), g.number(0, 1)
        inner, columns = (rows if turned else width), g.number(1, 5)
        right = g.input(g.array((batch, columns, inner) if other else (batch, inner, columns), kind))
        attributes = {"transA": turned, "transB": other, "alpha": g.one_of((1.0, 0.125, -2.0))}
        if g.chance(0.2):
            attributes[g.one_of(("transBatchA", "transBatchB"))] = 1
        return Node(name, [x, right], attributes, domain=MICROSOFT)
    if name == "QuickGelu":
        return Node(name, [x], {"alpha": g.one_of((1.0, 1.702, 0.5))}, domain=MICROSOFT)
    biased = name == "BiasGelu" or (name == "FastGelu" and g.chance(0.5))
    return Node(name, [x, weights(g, x, width)] if biased else [x], domain=MICROSOFT)


RARE_LAYERS: list[Draw] = [
    *[grouped, grouped, small_pool, normed, normed, resized_further, resized_further, sampled, deformed_further],
    *[image_of_columns, unpooled_further, recurrent_further, recurrent_further, quantised_further, quantised_further],
    *[quantised_layers, attention_further, rotary_further, transformed_further, decomposed],
    *[contributed_further, contributed_further],
]
