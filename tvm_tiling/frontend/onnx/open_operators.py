"""ONNX operators on tensors of open sizes, and those that take sizes as values.

A rule gets the node's tensors and what is known of its inputs as sizes, and gives the result, or None where the
converter for fixed sizes serves it. Slices clamp as the standard has it; what has to hold becomes a guard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from onnx import numpy_helper
from tvm import relax, te, tirx
from tvm.relax import op

from ..fitting import cast
from ..open_shapes import OpenShapes, Size, whole
from .recurrent import CONVERTERS as RECURRENT
from .size_values import SizeValue
from .tensors import as_inputs, dtype_of

_FAR = 2**31 - 1  # what exporters write for the end of an axis, or more


@dataclass(frozen=True)
class OpenNode:
    """A node being imported: the builder, its tensors (made when they are asked for), which are given, its inputs as
    sizes where they are known, its attributes, what is known of the open sizes, and the version of the operators."""

    bb: relax.BlockBuilder
    tensors: Callable[[int], relax.Expr | None]
    given: tuple[bool, ...]
    values: tuple[SizeValue | None, ...]
    attr: dict[str, Any]
    shapes: OpenShapes
    opset: int

    def tensor(self, place: int = 0) -> relax.Expr:
        """An input as a tensor."""
        found = self.tensors(place)
        if found is None or not isinstance(found.ty, relax.TensorType) or found.ty.shape is None:
            raise ValueError(f"input {place} is no tensor whose shape is known")
        return found

    def extents(self, place: int = 0) -> list[Size]:
        """The shape of an input."""
        return [self.shapes.simplified(whole(extent)) for extent in self.tensor(place).ty.shape]

    def sizes(self, place: int) -> list[Size] | None:
        """An input as sizes, in order; None where it is left out or computed in the run."""
        value = self.values[place] if place < len(self.values) else None
        if value is None or value.dtype not in ("int32", "int64"):
            return None
        return list(value.values.flat)

    def has(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.given) and self.given[place]

    def numbers(self, place: int) -> list[int] | None:
        """The same of whole numbers alone."""
        found = self.sizes(place)
        return None if found is None or not all(isinstance(size, int) for size in found) else found


Rule = Callable[[OpenNode], "relax.Expr | None"]


def is_open(value: relax.Expr | None) -> bool:
    """Whether a tensor has an extent that is no number, or no shape."""
    if value is None or not isinstance(value.ty, relax.TensorType):
        return False
    shape = value.ty.shape
    return not isinstance(shape, relax.ShapeExpr) or not all(isinstance(e, tirx.IntImm) for e in shape.values)


def _of_sizes(
    node: OpenNode, function: Callable[..., te.Tensor], data: relax.Expr, sizes: Sequence[Size], name: str
) -> relax.Expr:
    """A tensor expression of a tensor and of sizes: open ones become arguments of the kernel, as its tensors' shapes
    need not name them."""
    opened = [size for size in sizes if not isinstance(size, int)]

    def given(x: te.Tensor, *numbers: Any) -> te.Tensor:
        left = iter(numbers)
        return function(x, [size if isinstance(size, int) else next(left) for size in sizes])

    return node.bb.call_te(given, data, *opened, primfunc_name_hint=name)


# ---- views ----------------------------------------------------------------------------------------------------------


def reshaped(node: OpenNode, data: relax.Expr, wanted: Sequence[Size]) -> relax.Expr:
    """`data` with another shape of as many elements; at most one extent is -1."""
    shapes = node.shapes
    before = [shapes.simplified(whole(extent)) for extent in data.ty.shape]
    extents = list(wanted)
    left = [place for place, extent in enumerate(extents) if isinstance(extent, int) and extent == -1]
    if len(left) > 1:
        raise ValueError("more than one extent is -1")
    if left:
        others = [extent for place, extent in enumerate(extents) if place != left[0]]
        extents[left[0]] = shapes.quotient(before, others)
    else:
        shapes.agreed(shapes.product(before), shapes.product(extents))
    data = cast(node.bb, data, [shapes.simplified(extent) for extent in before])
    extents = [shapes.simplified(extent) for extent in extents]
    elements = shapes.product(before), shapes.product(extents)
    if all(isinstance(size, int) for size in elements) or shapes.plainly_same(*elements):
        return op.reshape(data, relax.ShapeExpr(extents))
    flat = node.bb.emit(op.reshape(data, relax.ShapeExpr([elements[0]])))
    return op.reshape(cast(node.bb, flat, [elements[1]]), relax.ShapeExpr(extents))


def _reshape(node: OpenNode) -> relax.Expr | None:
    wanted = node.sizes(1)
    if wanted is None:
        return None
    before, result = node.extents(), []
    for place, extent in enumerate(wanted):
        if isinstance(extent, int):
            kept = extent == 0 and not node.attr.get("allowzero", 0)
            if kept and place >= len(before):
                raise ValueError(f"extent {place} is kept, and the tensor has {len(before)} axes")
            result.append(before[place] if kept else extent)
            continue
        node.shapes.require_at_least(extent, 1)  # 0 and -1 mean something else
        result.append(extent)
    return reshaped(node, node.tensor(), result)


def _flatten(node: OpenNode) -> relax.Expr | None:
    extents, axis = node.extents(), node.attr.get("axis", 1)
    if not -len(extents) <= axis <= len(extents):
        raise ValueError(f"axis {axis} of a tensor of {len(extents)} axes")
    axis += len(extents) if axis < 0 else 0
    return reshaped(node, node.tensor(), [node.shapes.product(extents[:axis]), node.shapes.product(extents[axis:])])


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
        axes = [_axis(axis, len(extents)) for axis in given]
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


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of a tensor of {rank} axes")
    return axis % rank


def _lifted(node: OpenNode, place: Size, extent: Size) -> Size:
    """A place that may count from the end, from the start, not clamped. A size of unknown sign is taken as one that
    does not, with a guard."""
    if isinstance(place, int):
        return place if place >= 0 else extent + place
    if node.shapes.proves(place <= -1):
        return extent + place
    node.shapes.require_at_least(place, 0)
    return place


def bounds(node: OpenNode, start: Size, end: Size, step: int, extent: Size) -> tuple[Size, Size]:
    """The first element of a slice and how many it has."""
    shapes = node.shapes
    if step > 0:
        first = shapes.larger(shapes.smaller(_lifted(node, start, extent), extent), 0)
        far = isinstance(end, int) and end >= _FAR
        last = extent if far else shapes.larger(shapes.smaller(_lifted(node, end, extent), extent), 0)
        span = shapes.simplified(_plus(last, -1 * first, step - 1))
        return first, shapes.larger(shapes.simplified(tirx.floordiv(_expr(span), _expr(step))), 0)
    far = isinstance(start, int) and start >= _FAR
    top = shapes.simplified(extent - 1)
    first = top if far else shapes.larger(shapes.smaller(_lifted(node, start, extent), top), -1)
    none = isinstance(end, int) and end <= -_FAR
    last = -1 if none else shapes.larger(shapes.smaller(_lifted(node, end, extent), top), -1)
    span = shapes.simplified(_plus(first, -1 * last, -step - 1))
    return first, shapes.larger(shapes.simplified(tirx.floordiv(_expr(span), _expr(-step))), 0)


def sliced(node: OpenNode, data: relax.Expr, cuts: dict[int, tuple[Size, Size, int]]) -> relax.Expr:
    """Elements of `data`: along each axis from a first one on, how many, and how far apart."""
    extents = [whole(extent) for extent in data.ty.shape]
    cuts = {
        axis: (first, count, step)
        for axis, (first, count, step) in cuts.items()
        if not (isinstance(first, int) and first == 0 and step == 1 and node.shapes.same(count, extents[axis]))
    }
    if not cuts:
        return data
    shape = [cuts[axis][1] if axis in cuts else extent for axis, extent in enumerate(extents)]

    def part(x: te.Tensor, firsts: Sequence[Any]) -> te.Tensor:
        begins = dict(zip(cuts, firsts, strict=True))

        def element(*at: Any) -> Any:
            return x[tuple(begins[axis] + i * cuts[axis][2] if axis in cuts else i for axis, i in enumerate(at))]

        return te.compute([_expr(extent) for extent in shape], element, name="slice")

    return _of_sizes(node, part, data, [first for first, _, _ in cuts.values()], "strided_slice")


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
        raise ValueError("axes and steps have to be known before the run")
    axes = [_axis(axis, len(extents)) for axis in axes]
    if not len(starts) == len(ends) == len(axes) == len(steps) == len(set(axes)) or 0 in steps:
        raise ValueError(f"{len(starts)} starts, {len(ends)} ends, {len(set(axes))} axes and steps of {steps}")
    if all(isinstance(size, int) for size in (*starts, *ends, *(extents[axis] for axis in axes))):
        return None
    cuts = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        cuts[axis] = (*bounds(node, start, end, step, extents[axis]), step)
    return sliced(node, node.tensor(), cuts)


def _split(node: OpenNode) -> relax.Expr | None:
    extents = node.extents()
    axis = _axis(node.attr.get("axis", 0), len(extents))
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
        count = node.attr.get("num_outputs", node.attr["tvm_custom"]["num_outputs"])
        sizes = [node.shapes.quotient([extent], [count])] * count
    node.shapes.agreed(extent, node.shapes.simplified(_plus(*sizes)))
    parts, start = [], 0
    for size in sizes:
        node.shapes.require_at_least(size, 0)
        parts.append(node.bb.emit(sliced(node, node.tensor(), {axis: (start, size, 1)})))
        start = node.shapes.simplified(_plus(start, size))
    return relax.Tuple(parts)


def _gather(node: OpenNode) -> relax.Expr | None:
    """Of one place, known before the run, along an open axis."""
    if not is_open(node.tensor()):
        return None
    extents = node.extents()
    axis = _axis(node.attr.get("axis", 0), len(extents))
    value = node.values[1]
    if value is None or value.values.size != 1 or isinstance(extents[axis], int):
        return None
    place = value.values.item()
    first = _lifted(node, place, extents[axis])
    node.shapes.require_at_least(first, 0)
    node.shapes.require_at_least(extents[axis], _plus(first, 1))
    part = sliced(node, node.tensor(), {axis: (first, 1, 1)})
    ones = [1] * value.values.ndim
    return op.reshape(node.bb.emit(part), relax.ShapeExpr([*extents[:axis], *ones, *extents[axis + 1 :]]))


def _tile(node: OpenNode) -> relax.Expr | None:
    extents, repeats = node.extents(), node.sizes(1)
    if repeats is None:
        return None
    if len(repeats) != len(extents):
        raise ValueError(f"{len(repeats)} repeats of {len(extents)} axes")
    for count in repeats:
        node.shapes.require_at_least(count, 0)
    shape = [node.shapes.product(pair) for pair in zip(extents, repeats, strict=True)]
    same = [isinstance(count, int) and count == 1 for count in repeats]

    def repeated(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            pairs = zip(at, x.shape, same, strict=True)
            return x[tuple(i if once else tirx.floormod(i, span) for i, span, once in pairs)]

        return te.compute([_expr(extent) for extent in shape], element, name="tile")

    return node.bb.call_te(repeated, node.tensor(), primfunc_name_hint="tile")


def padded(node: OpenNode, data: relax.Expr, pads: Sequence[tuple[Size, Size]], fill: Any, mode: str) -> relax.Expr:
    """`data` with elements around it, as many before and behind as `pads` says of each axis; `fill` is a number."""
    shapes = node.shapes
    extents = [whole(extent) for extent in data.ty.shape]
    shape = [shapes.simplified(_plus(extent, *pair)) for extent, pair in zip(extents, pads, strict=True)]
    for extent, result, pair in zip(extents, shape, pads, strict=True):
        shapes.require_at_least(result, 0)
        if mode == "reflect":
            for number in pair:
                shapes.require_at_least(_plus(extent, -1), number)
    moved = [any(not (isinstance(n, int) and n == 0) for n in pair) for pair in pads]
    before = [pair[0] for pair in pads]

    def around(x: te.Tensor, firsts: Sequence[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            places, inside = [], []
            for i, first, size, moves in zip(at, firsts, x.shape, moved, strict=True):
                if not moves:
                    places.append(i)
                    continue
                place = tirx.Cast("int64", i) - first
                if mode == "constant":
                    inside += [place >= 0, place < size]
                elif mode == "reflect":
                    place = tirx.Select(place < 0, -place, tirx.Select(place >= size, 2 * size - 2 - place, place))
                places.append(place if mode == "constant" else tirx.max(tirx.min(place, size - 1), 0))
            value = x[tuple(places)]
            return tirx.if_then_else(tirx.all(*inside), value, tirx.const(fill, x.dtype)) if inside else value

        return te.compute([_expr(extent) for extent in shape], element, name="pad")

    return _of_sizes(node, around, data, before, "pad")


def _pad(node: OpenNode) -> relax.Expr | None:
    extents, mode = node.extents(), _word(node.attr.get("mode", "constant"))
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
                raise ValueError("elements that are not known before the run")
            fill = held.value.numpy().reshape(-1)[0].item()
    axes = list(range(rank))
    if node.has(3):
        given = node.numbers(3)
        if given is None:
            raise ValueError("axes that are not known before the run")
        axes = [_axis(axis, rank) for axis in given]
    if pads is None or len(pads) != 2 * len(axes):
        raise ValueError(f"pads of {len(axes)} axes are expected")
    if mode not in ("constant", "reflect", "edge"):
        raise ValueError(f"mode {mode!r} of a tensor of open sizes; accepted: constant, edge, reflect")
    pairs: list[tuple[Size, Size]] = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        pairs[axis] = (pads[place], pads[place + len(axes)])
    return padded(node, node.tensor(), pairs, fill, mode)


def _range(node: OpenNode) -> relax.Expr | None:
    given = [node.sizes(place) for place in range(3)]
    if any(sizes is None or len(sizes) != 1 for sizes in given):
        return None
    start, limit, step = (sizes[0] for sizes in given if sizes is not None)
    if not isinstance(step, int) or step == 0:
        raise ValueError("a step that is not known before the run to be another number than 0")
    over = _plus(limit, -1 * start, step - 1) if step > 0 else _plus(start, -1 * limit, -step - 1)
    count = tirx.floordiv(_expr(node.shapes.simplified(over)), _expr(abs(step)))
    length = node.shapes.larger(node.shapes.simplified(count), 0)
    value = node.values[0]
    assert value is not None
    dtype = value.dtype

    def steps(*first: Any) -> te.Tensor:
        def element(i: Any) -> Any:
            return tirx.Cast(dtype, (first[0] if first else _expr(start)) + tirx.Cast("int64", i) * step)

        return te.compute([_expr(length)], element, name="range")

    if isinstance(length, int):
        if not isinstance(start, int):
            raise ValueError("a range of a fixed length from an open place on")
        return relax.const((start + step * np.arange(length)).astype(dtype), dtype)
    opened = [] if isinstance(start, int) else [start]
    return node.bb.call_te(steps, *opened, primfunc_name_hint="arange")


# ---- windows --------------------------------------------------------------------------------------------------------


def _word(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _windows(node: OpenNode, kernel: Sequence[int]) -> tuple[list[int], list[int], list[tuple[Size, Size]]]:
    """Strides, dilations and padding of each axis of images; a guard where a window may exceed its axis."""
    spatial = node.extents()[2:]
    rank = len(spatial)
    if len(kernel) != rank or rank not in (1, 2, 3):
        raise ValueError(f"images of {rank} axes and windows of {len(kernel)}; accepted: 1 to 3")
    strides, dilations = (list(node.attr.get(name, [1] * rank)) for name in ("strides", "dilations"))
    given, auto = list(node.attr.get("pads", [0] * 2 * rank)), _word(node.attr.get("auto_pad", "NOTSET"))
    pads: list[tuple[Size, Size]] = []
    for axis, extent in enumerate(spatial):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            stride = strides[axis]
            last = tirx.floordiv(_expr(_plus(extent, -1)), _expr(stride)) * stride
            total = node.shapes.larger(node.shapes.simplified(_plus(last, span, -1 * extent)), 0)
            half = node.shapes.simplified(tirx.floordiv(_expr(total), _expr(2)))
            rest = node.shapes.simplified(_plus(total, -1 * half))
            pads.append((half, rest) if auto == "SAME_UPPER" else (rest, half))
            continue
        pair = (0, 0) if auto == "VALID" else (given[axis], given[axis + rank])
        node.shapes.require_at_least(_plus(extent, *pair), span)
        pads.append(pair)
    return strides, dilations, pads


def _own_padding(
    node: OpenNode, pads: list[tuple[Size, Size]], fill: float
) -> tuple[relax.Expr, list[tuple[int, int]]]:
    """The images with what padding is open around them, and the padding that is left."""
    if all(isinstance(number, int) for pair in pads for number in pair):
        return node.tensor(), pads
    return node.bb.emit(padded(node, node.tensor(), [(0, 0), (0, 0), *pads], fill, "constant")), [(0, 0)] * len(pads)


_LAYOUTS = {1: ("NCW", "OIW"), 2: ("NCHW", "OIHW"), 3: ("NCDHW", "OIDHW")}


def _conv(node: OpenNode) -> relax.Expr | None:
    if not any(not isinstance(extent, int) for extent in node.extents()[2:]):
        return None
    weights = node.extents(1)
    if not all(isinstance(extent, int) for extent in (*weights, node.extents()[1])):
        raise ValueError("channels or weights of open sizes")
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


def _pool(name: str, fill: str | None) -> Rule:
    def rule(node: OpenNode) -> relax.Expr | None:
        if not any(not isinstance(extent, int) for extent in node.extents()[2:]):
            return None
        if node.attr.get("ceil_mode", 0):
            raise ValueError("ceil_mode along axes of open sizes")
        if node.attr["tvm_custom"]["num_outputs"] != 1:
            raise ValueError("indices of the largest elements along axes of open sizes")
        kernel = list(node.attr["kernel_shape"])
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
    factors = _factors(node, extents)
    place = _word(node.attr.get("coordinate_transformation_mode", "half_pixel" if node.opset > 10 else "asymmetric"))
    mode = _word(node.attr.get("mode", "nearest"))
    nearest = _word(node.attr.get("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor"))
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
            data = node.bb.emit(_upsampled(node, data, axis, factor, linear=mode == "linear"))
    return data


def _factors(node: OpenNode, extents: list[Size]) -> list[int]:
    sizes = node.sizes(3) if node.opset > 10 else None
    axes = [_axis(axis, len(extents)) for axis in node.attr.get("axes", range(len(extents)))]
    found = [1] * len(extents)
    if sizes:
        for axis, size in zip(axes, sizes, strict=True):
            if node.shapes.same(size, extents[axis]):
                continue
            found[axis] = node.shapes.multiple(size, extents[axis])
        return found
    held = node.tensor(2 if node.opset > 10 else 1) if node.opset > 8 else None
    if held is not None and not isinstance(held, tvm.ir.GenericConst):
        raise ValueError("scales have to be known before the run")
    scales = node.attr["scales"] if held is None else held.value.numpy().tolist()
    for axis, scale in zip(axes, scales, strict=True):
        if scale != int(scale) or scale < 1:
            raise ValueError(f"a scale of {scale:g} of a tensor of open sizes; expected whole numbers")
        found[axis] = int(scale)
    return found


def _upsampled(node: OpenNode, data: relax.Expr, axis: int, factor: int, *, linear: bool) -> relax.Expr:
    extents = [whole(extent) for extent in data.ty.shape]
    shape = [
        node.shapes.simplified(extent * factor) if place == axis else extent for place, extent in enumerate(extents)
    ]
    dtype = dtype_of(data)

    def upsampled(x: te.Tensor) -> te.Tensor:
        size = x.shape[axis]

        def element(*at: Any) -> Any:
            def taken(place: Any) -> Any:
                return x[tuple(place if i == axis else index for i, index in enumerate(at))]

            if not linear:
                return taken(tirx.floordiv(at[axis], factor))
            # In halves of an output element: (i + 0.5) / factor - 0.5.
            over = 2 * tirx.Cast("int64", at[axis]) + 1 - factor
            lower = tirx.floordiv(over, 2 * factor)
            share = tirx.Cast(dtype, tirx.floormod(over, 2 * factor)) / tirx.const(2.0 * factor, dtype)
            near, far = (tirx.max(tirx.min(place, size - 1), 0) for place in (lower, lower + 1))
            return taken(near) * (tirx.const(1.0, dtype) - share) + taken(far) * share

        return te.compute([_expr(extent) for extent in shape], element, name="upsample")

    return node.bb.call_te(upsampled, data, primfunc_name_hint="resize")


# ---- rows -----------------------------------------------------------------------------------------------------------


def _of_rows(function: Any) -> Rule:
    """Softmax before version 13: of all elements from an axis on."""

    def rule(node: OpenNode) -> relax.Expr | None:
        extents = node.extents()
        if node.opset >= 13:
            return function(node.tensor(), axis=_axis(node.attr.get("axis", -1), len(extents)))
        axis = _axis(node.attr.get("axis", 1), len(extents))
        if axis == len(extents) - 1:
            return function(node.tensor(), axis=-1)
        rows = [node.shapes.product(extents[:axis]), node.shapes.product(extents[axis:])]
        flat = node.bb.emit(reshaped(node, node.tensor(), rows))
        return reshaped(node, node.bb.emit(function(flat, axis=-1)), extents)

    return rule


def _recurrent(converter: Any) -> Rule:
    """LSTM, GRU and RNN, whose states and lengths have to be of the batch of their inputs."""

    def rule(node: OpenNode) -> relax.Expr | None:
        inputs = [node.tensor(place) if node.has(place) else None for place in range(len(node.given))]
        first = node.attr.get("layout", 0)
        batch = node.extents()[0 if first else 1]
        for place, axis in ((4, 0), (5, 0 if first else 1), (6, 0 if first else 1)):
            if node.has(place) and not (place == 6 and converter.cell != "lstm"):
                batch = node.shapes.agreed(batch, node.extents(place)[axis])
        for place, axis in ((0, 0 if first else 1), (4, 0), (5, 0 if first else 1), (6, 0 if first else 1)):
            value = inputs[place] if place < len(inputs) else None
            if value is not None:
                inputs[place] = cast(
                    node.bb, value, [batch if i == axis else e for i, e in enumerate(node.extents(place))]
                )
        return converter.get_converter(node.opset)(node.bb, as_inputs(*inputs), node.attr, [])

    return rule


def _plus(*sizes: Size) -> Size:
    total: Size = sizes[0]
    for size in sizes[1:]:
        total = total + size
    return total


def _expr(size: Size) -> Any:
    return tirx.const(size, "int64") if isinstance(size, int) else size


OPEN: dict[str, Rule] = {
    "AveragePool": _pool("avg_pool", None),
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "Expand": _expand,
    "Flatten": _flatten,
    **{name: _recurrent(converter) for name, converter in RECURRENT.items()},
    "Gather": _gather,
    "LogSoftmax": _of_rows(op.nn.log_softmax),
    "MaxPool": _pool("max_pool", "-inf"),
    "Pad": _pad,
    "Range": _range,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Softmax": _of_rows(op.nn.softmax),
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Upsample": _resize,
}
