"""Nodes of constants by the onnx package's reference implementation, and as they run where that departs from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from .slices import clamped


class OneHot(OpRun):
    """Either of two values; the onnx package computes with their difference, which infinities and NaN do not have."""

    op_domain = ""

    def _run(
        self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray, axis: int = -1
    ) -> tuple[np.ndarray, ...]:
        count = int(depth.reshape(-1)[0])
        whole = indices.astype(np.int64)
        whole = np.expand_dims(np.where(whole < 0, whole + count, whole), axis)
        places = np.arange(count).reshape([-1 if at == axis % whole.ndim else 1 for at in range(whole.ndim)])
        return (np.where(whole == places, values[1], values[0]),)


class Slice(OpRun):
    """Backwards from in front of the first element is from that; the onnx package's has nothing there, as NumPy."""

    op_domain = ""

    def _run(
        self,
        data: np.ndarray,
        starts: Any = None,
        ends: Any = None,
        axes: Any = None,
        steps: Any = None,
    ) -> tuple[np.ndarray, ...]:
        starts, ends = (np.asarray(places).reshape(-1).tolist() for places in (starts, ends))
        axes = range(len(starts)) if axes is None else np.asarray(axes).reshape(-1).tolist()
        steps = [1] * len(starts) if steps is None else np.asarray(steps).reshape(-1).tolist()
        parts = [slice(None)] * data.ndim
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            parts[axis] = slice(*clamped(start, end, step, data.shape[axis]), step)
        return (data[tuple(parts)],)


def evaluated(
    node: onnx.NodeProto, opsets: Mapping[str, int], constants: Mapping[str, np.ndarray]
) -> list[np.ndarray] | None:
    """The outputs of a node whose inputs are constants; None where that fails, and TVM is left to say why."""
    names = sorted({name for name in node.input if name})
    values = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    made = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    single = onnx.helper.make_graph([node], "constant", values, made)
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(single, opsets=dict(opsets), new_ops=[OneHot, Slice])
            results = iter(evaluator.run(None, {name: constants[name] for name in names}))
    except Exception:  # NumPy code that checks no attribute fails in any way; the node is converted like others
        return None
    found = [np.asarray(next(results)) if name else np.empty(0) for name in node.output]
    return [_clipped(node, found[0])] if node.op_type == "Clip" else found


def _clipped(node: onnx.NodeProto, result: np.ndarray) -> np.ndarray:
    """What a Clip gives: a bound that is left out is the largest finite number, or the lowest."""
    if result.dtype.kind != "f":
        return result
    low, high = (len(node.input) > place and bool(node.input[place]) for place in (1, 2))
    limits = np.finfo(result.dtype)
    result = result if low else np.maximum(result, limits.min)
    return result if high else np.minimum(result, limits.max)
