"""Random ONNX graphs, compiled by this package and run beside onnxruntime.

A program of its own: python tests/nets/onnx_graphs.py --seed S --count N --out FILE. Each seed is a graph, drawn and
judged in a process of its own, so that one that ends its process is a failure and costs no other. A refusal is a
TilingError, and counted by its sentence. What differs from onnxruntime, and from the onnx package's reference too, is
wrong; it is shrunk to the nodes that it takes, and printed. The file gets a line of JSON for each seed; seeds that it
has are not judged again, so that a run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose judges are used here
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
from apart import apart
from onnx import helper, numpy_helper
from onnx_control import CONTROL
from onnx_draws import DRAWS
from onnx_forms import FORMS
from onnx_further import FURTHER
from onnx_generator import random_model, read_by
from onnx_judge import by_onnxruntime, by_package, by_reference, session_of
from onnx_layers import LAYERS
from onnx_rare_layers import RARE_LAYERS

from tvm_tiling.errors import TilingError
from tvm_tiling.frontend.onnx.import_onnx import import_onnx  # noqa: F401  loaded once, before the processes part

Arrays = Mapping[str, np.ndarray]
SECONDS = 120  # of processor time, for one graph
# Relative to the largest number of a tensor; a graph is some twenty sums of up to some hundred terms deep, and the
# attributes of its nodes are float32.
ERROR = {"float64": 1e-6, "float32": 2e-4, "float16": 3e-2}
STEP = 2.0**-18  # by which inputs are moved, to see what rounding may change
BAD = ("wrong", "error", "crash", "slow", "raised")
# What graphs are drawn from, one after the other.
MIXTURES = (
    [*DRAWS, *LAYERS],
    LAYERS,
    [*DRAWS, *FURTHER],
    FURTHER,
    [*DRAWS, *FORMS],
    FORMS,
    [*DRAWS, *CONTROL, *CONTROL],
    [*LAYERS, *RARE_LAYERS],
    RARE_LAYERS,
    [*DRAWS, *LAYERS, *FURTHER, *FORMS, *RARE_LAYERS, *CONTROL],
)


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


def referred(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Outputs by the onnx package's evaluator, but for the nodes that it does not run: those by onnxruntime."""
    try:
        return by_reference(model, given)
    except Exception:  # whatever NumPy raises: the evaluator checks nothing
        values = dict(given)
        values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for node in model.graph.node:
            single = _single(model, node, values)
            try:
                results = by_reference(*single)
            except Exception:
                results = by_onnxruntime(*single)
            values |= zip(node.output, results, strict=True)
        return [values[output.name] for output in model.graph.output]


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
        within = any(words in str(error) for words in ("TVM does not lower", "Check failed"))
        return f"{'error' if within else 'refused'}: {error}"
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
                (reference,) = referred(*only(model, given, model.graph.output[place]))
                agrees = not difference(result, reference, [variant[place] for variant in variants])
            except Exception:
                agrees = False
            return f"{'onnxruntime' if agrees else 'wrong'}: {name}: {found}"
    return "right"


def drawn(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The graph of a seed."""
    return random_model(seed, MIXTURES[seed % len(MIXTURES)])


def _told_apart(seed: int) -> str:
    model, given = drawn(seed)
    operators = [f"{node.domain}.{node.op_type}".lstrip(".") for node in _every_node(model)]
    return json.dumps({"outcome": judged(model, given), "opset": model.opset_import[0].version, "operators": operators})


def _every_node(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a model, those of graphs within and of functions among them."""
    left = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while left:
        node = left.pop(0)
        yield node
        left += [inner for entry in node.attribute if entry.HasField("g") for inner in entry.g.node]


def outcome(seed: int) -> dict:
    """What becomes of the graph of a seed, with its operators; "unjudged" where onnxruntime ends the process."""
    ended = ("crash", "slow")
    said = apart(lambda: _told_apart(seed), SECONDS)
    if said.startswith("{"):
        return json.loads(said)
    if said.startswith(ended):
        is_drawn = not apart(lambda: str(len(drawn(seed))), SECONDS).startswith(ended)
        is_run = not apart(lambda: str(len(by_package(*drawn(seed)))), SECONDS).startswith(ended)
        if is_run or not is_drawn:
            said = "unjudged"
    return {"outcome": said}


# ---- shrinking -------------------------------------------------------------------------------------------------------


def _needed(model: onnx.ModelProto, given: Arrays) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model without what its outputs do not take."""
    wanted = {value.name for value in model.graph.output}
    nodes = []
    for node in reversed(model.graph.node):
        if wanted & set(node.output):
            nodes.insert(0, node)
            wanted |= read_by(node)
    graph = helper.make_graph(
        nodes,
        "shrunk",
        [value for value in model.graph.input if value.name in wanted],
        list(model.graph.output),
        [tensor for tensor in model.graph.initializer if tensor.name in wanted],
    )
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.CopyFrom(graph)
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
    results = zip((value.name for value in every.graph.output), session_of(every).run(None, dict(given)), strict=True)
    values = {name: value for name, value in results if isinstance(value, np.ndarray)}
    given = dict(given)
    for node in model.graph.node:
        if not {*read_by(node), *node.output} - {""} <= {*values, *given, *(t.name for t in model.graph.initializer)}:
            continue  # of sequences
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
        if not set(node.output) <= set(values):
            continue
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


def run(first: int, count: int, out: Path | None = None, shrink: bool = True) -> Counter:
    """Judge `count` graphs from seed `first` on, but those that the file `out` has; counts of what became of them."""
    warnings.simplefilter("ignore")
    seeds = range(first, first + count)
    found = {seed: line for seed, line in _lines(out).items() if seed in seeds}
    for seed in seeds:
        if seed in found:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = outcome(seed)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        line["seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        found[seed] = line
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps({"seed": seed, **line}) + "\n")
        said = line["outcome"]
        kind = said.split(":")[0]
        if kind in (*BAD, "onnxruntime"):
            print(f"seed {seed}: {said[:400]}", flush=True)
        if kind in BAD and kind != "raised" and shrink:
            print(apart(lambda seed=seed, said=said: told(*shrunk(*drawn(seed), said)), 20 * SECONDS), flush=True)
    print(f"seeds {first} to {first + count - 1}: {_summary(found.values())}")
    return Counter(line["outcome"].split(":")[0] for line in found.values())


def _lines(out: Path | None) -> dict[int, dict]:
    """What a file has, by seed."""
    if out is None or not out.exists():
        return {}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return {line["seed"]: line for line in lines}


def _summary(lines: Iterable[dict]) -> str:
    lines = list(lines)
    counts = Counter(line["outcome"].split(":")[0] for line in lines)
    refused = Counter(sentence(line["outcome"]) for line in lines if line["outcome"].startswith("refused"))
    operators = Counter(operator for line in lines for operator in line.get("operators", ()))
    listed = ", ".join(f"{name} {number}" for name, number in counts.most_common())
    return "\n".join(
        [
            f"{listed}; {sum(line['seconds'] for line in lines):.0f} s of processor time",
            *(f"{number:>5}  {text}" for text, number in refused.most_common()),
            f"{len(operators)} operators: "
            + ", ".join(f"{name} {number}" for name, number in sorted(operators.items())),
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--count", type=int, default=300, help="of graphs")
    parser.add_argument("--out", type=Path, help="a file that gets a line of JSON for each seed; those it has are kept")
    parser.add_argument("--no-shrink", action="store_true", help="leave failing graphs as they were drawn")
    given = parser.parse_args()
    found = run(given.seed, given.count, given.out, shrink=not given.no_shrink)
    sys.exit(any(found[kind] for kind in BAD))
