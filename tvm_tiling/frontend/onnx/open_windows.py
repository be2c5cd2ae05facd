"""Convolutions, pools and resizing of ONNX on images of open sizes."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax, tirx
from tvm.relax import op

from ..fitting import cast
from ..open_parts import padded, upsampled
from ..open_shapes import Size, expr, plus
from .open_node import OpenNode, Rule, axis_of, word
from .resize import resized
from .tensors import as_inputs, constant, dtype_of


def _windows(node: OpenNode, kernel: Sequence[int]) -> tuple[list[int], list[int], list[tuple[Size, Size]]]:
    """Strides, dilations and padding of each axis of images; a guard where a window may exceed its axis."""
    spatial = node.extents()[2:]
    rank = len(spatial)
    if len(kernel) != rank or rank not in (1, 2, 3):
        raise ValueError(f"images of {rank} axes and windows of {len(kernel)}; accepted: 1 to 3")
    strides, dilations = (list(node.attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    given, auto = list(node.attr.get("pads", [0] * 2 * rank)), word(node.attr.get("auto_pad", "NOTSET"))
    pads: list[tuple[Size, Size]] = []
    for axis, extent in enumerate(spatial):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            stride = strides[axis]
            last = tirx.floordiv(expr(plus(extent, -1)), expr(stride)) * stride
            total = node.shapes.larger(node.shapes.simplified(plus(last, span, -1 * extent)), 0)
            half = node.shapes.simplified(tirx.floordiv(expr(total), expr(2)))
            rest = node.shapes.simplified(plus(total, -1 * half))
            pads.append((half, rest) if auto == "SAME_UPPER" else (rest, half))
            continue
        pair = (0, 0) if auto == "VALID" else (given[axis], given[axis + rank])
        node.shapes.require_at_least(plus(extent, *pair), span)
        pads.append(pair)
    return strides, dilations, pads


def _own_padding(
    node: OpenNode, pads: list[tuple[Size, Size]], fill: float
) -> tuple[relax.Expr, list[tuple[int, int]]]:
    """The images with what padding is open around them, and the padding that is left."""
    if all(isinstance(number, int) for pair in pads for number in pair):
        return _settled(node), pads
    around = padded(node.bb, node.shapes, _settled(node), [(0, 0), (0, 0), *pads], fill, "constant")
    return node.bb.emit(around), [(0, 0)] * len(pads)


def _settled(node: OpenNode) -> relax.Expr:
    """The images with the channels that guards say."""
    return cast(node.bb, node.tensor(), node.extents())


_LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


def _conv(node: OpenNode) -> relax.Expr | None:
    extents, weights = node.extents(), node.extents(1)
    if not all(isinstance(extent, int) for extent in weights):
        raise ValueError("weights of open sizes")
    if isinstance(extents[1], int) and all(isinstance(extent, int) for extent in extents[2:]):
        return None
    node.shapes.agreed(extents[1], weights[1] * node.attr.get("group", 1))
    strides, dilations, pads = _windows(node, weights[2:])
    data, left = _own_padding(node, pads, 0.0)
    rank = len(pads)
    layout, stored = _LAYOUTS[rank]
    result = getattr(op.nn, f"conv{rank}d")(
        data,
        node.tensor(1),
        strides=strides,
        padding=[pair[0] for pair in left] + [pair[1] for pair in left],
        dilation=dilations,
        groups=node.attr.get("group", 1),
        data_layout=layout,
        kernel_layout=stored,
    )
    if not node.has(2):
        return result
    return op.add(node.bb.emit(result), node.bb.emit(op.reshape(node.tensor(2), [1, -1] + [1] * rank)))


def _refuse_gaps(node: OpenNode, kernel: Sequence[int]) -> None:
    """Pools by auto_pad whose windows leave elements out start where the standard and onnxruntime do not agree."""
    rank = len(kernel)
    strides, dilations = (list(node.attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    spans = [(taps - 1) * dilation + 1 for taps, dilation in zip(kernel, dilations, strict=True)]
    by_itself = word(node.attr.get("auto_pad", "NOTSET")) in ("SAME_UPPER", "SAME_LOWER")
    if by_itself and any(span < stride for span, stride in zip(spans, strides, strict=True)):
        raise ValueError("auto_pad with steps longer than windows, along axes of open sizes")


def _pool(name: str, fill: str | None) -> Rule:
    def rule(node: OpenNode) -> relax.Expr | None:
        if not any(not isinstance(extent, int) for extent in node.extents()[2:]):
            return None
        if node.attr.get("ceil_mode", 0):
            raise ValueError("ceil_mode along axes of open sizes")
        if node.attr["tvm_custom"]["num_outputs"] != 1:
            raise ValueError("indices of the largest elements along axes of open sizes")
        kernel = list(node.attr["kernel_shape"])
        _refuse_gaps(node, kernel)
        strides, dilations, pads = _windows(node, kernel)
        open_pads = any(not isinstance(number, int) for pair in pads for number in pair)
        if open_pads and (fill is None or "float" not in dtype_of(node.tensor())):
            raise ValueError("padding that depends on open sizes")
        data, left = _own_padding(node, pads, float(fill or 0))
        more = {"count_include_pad": bool(node.attr.get("count_include_pad", 0))} if fill is None else {}
        padding = [pair[0] for pair in left] + [pair[1] for pair in left]
        return getattr(op.nn, f"{name}{len(kernel)}d")(data, kernel, strides, padding, dilations, **more)

    return rule


def _resize(node: OpenNode) -> relax.Expr | None:
    """Nearest and linear by whole factors along open axes, as upsampling layers have them."""
    extents = node.extents()
    if (fixed := _of_fixed_axes(node, extents)) is not None:
        return fixed
    factors = _factors(node, extents)
    place = word(node.attr.get("coordinate_transformation_mode", "half_pixel" if node.opset > 10 else "asymmetric"))
    mode = word(node.attr.get("mode", "nearest"))
    nearest = word(node.attr.get("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor"))
    halves = place in ("half_pixel", "pytorch_half_pixel")
    by_floor = mode == "nearest" and (
        (place == "asymmetric" and nearest == "floor") or (halves and nearest == "round_prefer_floor")
    )
    if not by_floor and not (mode == "linear" and halves):
        raise ValueError(f"mode {mode!r}, places {place!r} along axes of open sizes")
    if node.attr.get("antialias", 0) or node.attr.get("exclude_outside", 0):
        raise ValueError("antialias or exclude_outside along axes of open sizes")
    data = node.tensor()
    for axis, factor in enumerate(factors):
        if factor != 1:
            data = node.bb.emit(upsampled(node.bb, node.shapes, data, axis, factor, linear=mode == "linear"))
    return data


def _of_fixed_axes(node: OpenNode, extents: list[Size]) -> relax.Expr | None:
    """A Resize that leaves all open axes as they are; None of others."""
    data, roi, scales = node.tensor(), None, None
    if node.opset > 10:
        roi, scales = (node.tensor(place) if node.has(place) else None for place in (1, 2))
        sizes = node.sizes(3)
        if node.has(3) and sizes is None:
            return None
    else:
        scales, sizes = _scales(node), None
    axes = [axis_of(axis, len(extents)) for axis in node.attr.get("axes", range(len(extents)))]
    kept = [axis for axis in axes if not isinstance(extents[axis], int)]
    if sizes:
        by_axis = dict(zip(axes, sizes, strict=True))
        left = [by_axis[axis] for axis in axes if axis not in kept]
        if not all(node.shapes.same(by_axis[axis], extents[axis]) for axis in kept):
            return None
        if (
            not all(isinstance(size, int) for size in left)
            or word(node.attr.get("keep_aspect_ratio_policy", "stretch")) != "stretch"
        ):
            return None
        given: list[relax.Expr | None] = [data, None, None, constant(left)]
    else:
        if not isinstance(scales, tvm.ir.GenericConst):
            return None
        numbers = dict(zip(axes, scales.value.numpy().tolist(), strict=False))
        if any(numbers.get(axis) != 1.0 for axis in kept):
            return None
        given = [data, None, constant([numbers[axis] for axis in axes if axis not in kept], "float32"), None]
    if word(node.attr.get("coordinate_transformation_mode", "")) == "tf_crop_and_resize" and roi is not None:
        return None
    older = {} if node.opset > 10 else {"coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
    return resized(node.bb, as_inputs(*given), {**older, **node.attr, "axes": [a for a in axes if a not in kept]})


def _scales(node: OpenNode) -> relax.Expr:
    """Those of Resize 10 and Upsample: an input, or an attribute."""
    return node.tensor(1) if len(node.given) > 1 else constant(node.attr["scales"], "float32")


def _factors(node: OpenNode, extents: list[Size]) -> list[int]:
    sizes = node.sizes(3) if node.opset > 10 else None
    axes = [axis_of(axis, len(extents)) for axis in node.attr.get("axes", range(len(extents)))]
    found = [1] * len(extents)
    if sizes:
        for axis, size in zip(axes, sizes, strict=True):
            if node.shapes.same(size, extents[axis]):
                continue
            found[axis] = node.shapes.multiple(size, extents[axis])
        return found
    held = node.tensor(2) if node.opset > 10 else _scales(node)
    if not isinstance(held, tvm.ir.GenericConst):
        raise ValueError("scales have to be known before the run")
    scales = held.value.numpy().tolist()
    for axis, scale in zip(axes, scales, strict=True):
        if scale != int(scale) or scale < 1:
            raise ValueError(f"a scale of {scale:g} of a tensor of open sizes; expected whole numbers")
        found[axis] = int(scale)
    return found


WINDOWS: dict[str, Rule] = {
    "AveragePool": _pool("avg_pool", None),
    "Conv": _conv,
    "MaxPool": _pool("max_pool", "-inf"),
    "Resize": _resize,
    "Upsample": _resize,
}
