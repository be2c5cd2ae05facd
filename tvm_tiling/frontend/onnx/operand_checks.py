"""Checks of single ONNX operators: attributes that are 0 or 1, inputs that are lists, operands that have to match."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .node_checks import REDUCED, Shape, shape_text

# Attributes that are 0 or 1. Converters take other numbers as true, onnxruntime some as false.
_FLAGS = frozenset(
    {
        *("align_corners", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "exclude_outside"),
        *("exclusive", "fmod", "input_forget", "inverse", "is_causal", "keepdims", "largest", "layout"),
        *("linear_before_reset", "noop_with_empty_axes", "onesided", "reverse", "select_last_index", "sorted"),
        *("storage_order", "training_mode", "upper"),
    }
)
# Inputs that are lists, with one axis.
_LISTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*REDUCED, "Compress", "Expand", "Reshape", "Split", "Squeeze", "Tile"), (1,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "ConstantOfShape": (0,),
}
# The words of version 16, then those of version 20.
_SAMPLED = ("bilinear", "nearest", "bicubic", "linear", "cubic")
_DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True)
class Operands:
    """The attributes of a node, the shapes of its inputs, and the integers of constant inputs."""

    attributes: Mapping[str, Any]
    shape_of: Callable[[int], Shape | None]
    values: Callable[[int], list[int] | None]

    def word(self, name: str, default: str) -> str:
        """Return an attribute that is a word."""
        value = self.attributes.get(name, default)
        return str(value.decode() if isinstance(value, bytes) else value)

    def require(self, name: str, place: int, expected: Shape) -> None:
        """Raise ValueError if an input has another shape; extents that are None are not checked."""
        shape = self.shape_of(place)
        if shape is None:
            return
        pairs = list(zip(shape, expected, strict=False))
        if len(shape) != len(expected) or any(None not in pair and pair[0] != pair[1] for pair in pairs):
            raise ValueError(f"{name} has shape {shape_text(shape)}; expected {shape_text(expected)}")


def check_operands(operator: str, operands: Operands) -> None:
    """Raise ValueError with the attribute or input of a node that its operator does not define."""
    for name in _FLAGS & operands.attributes.keys():
        if operands.attributes[name] not in (0, 1):
            raise ValueError(f"{name} is {operands.attributes[name]}; expected 0 or 1")
    for place in _LISTS.get(operator, ()):
        shape = operands.shape_of(place)
        if shape is not None and len(shape) > 1:
            raise ValueError(f"input {place} has {len(shape)} axes; expected a list, of 1 axis")
    if operator in _CHECKS:
        _CHECKS[operator](operands)


def _squeeze(node: Operands) -> None:
    if node.values(1) == [] or list(node.attributes.get("axes", [0])) == []:
        raise ValueError("axes are empty; expected at least one axis, or no axes for all of extent 1")


def _place_of_extreme(node: Operands) -> None:
    data, axis = node.shape_of(0), node.attributes.get("axis", 0)
    if data and data[axis] == 0:
        raise ValueError(f"axis {axis} has no elements; expected at least one")


def _celu(node: Operands) -> None:
    if node.attributes.get("alpha", 1.0) == 0:
        raise ValueError("alpha is 0; expected another number, as inputs are divided by it")


def _lp_normalization(node: Operands) -> None:
    if node.attributes.get("p", 2) not in (1, 2):
        raise ValueError(f"p is {node.attributes['p']}; expected 1 or 2")


def _reverse_sequence(node: Operands) -> None:
    axes = node.attributes.get("batch_axis", 1), node.attributes.get("time_axis", 0)
    if set(axes) != {0, 1}:
        raise ValueError(f"batch_axis and time_axis are {axes[0]} and {axes[1]}; expected 0 and 1, or 1 and 0")


def _gather_nd(node: Operands) -> None:
    batch, data, indices = node.attributes.get("batch_dims", 0), node.shape_of(0), node.shape_of(1)
    if data is not None and indices is not None and not 0 <= batch < min(len(data), len(indices)):
        raise ValueError(f"batch_dims is {batch}; expected 0 to {min(len(data), len(indices)) - 1}")


def _grid_sample(node: Operands) -> None:
    for name, accepted in (("mode", _SAMPLED), ("padding_mode", ("zeros", "border", "reflection"))):
        if node.word(name, accepted[0]) not in accepted:
            raise ValueError(f"{name} is {node.word(name, '')!r}; expected one of {', '.join(accepted)}")


def _lrn(node: Operands) -> None:
    if node.attributes.get("size", 1) < 1:
        raise ValueError(f"size is {node.attributes['size']}; expected a number from 1")


def _depth_to_space(node: Operands) -> None:
    block, images = node.attributes.get("blocksize", 1), node.shape_of(0)
    _check_block(block, images, node.word("mode", "DCR"))
    if images is not None and images[1] is not None and images[1] % block**2:
        raise ValueError(f"images have {images[1]} channels; expected a multiple of blocksize {block} squared")


def _space_to_depth(node: Operands) -> None:
    block, images = node.attributes.get("blocksize", 1), node.shape_of(0)
    _check_block(block, images, node.word("mode", "DCR"))
    for extent in () if images is None else images[2:]:
        if extent is not None and extent % block:
            raise ValueError(f"images have shape {shape_text(images or ())}; expected multiples of blocksize {block}")


def _check_block(block: int, images: Shape | None, mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"mode is {mode!r}; expected DCR or CRD")
    if block < 1:
        raise ValueError(f"blocksize is {block}; expected a number from 1")
    if images is not None and len(images) != 4:
        raise ValueError(f"images have {len(images)} axes; expected 4")


def _broadcast(node: Operands) -> None:
    """Slope, scale and bias are broadcast to the data, not the other way."""
    data = node.shape_of(0)
    for place in (1, 2):
        shape = node.shape_of(place)
        if data is None or shape is None:
            continue
        last = data[len(data) - len(shape) :]
        if len(shape) > len(data) or any(
            extent not in (1, None, wanted) and wanted is not None for extent, wanted in zip(shape, last, strict=True)
        ):
            raise ValueError(
                f"input {place} has shape {shape_text(shape)}; expected one that is broadcast to {shape_text(data)}"
            )


def _deform_conv(node: Operands) -> None:
    images, weights = node.shape_of(0), node.shape_of(1)
    if images is None or weights is None or len(images) != 4 or len(weights) != 4:
        raise ValueError("its images or weights do not have 4 axes; expected images and weights of 4 axes")
    groups, parts = node.attributes.get("group", 1), node.attributes.get("offset_group", 1)
    lengths = {"kernel_shape": 2, "strides": 2, "dilations": 2, "pads": 4}
    for name, length in lengths.items():
        given = list(node.attributes.get(name, [1] * length))
        if len(given) != length or min(given) < (name != "pads"):
            raise ValueError(f"{name} are {given}; expected {length} numbers from {int(name != 'pads')}")
    if min(groups, parts) < 1:
        raise ValueError(f"group and offset_group are {groups} and {parts}; expected numbers from 1")
    kernel = list(node.attributes.get("kernel_shape", weights[2:]))
    if None not in weights[2:] and kernel != list(weights[2:]):
        raise ValueError(f"kernel_shape is {kernel}, but the weights have {list(weights[2:])}; expected the same")
    if None in (*images[1:], *weights):
        return
    _, channels, *extents = (extent or 0 for extent in images)
    outputs, each, *taps = (extent or 0 for extent in weights)
    if channels != each * groups or outputs % groups or channels % parts:
        raise ValueError(
            f"images of {channels} channels and weights of shape {shape_text(weights)} do not match group {groups} and "
            f"offset_group {parts}"
        )
    steps = (list(node.attributes.get(name, [1, 1])) for name in ("strides", "dilations"))
    pads = list(node.attributes.get("pads", [0] * 4))
    results = [
        (extent + pads[axis] + pads[axis + 2] - dilation * (tap - 1) - 1) // stride + 1
        for axis, (extent, tap, stride, dilation) in enumerate(zip(extents, taps, *steps, strict=True))
    ]
    node.require("offset", 2, [images[0], 2 * parts * taps[0] * taps[1], *results])
    node.require("B", 3, [outputs])
    node.require("mask", 4, [images[0], parts * taps[0] * taps[1], *results])


def _recurrent(has_cell: bool) -> Callable[[Operands], None]:
    def check(node: Operands) -> None:
        data, weights, state = (node.shape_of(place) for place in range(3))
        if data is None or weights is None or state is None:
            return
        for name, shape in (("X", data), ("W", weights), ("R", state)):
            if len(shape) != 3:
                raise ValueError(f"{name} has {len(shape)} axes; expected 3")
        way = node.word("direction", "forward")
        if way not in _DIRECTIONS:
            raise ValueError(f"direction is {way!r}; expected one of {', '.join(_DIRECTIONS)}")
        node.require("W", 1, [None, None, data[2]])
        batch = data[0] if node.attributes.get("layout", 0) else data[1]
        start = [batch, state[0], state[2]] if node.attributes.get("layout", 0) else [state[0], batch, state[2]]
        node.require("sequence_lens", 4, [batch])
        node.require("initial_h", 5, start)
        if has_cell:
            node.require("initial_c", 6, start)
            node.require("P", 7, [state[0], None if state[2] is None else 3 * state[2]])

    return check


def _attention(node: Operands) -> None:
    ranks = {len(shape) for place in range(3) if (shape := node.shape_of(place)) is not None}
    if not ranks <= {3, 4} or len(ranks) > 1:
        raise ValueError("Q, K and V do not have as many axes; expected 3 or 4, the same for all")
    queries, keys = node.shape_of(0), node.shape_of(1)
    if queries is None or keys is None:
        return
    node.require("nonpad_kv_seqlen", 6, [queries[0]])
    if len(keys) == 3:
        node.require("K", 1, [queries[0], None, None])
        node.require("V", 2, [*keys[:2], None])
        return
    node.require("K", 1, [queries[0], None, None, queries[3]])
    node.require("V", 2, [*keys[:3], None])
    heads, groups = queries[1], keys[1]
    if heads is not None and groups is not None and (groups == 0 or heads % groups):
        raise ValueError(f"Q has {heads} heads and K {groups}; expected a multiple")


def _dft(node: Operands) -> None:
    signals, axes = node.shape_of(0), node.values(2) or ()
    rank = 0 if signals is None else len(signals)
    for axis in (*axes, *([node.attributes["axis"]] if "axis" in node.attributes else [])):
        if rank and (axis == -1 or not -rank <= axis < rank - 1):
            raise ValueError(f"axis {axis} is out of range; expected {-rank} to {rank - 2}, but not -1")


def _qlinear_matmul(node: Operands) -> None:
    """Scales and zero points are single numbers, those of A also one per row, those of B one per column."""
    for name, place, axis in (("a", 0, -2), ("b", 3, -1), ("y", 5, 0)):
        matrices = node.shape_of(place) if axis else None
        for what, shape in (
            (f"{name}_scale", node.shape_of(place + 1)),
            (f"{name}_zero_point", node.shape_of(place + 2)),
        ):
            if shape is None or list(shape) in ([], [1], [None]):
                continue
            if not axis:
                raise ValueError(f"{what} has shape {shape_text(shape)}; expected a single number")
            if matrices is not None and not _is_per_line(shape, matrices, axis):
                line = "row" if axis == -2 else "column"
                raise ValueError(
                    f"{what} has shape {shape_text(shape)} for matrices of shape {shape_text(matrices)}; expected a "
                    f"single number, or one per {line} of a matrix"
                )


def _is_per_line(shape: Shape, matrices: Shape, axis: int) -> bool:
    """Return whether `shape` has one number for each row (axis -2) or column (-1) of a single matrix."""
    if len(matrices) < 2 or any(extent not in (1, None) for extent in matrices[:-2]):
        return False
    wanted = [*[1] * (len(matrices) - 2), *((matrices[-2], 1) if axis == -2 else (1, matrices[-1]))]
    if len(shape) == 1 and len(matrices) == 2:
        wanted = [matrices[axis]]
    pairs = list(zip(shape, wanted, strict=False))
    return len(shape) == len(wanted) and all(None in pair or pair[0] == pair[1] for pair in pairs)


_CHECKS: dict[str, Callable[[Operands], None]] = {
    "ArgMax": _place_of_extreme,
    "ArgMin": _place_of_extreme,
    "Attention": _attention,
    "Celu": _celu,
    "DFT": _dft,
    "DeformConv": _deform_conv,
    "DepthToSpace": _depth_to_space,
    "GatherND": _gather_nd,
    "GridSample": _grid_sample,
    "GRU": _recurrent(False),
    "LRN": _lrn,
    "LSTM": _recurrent(True),
    "LpNormalization": _lp_normalization,
    "PRelu": _broadcast,
    "QLinearMatMul": _qlinear_matmul,
    "ReverseSequence": _reverse_sequence,
    "LayerNormalization": _broadcast,
    "RMSNormalization": _broadcast,
    "RNN": _recurrent(False),
    "SpaceToDepth": _space_to_depth,
    "Squeeze": _squeeze,
}
