"""Random ONNX graphs, compiled by this package and run beside onnxruntime.

A program of its own: python tests/nets/onnx_graphs.py --seed S --count N. Each seed is a graph, drawn and judged in a
process of its own, so that one that ends its process is a failure and costs no other. A refusal is a TilingError, and
counted by its sentence. What differs from onnxruntime, and from the onnx package's reference too, is wrong; it is
shrunk to the nodes that it takes, and printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose judges are used here
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
from apart import apart
from onnx import helper, numpy_helper
from onnx_draws import DRAWS
from onnx_further import FURTHER
from onnx_generator import random_model
from onnx_judge import by_onnxruntime, by_package, by_reference
from onnx_layers import LAYERS

from tvm_tiling.errors import TilingError
from tvm_tiling.frontend.onnx.import_onnx import import_onnx  # noqa: F401  loaded once, before the processes part

Arrays = Mapping[str, np.ndarray]
SECONDS = 120  # of processor time, for one graph
# Relative to the largest number of a tensor; a graph is some twenty sums of up to some hundred terms deep, and the
# attributes of its nodes are float32.
ERROR = {"float64": 1e-6, "float32": 2e-4, "float16": 3e-2}
STEP = 2.0**-18  # by which inputs are moved, to see what rounding may change
BAD = ("wrong", "error", "crash", "slow", "raised")


def moved(model: onnx.ModelProto, given: Arrays, seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model and its inputs with every float moved a little."""
    rng, copy = np.random.default_rng(seed), onnx.ModelProto()
    copy.CopyFrom(model)

    def near(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f" or array.dtype == np.float16:
            return array
        return np.asarray(array * (1 + STEP * rng.uniform(-1, 1, array.shape)), array.dtype)

    for tensor in copy.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and array.ndim > 0 and len(array) != 4:  # scales of a Resize decide a shape
            tensor.CopyFrom(numpy_helper.from_array(near(array), tensor.name))
    return copy, {name: near(array) for name, array in given.items()}


def difference(result: np.ndarray, wanted: np.ndarray, variants: list[np.ndarray]) -> str:
    """How a result differs from what is wanted; empty where no more than rounding may explain."""
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


def judged(model: onnx.ModelProto, given: Arrays) -> str:
    """ "right", "refused: <sentence>", "onnxruntime: <difference>", "wrong: <difference>" or "error: <what>".

    "unjudged" where onnxruntime refuses a graph of nodes that it runs one by one, as its inference of shapes is wrong.
    """
    try:
        wanted = by_onnxruntime(model, given)
    except Exception:
        return "unjudged"
    try:
        results = by_package(model, given)
    except TilingError as error:
        # A valid graph that TVM refuses within is one that nobody here knew of.
        return f"{'error' if 'TVM does not lower' in str(error) else 'refused'}: {error}"
    except Exception as error:
        said = str(error).strip().splitlines()
        return f"error: {type(error).__name__}: {said[-1] if said else ''}"
    variants = []
    for seed in range(3):
        try:
            variants.append(by_onnxruntime(*moved(model, given, seed)))
        except Exception:  # a moved scale may be refused
            continue
    names = [value.name for value in model.graph.output]
    for place, (name, result, want) in enumerate(zip(names, results, wanted, strict=True)):
        found = difference(result, want, [variant[place] for variant in variants])
        if found:
            try:
                alone, needed = only(model, given, model.graph.output[place])
                (reference,) = by_reference(alone, needed)
                agrees = not difference(result, reference, [variant[place] for variant in variants])
            except Exception:
                agrees = False
            return f"{'onnxruntime' if agrees else 'wrong'}: {name}: {found}"
    return "right"


def drawn(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The graph of a seed."""
    return random_model(seed, ([*DRAWS, *LAYERS], LAYERS, [*DRAWS, *FURTHER], FURTHER)[seed % 4])


def outcome(seed: int) -> str:
    """What becomes of the graph of a seed; "unjudged" where onnxruntime ends the process."""
    ended = ("crash", "slow")
    said = apart(lambda: judged(*drawn(seed)), SECONDS)
    if not said.startswith(ended):
        return said
    is_drawn = not apart(lambda: str(len(drawn(seed))), SECONDS).startswith(ended)
    is_run = not apart(lambda: str(len(by_package(*drawn(seed)))), SECONDS).startswith(ended)
    return "unjudged" if is_run or not is_drawn else said


# ---- shrinking -------------------------------------------------------------------------------------------------------


def _needed(model: onnx.ModelProto, given: Arrays) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model without what its outputs do not take."""
    wanted = {value.name for value in model.graph.output}
    nodes = []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            nodes.insert(0, node)
            wanted |= set(node.input)
            wanted |= {
                name for entry in node.attribute if entry.HasField("g") for n in entry.g.node for name in n.input
            }
    graph = helper.make_graph(
        nodes,
        "shrunk",
        [value for value in model.graph.input if value.name in wanted],
        list(model.graph.output),
        [tensor for tensor in model.graph.initializer if tensor.name in wanted],
    )
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return made, {name: array for name, array in given.items() if name in wanted}


def only(
    model: onnx.ModelProto, given: Arrays, output: onnx.ValueInfoProto
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model with one of its outputs, and what that takes."""
    alone = onnx.ModelProto()
    alone.CopyFrom(model)
    del alone.graph.output[:]
    alone.graph.output.append(output)
    return _needed(alone, given)


def _infos(arrays: Arrays) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]


def _single(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One node with what it reads."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    known = {tensor.name for tensor in model.graph.initializer}
    more = {name: array for name, array in values.items() if name not in known and name not in node.output}
    del whole.graph.node[:], whole.graph.input[:], whole.graph.output[:]
    whole.graph.node.append(node)
    whole.graph.input.extend(_infos(more))
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output)
    return _needed(whole, more)


def shrunk(model: onnx.ModelProto, given: Arrays, said: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The fewest nodes that fail in the same way: nodes become inputs that hold their results."""
    kind = said.split(":")[0]

    def fails(model: onnx.ModelProto, given: Arrays) -> bool:
        return apart(lambda: judged(model, given), SECONDS).startswith(kind)

    every = onnx.ModelProto()
    every.CopyFrom(model)
    del every.graph.output[:]
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for node in model.graph.node for name in node.output)
    values = dict(zip((v.name for v in every.graph.output), by_onnxruntime(every, given), strict=True))
    given = dict(given)
    for node in model.graph.node:
        single = _single(model, node, {**values, **given})
        if fails(*single):
            return single
    for output in list(model.graph.output):
        alone = only(model, given, output)
        if fails(*alone):
            model, given = alone
            break
    for node in list(model.graph.node):
        trimmed = onnx.ModelProto()
        trimmed.CopyFrom(model)
        left = [n for n in trimmed.graph.node if not set(n.output) & set(node.output)]
        outputs = {value.name for value in trimmed.graph.output}
        if len(left) == len(trimmed.graph.node) or outputs & set(node.output):
            continue
        del trimmed.graph.node[:]
        trimmed.graph.node.extend(left)
        more = {name: values[name] for name in node.output if name}
        trimmed.graph.input.extend(_infos(more))
        smaller = _needed(trimmed, {**given, **more})
        if fails(*smaller):
            model, given = smaller
    return model, given


def told(model: onnx.ModelProto, given: Arrays) -> str:
    """A model as text, with its inputs."""
    arrays = "\n".join(f"{name} = {np.array2string(array, threshold=40, edgeitems=2)}" for name, array in given.items())
    return f"{onnx.printer.to_text(model)}\n{arrays}"


# ---- the program -----------------------------------------------------------------------------------------------------


def sentence(said: str) -> str:
    """A refusal without its names and numbers."""
    plain = re.sub(r"node '[^']*'|node \"[^\"]*\"", "node", said.removeprefix("refused: the model given: "))
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", plain))[:200]


def run(first: int, count: int, show: bool = True, shrink: bool = True) -> Counter:
    """Judge `count` graphs from seed `first` on; counts of what became of them."""
    warnings.simplefilter("ignore")
    counts: Counter = Counter()
    sentences: Counter = Counter()
    start = time.perf_counter()
    for seed in range(first, first + count):
        said = outcome(seed)
        kind = said.split(":")[0]
        counts[kind] += 1
        if kind == "refused":
            sentences[sentence(said)] += 1
        if kind in (*BAD, "onnxruntime"):
            print(f"seed {seed}: {said[:400]}", flush=True)
        if kind in BAD and kind != "raised" and shrink:
            print(apart(lambda seed=seed, said=said: told(*shrunk(*drawn(seed), said)), 20 * SECONDS), flush=True)
    if show:
        listed = ", ".join(f"{name} {number}" for name, number in counts.most_common())
        print(f"seeds {first} to {first + count - 1}: {listed}; {time.perf_counter() - start:.0f} s")
        for text, number in sentences.most_common():
            print(f"{number:>5}  {text}")
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--count", type=int, default=300, help="of graphs")
    parser.add_argument("--no-shrink", action="store_true", help="leave failing graphs as they were drawn")
    given = parser.parse_args()
    found = run(given.seed, given.count, shrink=not given.no_shrink)
    sys.exit(any(found[kind] for kind in BAD))
