"""ONNX operators on tensors with symbolic shapes, and those that take sizes as values.

A rule gets the node's tensors and what is known of its inputs as sizes, and returns the result, or None if the
converter for fixed shapes applies. Slices clamp as in the standard; conditions that must hold become guards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from onnx import numpy_helper
from tvm import relax, tirx
from tvm.relax import op

from ...figures import quantity
from ..fitting import cast, reshaped
from ..open_parts import bounds, lifted, padded, sequence, sliced, tiled
from ..open_shapes import Size, expr, extents_of, plus
from .attention import open_grouped_query_attention
from .fused_attention import open_multi_head_attention, open_self_attention
from .open_agreement import AGREEING
from .open_node import OpenNode, Rule, axis_of, is_open, word
from .open_selection import SELECTING, hardmax, in_parts
from .open_signal import SIGNALS
from .open_windows import WINDOWS

# ---- views ----------------------------------------------------------------------------------------------------------


def _with_shape(node: OpenNode, data: relax.Expr, wanted: Sequence[Size]) -> relax.Expr:
    """Return `data` reshaped to the same number of elements; at most one extent is -1."""
    extents = list(wanted)
    left = [place for place, extent in enumerate(extents) if isinstance(extent, int) and extent == -1]
    if len(left) > 1:
        raise ValueError("more than one extent is -1")
    if left:
        others = [extent for place, extent in enumerate(extents) if place != left[0]]
        extents[left[0]] = node.shapes.quotient(extents_of(data), others)
    return node.bb.emit(reshaped(node.bb, data, extents, node.shapes, fits=bool(left)))


def _reshape(node: OpenNode) -> relax.Expr | None:
    wanted = node.sizes(1)
    if wanted is None:
        return None
    before, result = node.extents(), []
    for place, extent in enumerate(wanted):
        if isinstance(extent, int):
            kept = extent == 0 and not node.attr.get("allowzero", 0)
            if kept and place >= len(before):
                raise ValueError(f"extent {place} is 0 (keep), but the tensor has {len(before)} axes")
            result.append(before[place] if kept else extent)
            continue
        # 0 and -1 have special meanings, unless the extent stays the same.
        if place >= len(before) or not node.shapes.same(before[place], extent):
            node.shapes.require_at_least(extent, 0 if node.attr.get("allowzero", 0) else 1)
        result.append(extent)
    return _with_shape(node, node.tensor(), result)


def _flatten(node: OpenNode) -> relax.Expr | None:
    extents, axis = node.extents(), node.attr.get("axis", 1)
    if not -len(extents) <= axis <= len(extents):
        raise ValueError(f"axis {axis} is out of range for a tensor of {quantity(len(extents), 'axis', 'axes')}")
    axis += len(extents) if axis < 0 else 0
    return _with_shape(node, node.tensor(), [node.shapes.product(extents[:axis]), node.shapes.product(extents[axis:])])


def _squeeze(node: OpenNode) -> relax.Expr | None:
    extents = node.extents()
    given = node.numbers(1) if len(node.values) > 1 else node.attr.get("axes")
    if given is None and len(node.values) > 1 and node.has(1):
        return None
    if given is None:
        axes = [axis for axis, extent in enumerate(extents) if isinstance(extent, int) and extent == 1]
        for extent in extents:
            if not isinstance(extent, int):
                node.shapes.require_different(extent, 1)
    else:
        axes = [axis_of(axis, len(extents)) for axis in given]
        for axis in axes:
            node.shapes.agreed(extents[axis], 1)
    kept = [extent for axis, extent in enumerate(extents) if axis not in axes]
    settled = [1 if axis in axes else extent for axis, extent in enumerate(extents)]
    return op.reshape(cast(node.bb, node.tensor(), settled), relax.ShapeExpr(kept))


def _expand(node: OpenNode) -> relax.Expr | None:
    wanted = node.sizes(1)
    if wanted is None:
        return None
    own = node.extents()
    rank = max(len(own), len(wanted))
    lined = [[1] * (rank - len(shape)) + list(shape) for shape in (own, wanted)]
    shape = [node.shapes.broadcast(pair) for pair in zip(*lined, strict=True)]
    before = [1 if isinstance(e, int) and e == 1 else whole_ for e, whole_ in zip(lined[0], shape, strict=True)]
    data = cast(node.bb, node.tensor(), before[rank - len(own) :])
    return op.broadcast_to(data, relax.ShapeExpr(shape))


def _constant_of_shape(node: OpenNode) -> relax.Expr | None:
    wanted = node.sizes(0)
    if wanted is None:
        return None
    for extent in wanted:
        node.shapes.require_at_least(extent, 0)
    value = numpy_helper.to_array(node.attr["value"]) if "value" in node.attr else np.zeros(1, "float32")
    return op.broadcast_to(relax.const(value.reshape(()), str(value.dtype)), relax.ShapeExpr(wanted))


# ---- parts ----------------------------------------------------------------------------------------------------------


def _slice(node: OpenNode) -> relax.Expr | None:
    extents = node.extents()
    given: list[list[Size] | None]
    if node.opset < 10:
        given = [list(node.attr[name]) if name in node.attr else None for name in ("starts", "ends", "axes", "steps")]
    else:
        if any(node.has(place) and node.sizes(place) is None for place in range(1, 5)):
            return None
        given = [node.sizes(place) for place in range(1, 5)]
    starts, ends, axes, steps = given
    if starts is None or ends is None:
        return None
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not all(isinstance(number, int) for number in (*axes, *steps)):
        raise ValueError("axes and steps must be known at compile time")
    axes = [axis_of(axis, len(extents)) for axis in axes]
    if not len(starts) == len(ends) == len(axes) == len(steps) == len(set(axes)) or 0 in steps:
        raise ValueError(
            f"inconsistent slice: {len(starts)} starts, {len(ends)} ends, {len(set(axes))} axes, steps {steps}"
        )
    if all(isinstance(size, int) for size in (*starts, *ends, *(extents[axis] for axis in axes))):
        return None
    cuts = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cuts[axis] = (*bounds(node.shapes, start, end, step, extents[axis]), step)
    return sliced(node.bb, node.shapes, node.tensor(), cuts)


def _split(node: OpenNode) -> relax.Expr | None:
    extents = node.extents()
    axis = axis_of(node.attr.get("axis", 0), len(extents))
    if node.opset < 13:
        sizes: list[Size] | None = list(node.attr["split"]) if "split" in node.attr else None
    else:
        sizes = node.sizes(1)
        if sizes is None and node.has(1):
            return None
    extent = extents[axis]
    if isinstance(extent, int) and (sizes is None or all(isinstance(size, int) for size in sizes)):
        return None
    if sizes is None:
        count = node.attr["tvm_custom"]["num_outputs"]
        if "num_outputs" in node.attr:  # the last may have fewer elements
            part = node.shapes.simplified(tirx.floordiv(expr(plus(extent, count - 1)), expr(count)))
            sizes = [part] * (count - 1) + [node.shapes.simplified(plus(extent, -(count - 1) * part))]
        else:
            sizes = [node.shapes.quotient([extent], [count])] * count
    return in_parts(node, axis, sizes)


def _gather(node: OpenNode) -> relax.Expr | None:
    """Gather at one index along a dynamic axis, known at compile time."""
    if not is_open(node.tensor()):
        return None
    extents = node.extents()
    axis = axis_of(node.attr.get("axis", 0), len(extents))
    value = node.values[1]
    if value is None or value.values.size != 1 or isinstance(extents[axis], int):
        return None
    place = value.values.item()
    first = lifted(node.shapes, place, extents[axis])
    node.shapes.require_at_least(first, 0)
    node.shapes.require_at_least(extents[axis], plus(first, 1))
    part = sliced(node.bb, node.shapes, node.tensor(), {axis: (first, 1, 1)})
    ones = [1] * value.values.ndim
    return op.reshape(node.bb.emit(part), relax.ShapeExpr([*extents[:axis], *ones, *extents[axis + 1 :]]))


def _tile(node: OpenNode) -> relax.Expr | None:
    extents, repeats = node.extents(), node.sizes(1)
    if repeats is None:
        return None
    if len(repeats) != len(extents):
        raise ValueError(f"{len(repeats)} repeats for {quantity(len(extents), 'axis', 'axes')}")
    return tiled(node.bb, node.shapes, node.tensor(), repeats)


def _pad(node: OpenNode) -> relax.Expr | None:
    extents, mode = node.extents(), word(node.attr.get("mode", "constant"))
    rank = len(extents)
    if node.opset < 11:
        pads: list[Size] | None = list(node.attr["pads"])
        fill: Any = node.attr.get("value", 0.0)
    else:
        pads, fill = node.sizes(1), 0
        if pads is None:
            return None
        if node.has(2):
            held = node.tensor(2)
            if not isinstance(held, tvm.ir.GenericConst):
                raise ValueError("the padding value must be known at compile time")
            fill = held.value.numpy().reshape(-1)[0].item()
    axes = list(range(rank))
    if node.has(3):
        given = node.numbers(3)
        if given is None:
            raise ValueError("axes must be known at compile time")
        axes = [axis_of(axis, rank) for axis in given]
    if pads is None or len(pads) != 2 * len(axes):
        raise ValueError(
            f"{quantity(len(pads or ()), 'pad')} for {quantity(len(axes), 'axis', 'axes')}; expected two per axis"
        )
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(
            f"mode {mode!r} is not supported for tensors of dynamic shape; expected constant, edge, reflect, wrap"
        )
    pairs: list[tuple[Size, Size]] = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        pairs[axis] = (pads[place], pads[place + len(axes)])
    return padded(node.bb, node.shapes, node.tensor(), pairs, fill, mode)


def _range(node: OpenNode) -> relax.Expr | None:
    given = [node.sizes(place) for place in range(3)]
    if any(sizes is None or len(sizes) != 1 for sizes in given):
        return None
    start, limit, step = (sizes[0] for sizes in given if sizes is not None)
    if not isinstance(step, int) or step == 0:
        raise ValueError("the step must be known at compile time and not be 0")
    over = plus(limit, -1 * start, step - 1) if step > 0 else plus(start, -1 * limit, -step - 1)
    count = tirx.floordiv(expr(node.shapes.simplified(over)), expr(abs(step)))
    length = node.shapes.larger(node.shapes.simplified(count), 0)
    value = node.values[0]
    assert value is not None
    if isinstance(length, int) and isinstance(start, int):
        return relax.const((start + step * np.arange(length)).astype(value.dtype), value.dtype)
    return sequence(node.bb, start, step, length, value.dtype)


# ---- rows -----------------------------------------------------------------------------------------------------------


def _of_rows(function: Any) -> Rule:
    """Return the rule for softmax, which before version 13 was over all elements from an axis on."""

    def rule(node: OpenNode) -> relax.Expr | None:
        extents = node.extents()
        if node.opset >= 13:
            return function(node.tensor(), axis=axis_of(node.attr.get("axis", -1), len(extents)))
        axis = axis_of(node.attr.get("axis", 1), len(extents))
        if axis == len(extents) - 1:
            return function(node.tensor(), axis=-1)
        rows = [node.shapes.product(extents[:axis]), node.shapes.product(extents[axis:])]
        flat = node.bb.emit(_with_shape(node, node.tensor(), rows))
        return _with_shape(node, node.bb.emit(function(flat, axis=-1)), extents)

    return rule


def _prelu(node: OpenNode) -> relax.Expr | None:
    """Slopes for negative values, broadcast to the data."""
    data, slope = node.tensor(), node.tensor(1)
    if len(node.extents(1)) > len(node.extents()):
        raise ValueError("slopes have more axes than the data")
    scaled = node.bb.emit(op.multiply(data, slope))
    return op.where(node.bb.emit(op.less(data, relax.const(0, str(data.ty.dtype)))), scaled, data)


OPEN: dict[str, Rule] = {
    **AGREEING,
    **SELECTING,
    **SIGNALS,
    **WINDOWS,
    "com.microsoft.Attention": open_self_attention,
    "com.microsoft.GroupQueryAttention": open_grouped_query_attention,
    "com.microsoft.MultiHeadAttention": open_multi_head_attention,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Hardmax": _of_rows(hardmax),
    "LogSoftmax": _of_rows(op.nn.log_softmax),
    "PRelu": _prelu,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _of_rows(op.nn.softmax),
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
}
