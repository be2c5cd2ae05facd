"""Random layers: matrix multiplications, convolutions, pools, norms, interpolation, recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx_generator import Draw, Graph, Node, Value


def weights(g: Graph, like: Value, *shape: int) -> Value:
    """Return a constant of a tensor's type, small enough that sums of products stay near 1."""
    values = g.rng.normal(size=shape) / max(1.0, np.prod(shape[1:])) ** 0.5
    return g.constant(values.astype(like.array.dtype))


def product(g: Graph) -> Node:
    x = g.pick("f", ranks=(1, 2, 3, 4))
    k, n = x.shape[-1], g.number(1, 9)
    outer = [1 if g.chance(0.3) else extent for extent in x.shape[:-2]] if g.chance(0.4) else []
    return Node("MatMul", [x, weights(g, x, *outer, k, n) if g.chance(0.9) else weights(g, x, k)])


def gemm(g: Graph) -> Node:
    x = g.pick("f", ranks=(2,))
    turned, other = g.number(0, 1), g.number(0, 1)
    k, m = (x.shape[0], x.shape[1]) if turned else (x.shape[1], x.shape[0])
    n = g.number(1, 9)
    bias = [weights(g, x, *g.one_of(([n], [1], [m, 1], [m, n], [])))] if g.chance(0.7) else []
    attributes: dict[str, Any] = {"transA": turned, "transB": other}
    if g.chance(0.5):
        attributes |= {"alpha": 0.5, "beta": g.one_of((0.0, 2.0))}
    return Node("Gemm", [x, weights(g, x, n, k) if other else weights(g, x, k, n), *bias], attributes)


def einsum(g: Graph) -> Node:
    x = g.pick("f", ranks=(2, 3))
    if len(x.shape) == 2:
        return Node("Einsum", [x, weights(g, x, x.shape[1], 3)], {"equation": g.one_of(("ij,jk->ik", "ij,jk->ki"))})
    return Node("Einsum", [x, weights(g, x, x.shape[0], x.shape[2], 3)], {"equation": "bij,bjk->bik"})


def image(g: Graph, least: int = 1) -> Value:
    return g.pick("f", ranks=(4,) if g.chance(0.7) else (3, 5), least=least)


def windows(g: Graph, x: Value, pool: bool) -> dict[str, Any]:
    """Return attributes of windows over the images of a tensor."""
    rank = len(x.shape) - 2
    kernel = g.numbers(rank, 1, 3)
    attributes: dict[str, Any] = {"kernel_shape": kernel}
    if g.chance(0.5):
        attributes["strides"] = g.numbers(rank, 1, 3)
    if g.chance(0.3):
        attributes["dilations"] = g.numbers(rank, 1, 2)
    if g.chance(0.25):
        attributes["auto_pad"] = g.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif g.chance(0.6):
        attributes["pads"] = [g.number(0, k - 1 if pool else 2) for k in (*kernel, *kernel)]
    if g.chance(0.9):
        _fit(attributes, x.shape[2:])
    return attributes


def _fit(attributes: dict[str, Any], extents: tuple[int, ...]) -> None:
    """Make windows no larger than the padded image: others are refused, together with the rest of their graph."""
    rank = len(extents)
    pads = attributes.get("pads", [0] * 2 * rank)
    kernel, dilations = attributes["kernel_shape"], attributes.get("dilations", [1] * rank)
    for axis, extent in enumerate(extents):
        room = extent + pads[axis] + pads[axis + rank]
        kernel[axis] = min(kernel[axis], max(room, 1))
        while dilations[axis] > 1 and dilations[axis] * (kernel[axis] - 1) >= room:
            dilations[axis] -= 1


def convolution(g: Graph) -> Node:
    x = image(g)
    attributes, outputs, groups = windows(g, x, pool=False), g.number(1, 6), 1
    if g.chance(0.3):
        groups = x.shape[1]
        outputs = groups * g.number(1, 2)
    inputs = [x, weights(g, x, outputs, x.shape[1] // groups, *attributes["kernel_shape"])]
    return Node(
        "Conv", [*inputs, *([weights(g, x, outputs)] if g.chance(0.5) else [])], {**attributes, "group": groups}
    )


def transposed(g: Graph) -> Node:
    x = image(g)
    attributes, outputs = windows(g, x, pool=False), g.number(1, 4)
    strides = attributes.get("strides", [1] * (len(x.shape) - 2))
    if g.chance(0.3):
        attributes["output_padding"] = [g.number(0, stride - 1) for stride in strides]
    elif g.chance(0.3):
        spatial = zip(x.shape[2:], strides, strict=True)
        # The onnx package's inference, and therefore onnxruntime, takes a smaller result for one with fewer axes.
        attributes["output_shape"] = [max(extent, extent * stride + g.number(-1, 1)) for extent, stride in spatial]
    inputs = [x, weights(g, x, x.shape[1], outputs, *attributes["kernel_shape"])]
    return Node("ConvTranspose", [*inputs, *([weights(g, x, outputs)] if g.chance(0.5) else [])], attributes)


def _has_maximum(x: Value) -> bool:
    """Return whether onnxruntime computes the maximum of every window: it keeps or loses a NaN by its position, and has
    the lowest finite number for windows of -inf."""
    return not (np.isnan(x.array) | np.isneginf(x.array)).any()


def pool(g: Graph) -> Node | None:
    x = image(g)
    name = g.one_of(("MaxPool", "AveragePool", "LpPool"))
    if name == "MaxPool" and not _has_maximum(x):
        return None
    attributes = windows(g, x, pool=True)
    if name == "AveragePool":
        attributes["count_include_pad"] = g.number(0, 1)
    if (name == "AveragePool" and g.opset < 19) or (name == "LpPool" and g.opset < 18):
        attributes.pop("dilations", None)
    if "auto_pad" in attributes:
        attributes.pop("dilations", None)  # onnxruntime pads for kernels that are not dilated
    if name == "LpPool":
        attributes["p"] = g.number(1, 3)
        if "auto_pad" in attributes:
            attributes.pop(
                "strides", None
            )  # onnxruntime pads by negative numbers where strides are larger than kernels
    if (name != "LpPool" or g.opset >= 18) and "auto_pad" not in attributes and g.chance(0.4):
        attributes["ceil_mode"] = 1
    places = name == "MaxPool" and x.exact and g.chance(0.3)
    return Node(name, [x], attributes, outputs=2 if places else 1, exact=name == "MaxPool")


def global_pool(g: Graph) -> Node | None:
    name, x = g.one_of(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")), image(g)
    if name == "GlobalMaxPool" and not _has_maximum(x):
        return None
    return Node(name, [x], exact=name == "GlobalMaxPool")


def norm(g: Graph) -> Node | None:
    x = image(g)
    channels = x.shape[1]
    name = g.one_of(("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "GroupNormalization"))
    scale, shift, mean = (weights(g, x, channels) for _ in range(3))
    if name == "BatchNormalization":
        variance = g.constant(np.abs(scale.array) + np.asarray(0.5, x.array.dtype))
        return Node(name, [x, scale, shift, mean, variance], {"epsilon": 1e-3})
    if name == "InstanceNormalization":
        return Node(name, [x, scale, shift], {"epsilon": 1e-2})
    if name == "LRN":
        if not np.isfinite(x.array).all():
            return None  # onnxruntime keeps a NaN for the following channels
        return Node(name, [x], {"size": g.one_of((1, 2, 3, 5)), "alpha": 0.1, "beta": 0.5})
    if name == "GroupNormalization" and g.opset >= 21:
        groups = g.one_of([d for d in range(1, channels + 1) if channels % d == 0] or [1])
        return Node(name, [x, scale, shift], {"num_groups": groups, "epsilon": 1e-2})
    if g.opset < 17:
        return None
    axis = g.number(1, len(x.shape) - 1)
    scale, shift = (weights(g, x, *x.shape[axis:]) for _ in range(2))
    more = {"axis": axis - (len(x.shape) if g.chance(0.5) else 0), "epsilon": 1e-2}
    return Node("LayerNormalization", [x, scale, shift] if g.chance(0.7) else [x, scale], more)


def mean_variance(g: Graph) -> Node:
    return Node("MeanVarianceNormalization", [g.pick("f", ranks=(4,), least=2)])


def resized(g: Graph) -> Node | None:
    x = g.pick("f", ranks=(4,) if g.chance(0.8) else (3, 5), least=1)
    mode = g.one_of(("nearest", "linear", "linear", "cubic"))
    if mode != "nearest" and not np.isfinite(x.array).all():
        return None  # an infinity with weight 0 may count or not
    where = g.one_of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attributes["nearest_mode"] = g.one_of(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    outer, spatial = list(x.shape[:2]), x.shape[2:]
    if g.chance(0.5):
        sizes = g.constant([*outer, *g.numbers(len(spatial), 1, 9)], "int64")
        return Node("Resize", [x, None, None, sizes], attributes, exact=mode == "nearest")
    scales = g.constant([1, 1, *(g.one_of((0.5, 1.0, 2.0, 3.0, 1.5)) for _ in spatial)], "float32")
    if where == "align_corners" and (scales.array[2:] * spatial % 1).any():
        # The standard uses the exact length for the result's, onnxruntime the integer below it.
        attributes["coordinate_transformation_mode"] = "half_pixel"
    return Node("Resize", [x, None, scales], attributes, exact=mode == "nearest")


def grid_sample(g: Graph) -> Node | None:
    x = g.pick("f", ranks=(4,), least=1)
    if not np.isfinite(x.array).all():
        return None  # a weight that rounding may make 0 determines whether an infinity counts
    grid = g.rng.uniform(-1.5, 1.5, (x.shape[0], g.number(1, 3), g.number(1, 4), 2)).astype(x.array.dtype)
    names = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    attributes = {"mode": g.one_of(names), "padding_mode": g.one_of(("zeros", "border", "reflection"))}
    return Node("GridSample", [x, g.input(grid)], {**attributes, "align_corners": g.number(0, 1)})


def roi_align(g: Graph) -> Node | None:
    x, count = g.pick("f", ranks=(4,), least=1), g.number(1, 3)
    if not np.isfinite(x.array).all():
        return None  # onnxruntime multiplies values outside of an image by 0
    scale = g.one_of((1.0, 0.5, 0.25))
    corners = np.sort(g.rng.uniform(0, 8 / scale, (count, 2, 2)), axis=1).reshape(count, 4)
    batch = g.constant(g.numbers(count, 0, x.shape[0] - 1), "int64")
    attributes = {"output_height": g.number(1, 3), "output_width": g.number(1, 3), "spatial_scale": scale}
    return Node("RoiAlign", [x, g.input(corners.astype(x.array.dtype)), batch], {**attributes, "sampling_ratio": 2})


def blocks(g: Graph) -> Node:
    x = g.pick("f", ranks=(4,), least=1)
    if x.shape[1] % 4 == 0 and g.chance(0.7):
        return Node("DepthToSpace", [x], {"blocksize": 2, "mode": g.one_of(("DCR", "CRD"))}, exact=True)
    return Node("SpaceToDepth", [x], {"blocksize": 2 if x.shape[2] % 2 == x.shape[3] % 2 == 0 else 1}, exact=True)


def prelu(g: Graph) -> Node:
    x = g.pick("f", ranks=(2, 3, 4))
    return Node("PRelu", [x, weights(g, x, *(1 if g.chance(0.5) else extent for extent in x.shape[1:]))])


def recurrent(g: Graph) -> Node | None:
    name, gates, functions = g.one_of((("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 1)))
    x = g.pick("f", ranks=(3,), least=1)
    if not np.isfinite(x.array).all():
        return None  # onnxruntime's activations lose a NaN
    steps, batch, width = x.shape
    hidden, way = g.number(1, 6), g.one_of(("forward", "reverse", "bidirectional"))
    directions = 2 if way == "bidirectional" else 1
    inputs: list[Value | None] = [
        x,
        weights(g, x, directions, gates * hidden, width),
        weights(g, x, directions, gates * hidden, hidden),
        weights(g, x, directions, 2 * gates * hidden) if g.chance(0.6) else None,
        g.constant(g.numbers(batch, 1, steps), "int32") if g.chance(0.3) else None,
        weights(g, x, directions, batch, hidden) if g.chance(0.4) else None,
    ]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    if g.chance(0.3):
        known = ("Tanh", "Sigmoid", "Relu", "LeakyRelu", "HardSigmoid", "Affine", "Softsign", "Elu")
        chosen = [g.one_of(known) for _ in range(functions * directions)]
        with_alpha = [name for name in chosen if name in ("LeakyRelu", "HardSigmoid", "Affine", "Elu")]
        with_beta = [name for name in chosen if name in ("HardSigmoid", "Affine")]
        attributes["activations"] = chosen
        attributes |= {"activation_alpha": [0.3] * len(with_alpha)} if with_alpha else {}
        attributes |= {"activation_beta": [0.2] * len(with_beta)} if with_beta else {}
    if g.chance(0.15):
        attributes["clip"] = 0.7
    if name == "GRU" and g.chance(0.5):
        attributes["linear_before_reset"] = 1
    return Node(name, inputs, attributes, outputs=3 if name == "LSTM" else 2)


LAYERS: list[Draw] = [
    *[product, product, gemm, einsum, convolution, convolution, transposed, pool, pool, global_pool, norm, norm],
    *[mean_variance, resized, resized, grid_sample, roi_align, blocks, prelu, recurrent, recurrent],
]
