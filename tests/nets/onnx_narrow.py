"""Whether rounding explains the result of a float32 graph computed in bfloat16 or float16.

The graph runs in onnxruntime in float32, and repeatedly with every float32 number between nodes moved by up to half a
unit in the last place of the narrow type: a result may differ by as much as these results do, and positions and choices
may differ as theirs do. Larger differences are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_compare import ERROR
from onnx_judge import by_onnxruntime, by_package
from onnx_parts import every_value

from tvm_tiling.errors import TilingError

Arrays = Mapping[str, np.ndarray]
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half of the last place, relative to a number
LEAST = {"bfloat16": 0.0, "float16": 2.0**-25}  # half of the last place of the smallest numbers
LARGEST = {"bfloat16": 2.0**127, "float16": 2.0**15}  # numbers that rounding keeps finite
FEW, MANY = 6, 60  # number of runs with moved numbers; many if few do not explain a result
WORST = 4.0  # times the largest difference of an element
AROUND = 0.5  # in addition, times the largest difference of any
CHOICES = 2.0  # times as many positions and choices


def judged_narrow(model: onnx.ModelProto, given: Arrays, precision: str) -> str:
    """As onnx_graphs.judged: "right", "refused: <sentence>", "wrong: <difference>" or "error: <what>"; with infinities
    "range" if float16 cannot represent a number of the graph, and "onnxruntime" if it differs from this package's
    float32 as well. "unjudged" if onnxruntime refuses the graph, or this package does in float32."""
    try:
        wanted, values = by_onnxruntime(model, given), {**every_value(model, given), **given}
    except Exception:
        return "unjudged"
    try:
        results = by_package(model, given, precision)
    except TilingError as error:
        try:
            by_package(model, given)
        except TilingError:
            return "unjudged"
        return f"refused: {error}"
    except Exception as error:
        said = str(error).strip().splitlines()
        return f"error: {type(error).__name__}: {said[-1] if said else ''}"
    found = ""
    variants: list[list[np.ndarray]] = []
    for tries in (FEW, MANY):
        variants += _variants(model, given, values, precision, range(len(variants), tries))
        found = _first_difference(model, results, wanted, variants)
        if not found:
            return "right"
    if not _first_difference(model, results, by_package(model, given), variants):
        return f"onnxruntime: {found}"
    floats = [array[np.isfinite(array)] for array in values.values() if array.dtype == np.float32]
    if max((np.abs(array).max(initial=0.0) for array in floats), default=0.0) >= LARGEST[precision]:
        return f"range: {found}"
    return f"wrong: {found}"


def _first_difference(
    model: onnx.ModelProto, results: list[np.ndarray], wanted: list[np.ndarray], variants: list[list[np.ndarray]]
) -> str:
    """Describe the first output that differs, or return an empty string."""
    told = (
        f"{value.name}: {said}"
        for place, value in enumerate(model.graph.output)
        if (said := differs(results[place], wanted[place], [variant[place] for variant in variants]))
    )
    return next(told, "")


def differs(result: np.ndarray, wanted: np.ndarray, variants: list[np.ndarray]) -> str:
    """Return how a result differs from float32's; empty if rounding explains it."""
    if (result.dtype, result.shape) != (wanted.dtype, wanted.shape):
        return f"{result.dtype}{list(result.shape)} in place of {wanted.dtype}{list(wanted.shape)}"
    near = [variant for variant in variants if variant.shape == wanted.shape]
    if not wanted.size:
        return ""
    if result.dtype.kind != "f":
        others = max((int((variant != wanted).sum()) for variant in near), default=0)
        bad = result != wanted
        if bad.sum() <= CHOICES * others:
            return ""
    else:
        got, want = result.astype("float64"), wanted.astype("float64")
        with np.errstate(all="ignore"):
            moved = [np.abs(variant.astype("float64") - want) for variant in near]
            spread = np.max([np.where(np.isfinite(one), one, 0.0) for one in moved], axis=0, initial=0.0)
            largest = np.abs(want[np.isfinite(want)]).max(initial=1.0)
            allowed = ERROR[result.dtype.name] * largest + WORST * spread + AROUND * spread.max(initial=0.0)
            same = (got == want) | (np.isnan(got) & np.isnan(want)) | (np.abs(got - want) <= allowed)
        fragile = np.any([np.isfinite(variant) != np.isfinite(want) for variant in near], axis=0) if near else False
        bad = ~(same | fragile)
    if not bad.any():
        return ""
    place = tuple(int(p) for p in np.argwhere(bad)[0])
    return f"{result[place]} in place of {wanted[place]} at {list(place)}, {int(bad.sum())} of {bad.size} elements"


def _variants(
    model: onnx.ModelProto, given: Arrays, values: Arrays, precision: str, seeds: range
) -> list[list[np.ndarray]]:
    """Return results with numbers moved, one for each seed that onnxruntime runs."""
    found = []
    for seed in seeds:
        for within in (values, {}):  # moved numbers may change a shape, for which others are moved then
            try:
                found.append(by_onnxruntime(*_moved(model, given, within, precision, seed)))
                break
            except Exception:  # a moved scale may be refused
                continue
    return found


def _moved(
    model: onnx.ModelProto, given: Arrays, values: Arrays, precision: str, seed: int
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model with every float32 input, constant, and node result among `values` moved as rounding may move
    it, and every float16 by its own type's."""
    rng, copy = np.random.default_rng(seed), onnx.ModelProto()
    copy.CopyFrom(model)
    kinds = {np.dtype("float32"): precision, np.dtype("float16"): "float16"}

    def factors(array: np.ndarray) -> np.ndarray:
        kind = kinds[array.dtype]
        with np.errstate(all="ignore"):
            size = np.abs(array.astype("float64"))
            unit = UNIT[kind] + np.where(size > 0, LEAST[kind] / size, 0.0)
        return np.asarray(1 + np.minimum(unit, 1.0) * rng.uniform(-1, 1, array.shape), array.dtype)

    for tensor in copy.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype in kinds and array.ndim > 0 and len(array) != 4:  # scales of a Resize determine a shape
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(array * factors(array)), tensor.name))
    feeds = {
        name: np.asarray(array * factors(array)) if array.dtype in kinds else array for name, array in given.items()
    }
    nodes = []
    for node in model.graph.node:
        own = onnx.NodeProto.FromString(node.SerializeToString())
        nodes.append(own)
        for place, name in enumerate(node.output):
            if name and name in values and values[name].dtype in kinds:
                own.output[place] = f"{name} exact"
                nodes.append(helper.make_node("Mul", [f"{name} exact", f"{name} rounding"], [name]))
                feeds[f"{name} rounding"] = factors(values[name])
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    # Inputs without shapes, because some of the shapes that onnxruntime infers for its operators are wrong.
    for name in feeds.keys() - given.keys():
        kind = helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
        copy.graph.input.append(helper.make_tensor_value_info(name, kind, None))
    return copy, feeds
