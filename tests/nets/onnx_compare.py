"""Whether two results are equal except for rounding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

Arrays = Mapping[str, np.ndarray]
# Relative to the largest number of a tensor; a graph is about twenty sums deep, of up to about a hundred terms, and the
# attributes of its nodes are float32.
ERROR = {"float64": 1e-6, "float32": 2e-4, "float16": 3e-2}
STEP = 2.0**-18  # by which inputs are moved, to determine the effect of rounding


def moved(model: onnx.ModelProto, given: Arrays, seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model and its inputs with every float moved slightly."""
    rng, copy = np.random.default_rng(seed), onnx.ModelProto()
    copy.CopyFrom(model)

    def near(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f" or array.dtype == np.float16:
            return array
        return np.asarray(array * (1 + STEP * rng.uniform(-1, 1, array.shape)), array.dtype)

    for tensor in copy.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and array.ndim > 0 and len(array) != 4:  # scales of a Resize determine a shape
            tensor.CopyFrom(numpy_helper.from_array(near(array), tensor.name))
    return copy, {name: near(array) for name, array in given.items()}


def difference(result: np.ndarray, wanted: np.ndarray, variants: list[np.ndarray]) -> str:
    """Return how a result differs from the expected one; empty if rounding explains it."""
    if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
        return f"{result.dtype}{list(result.shape)} in place of {wanted.dtype}{list(wanted.shape)}"
    if result.dtype.kind != "f":
        stable = np.all([v == wanted for v in variants if v.shape == wanted.shape], axis=0)
        bad = (result != wanted) & stable
    else:
        got, want = result.astype("float64"), wanted.astype("float64")
        near = [v.astype("float64") for v in variants if v.shape == wanted.shape]
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(v - want) for v in near], axis=0) if near else np.zeros_like(want)
            largest = np.abs(want[np.isfinite(want)]).max(initial=1.0)
            allowed = ERROR[result.dtype.name] * largest + 50 * np.where(np.isfinite(spread), spread, np.inf)
            same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= allowed)
        fragile = np.any([~np.isfinite(v) & np.isfinite(want) for v in near], axis=0) if near else False
        bad = ~(same | fragile)
    if not bad.any():
        return ""
    place = tuple(int(p) for p in np.argwhere(bad)[0])
    return f"{result[place]} in place of {wanted[place]} at {list(place)}, {int(bad.sum())} of {bad.size} elements"
