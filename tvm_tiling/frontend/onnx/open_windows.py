"""Convolution, pooling and resizing of ONNX on images of dynamic shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from ..fitting import cast
from ..open_parts import kernel_of_sizes
from ..open_shapes import Size, expr, plus, whole
from .open_node import OpenNode, Rule, word
from .open_pools import POOLS, around, open_windows
from .open_resize import RESIZES


def _settled(node: OpenNode) -> relax.Expr:
    """Return the images with the number of channels that guards check."""
    return cast(node.bb, node.tensor(), node.extents())


_LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


def _conv(node: OpenNode) -> relax.Expr | None:
    extents, weights = node.extents(), node.extents(1)
    if not all(isinstance(extent, int) for extent in weights):
        raise ValueError("weights of dynamic shape are not supported")
    if isinstance(extents[1], int) and all(isinstance(extent, int) for extent in extents[2:]):
        return None
    node.shapes.agreed(extents[1], weights[1] * node.attr.get("group", 1))
    windows = open_windows(node, weights[2:])
    data, padding = around(node, _settled(node), windows, 0.0)
    rank = len(windows)
    layout, stored = _LAYOUTS[rank]
    result = getattr(op.nn, f"conv{rank}d")(
        data,
        node.tensor(1),
        strides=[w.stride for w in windows],
        padding=padding,
        dilation=[w.dilation for w in windows],
        groups=node.attr.get("group", 1),
        data_layout=layout,
        kernel_layout=stored,
    )
    if not node.has(2):
        return result
    return op.add(node.bb.emit(result), node.bb.emit(op.reshape(node.tensor(2), [1, -1] + [1] * rank)))


def _integer_conv(place: int) -> Rule:
    """Return the rule for an 8-bit convolution whose weights are the input at `place`. The padding must be known, since
    it has the value of the zero point."""

    def rule(node: OpenNode) -> relax.Expr | None:
        extents, weights = node.extents(), node.extents(place)
        if not all(isinstance(extent, int) for extent in weights):
            raise ValueError("weights of dynamic shape are not supported")
        if all(isinstance(extent, int) for extent in extents[1:]):
            return None
        node.shapes.agreed(extents[1], weights[1] * node.attr.get("group", 1))
        sides = [w.sides for w in open_windows(node, weights[2:])]
        if not all(isinstance(number, int) for pair in sides for number in pair):
            raise ValueError("auto_pad is not supported along dynamic axes")
        pads = [pair[0] for pair in sides] + [pair[1] for pair in sides]
        attr = {name: value for name, value in node.attr.items() if name != "auto_pad"}
        return node.converted({0: node.extents()}, {**attr, "pads": pads})

    return rule


def _col2im(node: OpenNode) -> relax.Expr | None:
    """As many columns as blocks of the image."""
    image, block = node.numbers(1), node.numbers(2)
    if image is None or block is None:
        raise ValueError("images of dynamic shape are not supported")
    rank = len(image)
    strides, dilations = (list(node.attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = list(node.attr.get("pads", [0] * 2 * rank))
    counts = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    batch, rows, columns = node.extents()
    return node.converted({0: [batch, rows, node.shapes.agreed(columns, math.prod(counts))]})


# ---- transposed convolutions -----------------------------------------------------------------------------------------


def _conv_transpose(node: OpenNode) -> relax.Expr | None:
    """Convolution of images, upsampled with zeros and padded, with the reversed weights."""
    extents, weights = node.extents(), node.extents(1)
    if not all(isinstance(extent, int) for extent in weights):
        raise ValueError("weights of dynamic shape are not supported")
    if all(isinstance(extent, int) for extent in extents):
        return None
    group, rank = node.attr.get("group", 1), len(weights) - 2
    if len(extents) != rank + 2 or rank not in _LAYOUTS:
        raise ValueError(f"images have {len(extents) - 2} axes and windows {rank}; expected 1 to 3, equal")
    node.shapes.agreed(extents[1], weights[0])
    strides, dilations = (list(node.attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    spans = [(taps - 1) * dilation + 1 for taps, dilation in zip(weights[2:], dilations, strict=True)]
    sides = []
    for span, (before, after) in zip(spans, _transposed_pads(node, spans, strides), strict=True):
        sides.append(tuple(node.shapes.simplified(plus(span - 1, -1 * pad)) for pad in (before, after)))
    data = node.bb.emit(_spread(node, _settled(node), strides, sides))
    for extent, span in zip(data.ty.shape.values[2:], spans, strict=True):
        node.shapes.require_at_least(whole(extent), span)
    layout, stored = _LAYOUTS[rank]
    result = getattr(op.nn, f"conv{rank}d")(
        data, _backwards(node, group), dilation=dilations, groups=group, data_layout=layout, kernel_layout=stored
    )
    if not node.has(2):
        return result
    return op.add(node.bb.emit(result), node.bb.emit(op.reshape(node.tensor(2), [1, -1] + [1] * rank)))


def _transposed_pads(node: OpenNode, spans: list[int], strides: list[int]) -> list[tuple[Size, Size]]:
    """Return the elements cropped before and after each axis; negative if zeros are added."""
    rank = len(spans)
    extra, auto = list(node.attr.get("output_padding", [0] * rank)), word(node.attr.get("auto_pad", "NOTSET"))
    same, upper = auto in ("SAME_UPPER", "SAME_LOWER"), auto == "SAME_UPPER"
    wanted = list(node.attr["output_shape"])[-rank:] if "output_shape" in node.attr else None
    pads = [0] * 2 * rank if auto == "VALID" else list(node.attr.get("pads", [0] * 2 * rank))
    found: list[tuple[Size, Size]] = []
    for axis, (span, stride, more) in enumerate(zip(spans, strides, extra, strict=True)):
        if wanted is None and not same:
            found.append((pads[axis], pads[axis + rank] - more))
            continue
        if wanted is None:
            total: Size = max(span - stride + more, 0)
        else:
            reach = plus((node.extents()[2 + axis] - 1) * stride, span, more)
            total = node.shapes.simplified(plus(reach, -wanted[axis]))
            more = plus(more, node.shapes.larger(node.shapes.simplified(-1 * total), 0))
            total = node.shapes.larger(total, 0)
        half = node.shapes.simplified(tirx.floordiv(expr(total), expr(2)))
        rest = node.shapes.simplified(plus(total, -1 * half))
        before, after = (half, rest) if upper else (rest, half)
        found.append((before, node.shapes.simplified(plus(after, -1 * more))))
    return found


def _spread(node: OpenNode, data: relax.Expr, strides: Sequence[int], sides: Sequence[tuple[Size, ...]]) -> relax.Expr:
    """Return images whose elements are `strides` apart, with zeros in between, and `sides` zeros around them."""
    extents = node.extents()[2:]
    shape = [*data.ty.shape.values[:2]]
    for extent, stride, side in zip(extents, strides, sides, strict=True):
        shape.append(expr(node.shapes.simplified(plus((extent - 1) * stride, 1, *side))))

    def spread(x: te.Tensor, firsts: Sequence[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            places, inside = list(at[:2]), []
            for i, first, stride, size in zip(at[2:], firsts, strides, x.shape[2:], strict=True):
                place = tirx.Cast("int64", i) - first
                step = tirx.floordiv(place, stride)
                inside += [place >= 0, step < size]
                if stride > 1:
                    inside.append(tirx.floormod(place, stride).equal(tirx.const(0, "int64")))
                places.append(tirx.max(tirx.min(step, size - 1), 0))
            return tirx.if_then_else(tirx.all(*inside), x[tuple(places)], tirx.const(0, x.dtype))

        return te.compute(shape, element, name="spread")

    return kernel_of_sizes(node.bb, spread, data, [before for before, _ in sides], "spread")


def _backwards(node: OpenNode, group: int) -> relax.Expr:
    """Return weights as those of a convolution: output channels first, taps reversed."""
    first, second, *taps = node.extents(1)
    weights, bb, rank = node.tensor(1), node.bb, len(taps)
    parts = bb.emit(op.reshape(weights, [group, first // group, second, *taps]))
    turned = bb.emit(op.permute_dims(parts, [0, 2, 1, *range(3, 3 + rank)]))
    whole_ = bb.emit(op.reshape(turned, [group * second, first // group, *taps]))
    for axis in range(2, 2 + rank):
        whole_ = bb.emit(op.flip(whole_, axis))
    return whole_


WINDOWS: dict[str, Rule] = {
    **POOLS,
    **RESIZES,
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvInteger": _integer_conv(1),
    "QLinearConv": _integer_conv(3),
    "ConvTranspose": _conv_transpose,
}
