"""Random ONNX graphs, compiled by this package and compared with onnxruntime.

A separate program: python tests/nets/onnx_graphs.py --seed S --count N --out FILE. Each seed is a graph, drawn and
checked in a separate process, so that one that ends its process is a failure without affecting others. A refusal is a
TilingError, and counted by its message. A result that differs both from onnxruntime and from the onnx package's
reference evaluator is wrong; the graph is shrunk to the necessary nodes, and printed. The file gets a line of JSON for
each seed; seeds that it contains are skipped, so that a run continues where it stopped.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import resource
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose checks are used here
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
from apart import apart
from onnx import numpy_helper
from onnx_causes import by_doubles, by_halves, is_spread
from onnx_compare import difference, moved
from onnx_control import CONTROL
from onnx_draws import DRAWS
from onnx_forms import FORMS
from onnx_further import FURTHER
from onnx_generator import random_model, read_by
from onnx_judge import by_onnxruntime, by_package, by_reference
from onnx_layers import LAYERS
from onnx_narrow import UNIT, judged_narrow
from onnx_parts import every_value, infos, needed, only, single
from onnx_rare_layers import RARE_LAYERS

from tvm_tiling.errors import TilingError
from tvm_tiling.frontend.onnx.import_onnx import import_onnx  # noqa: F401  loaded once, before the processes part

Arrays = Mapping[str, np.ndarray]
Judge = Callable[[onnx.ModelProto, Arrays], str]
SECONDS = 120  # of processor time per graph
BAD = ("wrong", "error", "crash", "slow", "raised")
EXPLAINED = ("onnxruntime", "halves", "doubles", "spread", "range")
# Sources of graphs, in turn.
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


def referred(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Return the outputs of the onnx package's evaluator, except for nodes that it does not run: those of
    onnxruntime."""
    try:
        return by_reference(model, given)
    except Exception:  # whatever NumPy raises: the evaluator checks nothing
        values = dict(given)
        values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for node in model.graph.node:
            alone = single(model, node, values)
            try:
                results = by_reference(*alone)
            except Exception:
                results = by_onnxruntime(*alone)
            values |= zip(filter(None, node.output), results, strict=True)
        return [values[output.name] for output in model.graph.output]


def judged(model: onnx.ModelProto, given: Arrays) -> str:
    """Return "right", "refused: <sentence>", "wrong: <difference>" or "error: <what>"; with a difference also
    "onnxruntime" if that differs from the reference, "halves" if float16 rounding explains it, "doubles" if float32
    retains nothing of the result, and "spread" if a convolution spreads an infinity or NaN as described in README's
    limits (onnx_causes.py).

    "unjudged" if onnxruntime refuses a graph of nodes that it runs individually, because its shape inference is wrong.
    """
    try:
        wanted = by_onnxruntime(model, given)
    except Exception:
        return "unjudged"
    results = ran(lambda: by_package(model, given))
    return results if isinstance(results, str) else compared(model, given, wanted, results)


def ran(work: Callable[[], Any]) -> Any:
    """Return the result of `work`, or for an error "refused: <sentence>" or "error: <what>"."""
    try:
        return work()
    except TilingError as error:
        # A valid graph that TVM refuses internally is one that this package did not anticipate.
        within = any(words in str(error) for words in ("TVM does not support lowering", "Check failed"))
        return f"{'error' if within else 'refused'}: {error}"
    except Exception as error:
        said = str(error).strip().splitlines()
        return f"error: {type(error).__name__}: {said[-1] if said else ''}"


def compared(model: onnx.ModelProto, given: Arrays, wanted: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> str:
    """Return the outcome of results, as judged() does."""
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
            if agrees:
                return f"onnxruntime: {name}: {found}"
            alone = only(model, given, model.graph.output[place])
            if by_halves(*alone, result, want):
                return f"halves: {name}: {found}"
            if by_doubles(*alone, result, want, by_reference):
                return f"doubles: {name}: {found}"
            near = [variant[place] for variant in variants]
            if is_spread(*alone, lambda other, want=want, near=near: difference(other, want, near)):
                return f"spread: {name}: {found}"
            return f"wrong: {name}: {found}"
    return "right"


def judge_of(precision: str) -> Judge:
    """Return the check of graphs that this package computes in a precision."""
    return judged if precision == "float32" else functools.partial(judged_narrow, precision=precision)


def drawn(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the graph of a seed."""
    return random_model(seed, MIXTURES[seed % len(MIXTURES)])


def _told_apart(seed: int, precision: str) -> str:
    model, given = drawn(seed)
    operators = [f"{node.domain}.{node.op_type}".lstrip(".") for node in every_operator(model)]
    return json.dumps(
        {"outcome": judge_of(precision)(model, given), "opset": model.opset_import[0].version, "operators": operators}
    )


def every_operator(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model, including those of inner graphs and functions."""
    left = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while left:
        node = left.pop(0)
        yield node
        left += [inner for entry in node.attribute if entry.HasField("g") for inner in entry.g.node]


def outcome(seed: int, precision: str = "float32") -> dict:
    """Return the outcome of the graph of a seed, with its operators; "unjudged" if onnxruntime ends the process."""
    ended = ("crash", "slow")
    said = apart(lambda: _told_apart(seed, precision), SECONDS)
    if said.startswith("{"):
        return json.loads(said)
    if said.startswith(ended):
        is_drawn = not apart(lambda: str(len(drawn(seed))), SECONDS).startswith(ended)
        is_run = not apart(lambda: str(len(by_package(*drawn(seed), precision))), SECONDS).startswith(ended)
        if is_run or not is_drawn:
            said = "unjudged"
    return {"outcome": said}


# ---- shrinking -------------------------------------------------------------------------------------------------------


def shrunk(
    model: onnx.ModelProto, given: Arrays, said: str, precision: str = "float32"
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the smallest set of nodes that fails in the same way: removed nodes become inputs with their results."""
    kind = said.split(":")[0]

    def fails(model: onnx.ModelProto, given: Arrays) -> bool:
        return apart(lambda: judge_of(precision)(model, given), SECONDS).startswith(kind)

    values, given = every_value(model, given), dict(given)
    for node in model.graph.node:
        if not {*read_by(node), *node.output} - {""} <= {*values, *given, *(t.name for t in model.graph.initializer)}:
            continue  # of sequences
        alone = single(model, node, {**values, **given})
        if fails(*alone):
            return alone
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
        trimmed.graph.input.extend(infos(more))
        smaller = needed(trimmed, {**given, **more})
        if fails(*smaller):
            model, given = smaller
    return model, given


def told(model: onnx.ModelProto, given: Arrays) -> str:
    """Format a model with its inputs."""
    arrays = "\n".join(f"{name} = {np.array2string(array, threshold=40, edgeitems=2)}" for name, array in given.items())
    return f"{onnx.printer.to_text(model)}\n{arrays}"


# ---- the program -----------------------------------------------------------------------------------------------------


def sentence(said: str) -> str:
    """Return a refusal without names and numbers."""
    plain = re.sub(r"node '[^']*'|node \"[^\"]*\"", "node", said.removeprefix("refused: the model given: "))
    return re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", plain))[:200]


@dataclass(frozen=True)
class Net:
    """Return the outcome of the graph of a seed, as outcome() does, and the description of its failure."""

    outcome: Callable[[int], dict]
    told: Callable[[int, str], str]


def net_of(precision: str) -> Net:
    """Return the net of graphs with fixed shapes, computed in that precision."""
    return Net(
        lambda seed: outcome(seed, precision),
        lambda seed, said: told(*shrunk(*drawn(seed), said, precision)),
    )


def run(first: int, count: int, out: Path | None = None, shrink: bool = True, net: Net | None = None) -> Counter:
    """Check `count` graphs from seed `first` on, except those that the file `out` contains; return counts of the
    outcomes."""
    warnings.simplefilter("ignore")
    net = net or net_of("float32")
    seeds = range(first, first + count)
    found = {seed: line for seed, line in _lines(out).items() if seed in seeds}
    for seed in seeds:
        if seed in found:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        line = net.outcome(seed)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        line["seconds"] = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        found[seed] = line
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps({"seed": seed, **line}) + "\n")
        said = line["outcome"]
        kind = said.split(":")[0]
        if kind in (*BAD, *EXPLAINED):
            print(f"seed {seed}: {said[:400]}", flush=True)
        if kind in BAD and kind != "raised" and shrink:
            print(apart(lambda seed=seed, said=said: net.told(seed, said), 20 * SECONDS), flush=True)
    print(f"seeds {first} to {first + count - 1}: {_summary(found.values())}")
    return Counter(line["outcome"].split(":")[0] for line in found.values())


def _lines(out: Path | None) -> dict[int, dict]:
    """Return the contents of a file, by seed."""
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


def main(text: str | None, net: Net | None = None) -> None:
    """The command line of a net, described by `text`."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--seed", type=int, default=0, help="of the first graph")
    parser.add_argument("--count", type=int, default=300, help="of graphs")
    parser.add_argument("--out", type=Path, help="a file that gets a line of JSON for each seed; those it has are kept")
    parser.add_argument("--no-shrink", action="store_true", help="leave failing graphs as they were drawn")
    parser.add_argument("--precision", choices=["float32", *UNIT], default="float32", help="default: %(default)s")
    given = parser.parse_args()
    found = run(given.seed, given.count, given.out, shrink=not given.no_shrink, net=net or net_of(given.precision))
    sys.exit(any(found[kind] for kind in BAD))


if __name__ == "__main__":
    main(__doc__)
