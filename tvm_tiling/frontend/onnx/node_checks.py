"""Checks of ONNX nodes that converters would read in another way: axes beyond the rank, which TVM takes modulo the
rank, and windows, strides and groups that contradict the images or the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...figures import quantity

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
REDUCED = tuple(f"Reduce{name}" for name in _REDUCTIONS)

# Operators whose attribute "axis" or "axes" counts the axes of the first input.
_OF_FIRST = frozenset(
    {
        *("ArgMax", "ArgMin", "Compress", "Concat", "Gather", "GatherElements", "Hardmax", "LayerNormalization"),
        *("LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "RMSNormalization", "Resize", "Scatter"),
        *("ScatterElements", "Slice", "Softmax", "Split", "Squeeze", "TopK", *REDUCED),
    }
)
# The inputs that hold such axes.
_INPUTS = {"CumProd": 1, "CumSum": 1, "Pad": 3, "Slice": 3, "Squeeze": 1, **dict.fromkeys(REDUCED, 1)}
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool", "MaxUnpool"})
# Convolutions, with the input that holds the weights.
_WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
_BIASES = {"Conv": 2, "ConvTranspose": 2, "QLinearConv": 8}
_PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

Shape = Sequence[int | None]  # None: a dynamic extent


def shape_text(shape: Shape) -> str:
    """Return a shape in messages."""
    return f"({', '.join('?' if extent is None else str(extent) for extent in shape)})"


def check_node(
    operator: str,
    attributes: Mapping[str, Any],
    shape_of: Callable[[int], Shape | None],
    values: Callable[[int], list[int] | None],
) -> None:
    """Raise ValueError with the attribute or input that is out of range. `shape_of` returns the shape of an input,
    `values` the constant integers of one; None stands for what is not known."""
    images = shape_of(0)
    if images is None:
        return
    if operator in _POOLS or operator in _WEIGHTS:
        _check_windows(operator, attributes, len(images) - 2)
    if operator == "ConvTranspose":
        _check_transposed(attributes, len(images) - 2)
    if operator in _WEIGHTS:
        weights = shape_of(_WEIGHTS[operator])
        if weights is not None:
            _check_weights(operator, attributes, images, weights)
            _check_bias(operator, attributes, weights, shape_of(_BIASES[operator]) if operator in _BIASES else None)
    _check_axes(operator, attributes, len(images), values)


def _check_axes(
    operator: str, attributes: Mapping[str, Any], rank: int, values: Callable[[int], list[int] | None]
) -> None:
    axes: list[int] = []
    if operator in _OF_FIRST:
        axes += [attributes["axis"]] if "axis" in attributes else []
        axes += attributes.get("axes", ())
    if operator in _INPUTS:
        axes += values(_INPUTS[operator]) or ()
    most = max(rank, 1)
    if operator == "OneHot" and "axis" in attributes:
        axes, most = [attributes["axis"]], rank + 1
    for axis in axes:
        if not -most <= axis < most:
            raise ValueError(f"axis {axis} is out of range; expected {-most} to {most - 1}")


def _check_windows(operator: str, attributes: Mapping[str, Any], rank: int) -> None:
    """Check the lengths and the least values of the attributes that describe windows over images of `rank` axes."""
    if rank < 1:
        raise ValueError(f"its images have {rank + 2} axes; expected batch, channels and at least one more")
    if operator in _POOLS and "kernel_shape" not in attributes:
        raise ValueError(f"kernel_shape is missing; expected {quantity(rank, 'number')}")
    # The least value of each number.
    lengths: dict[str, tuple[int, float]] = {"kernel_shape": (rank, 1), "strides": (rank, 1), "dilations": (rank, 1)}
    lengths |= {"pads": (2 * rank, -math.inf), "output_padding": (rank, 0)}
    for name, (length, least) in lengths.items():
        given = list(attributes.get(name, [least] * length))
        if any(size < least for size in given):
            raise ValueError(f"{name} are {given}; expected numbers from {least}")
        if len(given) != length:
            raise ValueError(f"{name} are {given}; expected {quantity(length, 'number')}")
    auto = attributes.get("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if auto not in _PADDINGS:
        raise ValueError(f"auto_pad is {auto!r}; expected one of {', '.join(_PADDINGS)}")


def _check_transposed(attributes: Mapping[str, Any], rank: int) -> None:
    """Check the attributes of a transposed convolution that determine its result's shape."""
    wanted = list(attributes.get("output_shape", [1] * rank))
    if len(wanted) not in (rank, rank + 2):
        raise ValueError(f"output_shape is {wanted}; expected {quantity(rank, 'number')}")
    if min(wanted) < 1:
        raise ValueError(f"output_shape is {wanted}; expected numbers from 1")
    steps = [attributes.get(name, [1] * rank) for name in ("output_padding", "strides", "dilations")]
    for more, stride, dilation in zip(*steps, strict=True):
        if "output_padding" in attributes and more >= max(stride, dilation):
            raise ValueError(
                f"output_padding is {list(attributes['output_padding'])}; expected less than the stride or the dilation"
            )


def _check_weights(operator: str, attributes: Mapping[str, Any], images: Shape, weights: Shape) -> None:
    """Check that the weights of a convolution have the axes and channels of the images, and the stated kernel."""
    if len(weights) != len(images):
        raise ValueError(f"weights have {len(weights)} axes and images {len(images)}; expected as many")
    kernel, stated = list(weights[2:]), list(attributes.get("kernel_shape", weights[2:]))
    if None not in kernel and kernel != stated:
        raise ValueError(f"kernel_shape is {stated}, but the weights have {kernel}; expected the same")
    if 0 in kernel:
        raise ValueError(f"the weights have a kernel of {kernel}; expected numbers from 1")
    groups = attributes.get("group", 1)
    if groups < 1:
        raise ValueError(f"group is {groups}; expected a number from 1")
    first, second = weights[:2]
    if first is not None and first % groups:
        raise ValueError(f"the weights have shape {list(weights)}; expected a first extent divisible by group {groups}")
    each = first if operator == "ConvTranspose" else None if second is None else second * groups
    if None not in (images[1], each) and images[1] != each:
        raise ValueError(f"images have {images[1]} channels; expected {each}, as the weights and group {groups} say")


def _check_bias(operator: str, attributes: Mapping[str, Any], weights: Shape, bias: Shape | None) -> None:
    """Check that there is one bias for each channel of the result."""
    channels = weights[0]
    if operator == "ConvTranspose":
        channels = None if weights[1] is None else weights[1] * attributes.get("group", 1)
    if bias is not None and (len(bias) != 1 or (None not in (channels, bias[0]) and bias[0] != channels)):
        raise ValueError(f"the bias has shape {shape_text(bias)}; expected {shape_text([channels])}")
