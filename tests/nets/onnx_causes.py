"""Explanations of differences from onnxruntime that are not faults: float16 rounding, spreading by convolutions, and
graphs whose results are lost in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from unittest import mock

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import helper, numpy_helper
from onnx_compare import ERROR, difference
from onnx_judge import by_onnxruntime, by_package
from onnx_parts import every_value, single

from tvm_tiling.decide.conv import cpu_conv

Arrays = Mapping[str, np.ndarray]
Judge = Callable[[onnx.ModelProto, Arrays], list[np.ndarray]]
# ---- roundings of float16 --------------------------------------------------------------------------------------------

TYPES = ("to", "dtype", "output_dtype", "softmax_precision", "stash_type")  # attributes that are types
TRIES = 4
HALF_UNIT = 2.0**-11  # of a float16, relative to its value
WORST = 4.0  # relative to the worst of a few tries


def by_halves(model: onnx.ModelProto, given: Arrays, result: np.ndarray, wanted: np.ndarray) -> bool:
    """Return whether float16 rounding explains the difference of the model's one output from onnxruntime's, which keeps
    float32 between nodes.

    The same graph in float32 serves as the exact result, and again with random rounding of every float16 result of a
    node. The result may differ from the exact one by four times what those do, and by no more than float16 results may.
    """
    if (result.dtype, result.shape) != (wanted.dtype, wanted.shape) or result.dtype.kind != "f":
        return False
    got, want = result.astype("float64"), wanted.astype("float64")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return False
    try:
        halves = {name: value for name, value in every_value(model, given).items() if value.dtype == np.float16}
        (exact,) = by_onnxruntime(*widened(model, given))
        rounded = [by_onnxruntime(*_rounded(model, given, halves, seed))[0] for seed in range(TRIES)]
    except Exception:  # the float16 numbers that onnxruntime has
        return False
    if not halves or exact.shape != want.shape or not all(np.isfinite(one[finite]).all() for one in (exact, *rounded)):
        return False
    own, *others = (np.abs(one - exact.astype("float64"))[finite].max(initial=0.0) for one in (got, *rounded))
    largest = np.abs(want[finite]).max(initial=1.0)
    return bool(own <= min(WORST * max(others), ERROR["float16"] * largest))


def _rounded(
    model: onnx.ModelProto, given: Arrays, halves: Arrays, seed: int
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model in float32, with float16 results of nodes (`halves`) moved by up to half a unit in the last
    place."""
    rng = np.random.default_rng(seed)
    wide, inputs = widened(model, given)
    nodes = []
    for node in wide.graph.node:
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name not in halves:
                continue
            node.output[place] = f"{name} exact"
            factors = 1 + HALF_UNIT * rng.uniform(-1, 1, halves[name].shape)
            wide.graph.initializer.append(numpy_helper.from_array(factors.astype("float32"), f"{name} rounding"))
            nodes.append(helper.make_node("Mul", [f"{name} exact", f"{name} rounding"], [name]))
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del wide.graph.node[:]
    wide.graph.node.extend(kept)
    return wide, inputs


def widened(
    model: onnx.ModelProto, given: Arrays, narrow: str = "float16", to: str = "float32"
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model and its inputs with float32 for float16, or with another type for a narrower one."""
    old, new = (helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in (narrow, to))
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for message in _messages(wide):
        if isinstance(message, onnx.TensorProto) and message.data_type == old:
            message.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(message).astype(to), message.name))
        elif isinstance(message, onnx.TypeProto.Tensor) and message.elem_type == old:
            message.elem_type = new
        elif isinstance(message, onnx.AttributeProto) and message.name in TYPES and message.i == old:
            message.i = new
    return wide, {name: array.astype(to) if array.dtype == narrow else array for name, array in given.items()}


def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and its nested ones."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


# ---- what float32 keeps nothing of ----------------------------------------------------------------------------------


def by_doubles(model: onnx.ModelProto, given: Arrays, result: np.ndarray, wanted: np.ndarray, exact: Judge) -> bool:
    """Return whether the model's one output is lost in float32, such as deviations from a mean of equal numbers:
    onnxruntime differs from the same graph in float64 by more than is accepted, and the result at most twice as much.
    `exact` runs the graph in float64."""
    try:
        (right,) = exact(*widened(model, given, "float32", "float64"))
    except Exception:  # operators without a float64 definition
        return False
    if result.dtype != np.float32 or not result.shape == wanted.shape == right.shape:
        return False
    if not np.isfinite(result).all() or not np.isfinite(right).all():
        return False
    known = np.isfinite(wanted)  # 0 by 0, elsewhere
    own, other = (float(np.abs(a - b).max(initial=0.0)) for a, b in ((result, right), (wanted[known], right[known])))
    return bool(difference(wanted, right.astype("float32"), [])) and own <= 2 * other


# ---- what convolutions spread ----------------------------------------------------------------------------------------

CONVOLUTIONS = ("Conv", "ConvTranspose")
WINDOWS = ("direct", "gemm", "depthwise")  # algorithms that multiply only the pixels of a window


def is_spread(model: onnx.ModelProto, given: Arrays, differs: Callable[[np.ndarray], str]) -> bool:
    """Return whether the model's one output differs because a convolution spreads an infinity or NaN beyond the windows
    that contain it, as folded and Winograd convolutions do.

    Such a number must reach a convolution; nothing may differ if convolutions use algorithms that multiply only the
    pixels of their windows; and each affected convolution must be correct for finite numbers, as it is compiled.
    """
    try:
        values = {**every_value(model, given), **given}
        reached = [
            alone
            for node in model.graph.node
            if node.op_type in CONVOLUTIONS
            for alone in [single(model, node, values)]
            if any(not np.isfinite(array).all() for array in _floats(*alone))
        ]
        if not reached:
            return False
        with mock.patch.object(cpu_conv, "FORMS", WINDOWS):
            (result,) = by_package(model, given)
        return not differs(result) and not any(_differs_of_finite(*alone) for alone in reached)
    except Exception:
        return False


def _floats(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    every = [*given.values(), *(numpy_helper.to_array(tensor) for tensor in model.graph.initializer)]
    return [array for array in every if array.dtype.kind == "f"]


def _differs_of_finite(model: onnx.ModelProto, given: Arrays) -> str:
    """Return how a model differs from onnxruntime if infinities and NaN are replaced."""

    def finite(array: np.ndarray) -> np.ndarray:
        return np.nan_to_num(array, nan=1.0, posinf=2.0, neginf=-2.0) if array.dtype.kind == "f" else array

    tame = onnx.ModelProto()
    tame.CopyFrom(model)
    for tensor in tame.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(finite(numpy_helper.to_array(tensor)), tensor.name))
    inputs = {name: finite(array) for name, array in given.items()}
    (result,), (wanted,) = by_package(tame, inputs), by_onnxruntime(tame, inputs)
    return difference(result, wanted, [])
