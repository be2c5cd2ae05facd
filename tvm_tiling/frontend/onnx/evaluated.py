"""Evaluation of constant nodes by the onnx package's reference implementation, corrected where it differs from ours at
run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from .slices import clamped


class OneHot(OpRun):
    """Selection between two values; the onnx package computes with their difference, which is invalid for infinities
    and NaN."""

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
    """A backward slice that starts before the first element starts at that element; in the onnx package it is empty, as
    in NumPy."""

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
    """Return the outputs of a node whose inputs are constants; None if that fails, so that TVM reports the reason."""
    names = sorted({name for name in node.input if name})
    values = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    made = [onnx.helper.make_empty_tensor_value_info(name) for name in node.output if name]
    single = onnx.helper.make_graph([node], "constant", values, made)
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(single, opsets=dict(opsets), new_ops=[OneHot, Slice])
            results = iter(evaluator.run(None, {name: constants[name] for name in names}))
    except Exception:  # NumPy code that checks no attribute may fail in any way; the node is then converted like others
        return None
    found = [np.asarray(next(results)) if name else np.empty(0) for name in node.output]
    return [_clipped(node, found[0])] if node.op_type == "Clip" else found


def _clipped(node: onnx.NodeProto, result: np.ndarray) -> np.ndarray:
    """Return the result of a Clip: a missing bound is the largest or lowest finite number."""
    if result.dtype.kind != "f":
        return result
    low, high = (len(node.input) > place and bool(node.input[place]) for place in (1, 2))
    limits = np.finfo(result.dtype)
    result = result if low else np.maximum(result, limits.min)
    return result if high else np.minimum(result, limits.max)
