"""Checks of ONNX nodes that converters would read in another way: axes beyond the rank, which TVM takes modulo the
rank, and strides, dilations and windows below 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_REDUCED = tuple(f"Reduce{name}" for name in _REDUCTIONS)

# Operators whose attribute "axis" or "axes" counts the axes of the first input.
_OF_FIRST = frozenset(
    {
        *("ArgMax", "ArgMin", "Compress", "Concat", "Gather", "GatherElements", "Hardmax", "LayerNormalization"),
        *("LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "Scatter", "ScatterElements", "Slice"),
        *("Softmax", "Split", "Squeeze", "TopK", *_REDUCED),
    }
)
# The inputs that hold such axes.
_INPUTS = {"CumSum": 1, "Pad": 3, "Slice": 3, "Squeeze": 1, **dict.fromkeys(_REDUCED, 1)}
_WINDOWS = frozenset({"AveragePool", "Conv", "ConvInteger", "ConvTranspose", "LpPool", "MaxPool", "QLinearConv"})


def check_node(
    operator: str, attributes: Mapping[str, Any], rank: int | None, values: Callable[[int], list[int] | None]
) -> None:
    """Raise ValueError with the attribute or input that is out of range. `rank` is that of the first input, `values`
    returns the constant integers of an input; None stands for what is not known."""
    if operator in _WINDOWS:
        for name in ("kernel_shape", "strides", "dilations"):
            if any(size < 1 for size in attributes.get(name, ())):
                raise ValueError(f"{name} are {list(attributes[name])}; expected numbers from 1")
    if rank is None:
        return
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
