"""Random ONNX graphs with dynamic shapes, each compiled once, run at five sizes and compared with onnxruntime.

A separate program like onnx_graphs.py, whose graphs it uses: python tests/nets/onnx_open_graphs.py --seed S --count N
--out FILE. Some extents of a graph's inputs become dynamic, as far as onnxruntime runs the graph at other sizes. A size
that the executable refuses with a sentence, and onnxruntime runs, is counted as guarded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))  # whose checks are used here
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import onnx
from apart import apart
from onnx_generator import Graph, Value, filled
from onnx_graphs import MIXTURES, SECONDS, Net, compared, every_operator, main, ran, told
from onnx_judge import by_onnxruntime, session_of
from onnx_open_draws import OPEN_DRAWS
from onnx_parts import every_value, only, single

from tvm_tiling.model.compile import compile_model

Arrays = Mapping[str, np.ndarray]
Runs = Sequence[Arrays]
RUNS = 5
EXTENTS = (1, 1, 2, 3, 5, 6, 7, 9, 11, 13, 16)
EMPTY = (0, 0, 1, 2, 5)  # where sizes may be 0
FACTORS = (0.5, 0.75, 1.0, 1.5)  # which change elements, and keep their small number of bits
KEPT = ("error", "raised", "crash", "slow")  # outcomes of the first run that has them


class OpenGraph(Graph):
    """A graph with fewer constants whose extents are those of inputs."""

    def like(self, value: Value, shape: Sequence[int]) -> Value:
        array = self.array(shape, value.array.dtype.name)
        return self.input(array) if max(shape, default=1) > 1 and self.chance(0.7) else self.constant(array)


# ---- which sizes are open --------------------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """Return the graph of a seed and the inputs of its runs; a single run if none of its sizes can be dynamic."""
    rng = np.random.default_rng([seed, 27])
    draws = [*MIXTURES[seed % len(MIXTURES)], *OPEN_DRAWS * (1 + seed // 2 % 2)]
    model, given = filled(OpenGraph(seed), draws, *((1, 4) if seed % 2 else (5, 20)))
    names = _open_names(model, given, rng)
    model = _named(model, names)
    runs: list[dict[str, np.ndarray]] = [dict(given)]
    try:
        session = session_of(model)
        session.run(None, runs[0])
    except Exception:
        return model, [dict(given)]
    for _ in range(6 * RUNS if names else 0):
        if len(runs) == RUNS:
            break
        other = _resized(given, names, rng, EMPTY if is_empty(seed) and len(runs) > 1 else EXTENTS)
        try:
            session.run(None, other)
        except Exception:
            continue
        if not any(_shapes(other) == _shapes(run) for run in runs):
            runs.append(other)
    return model, runs


def is_empty(seed: int) -> bool:
    """Return whether sizes of the graph of a seed may be 0."""
    return seed % 5 == 0


def _open_dims(model: onnx.ModelProto, runs: Runs) -> Iterator[tuple[Any, int]]:
    """Return the dynamic dimensions of the inputs, each with its extent in each run."""
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                yield from ((dim, given[value.name].shape[axis]) for given in runs)


def _shapes(given: Arrays) -> list[tuple[int, ...]]:
    return [array.shape for array in given.values()]


Names = Mapping[tuple[str, int], str]


def _open_names(model: onnx.ModelProto, given: Arrays, rng: np.random.Generator) -> Names:
    """Return names of axes whose sizes can vary: as many axes of one extent as vary together."""
    extents = sorted({extent for array in given.values() for extent in array.shape if extent})
    found: dict[tuple[str, int], str] = {}

    def runs(names: Names, extent: int) -> bool:
        """Return whether onnxruntime runs it at sizes that are neither 1 nor the original ones, and at others."""
        session, others = session_of(_named(model, names)), [n for n in EXTENTS if n not in (1, extent)]
        found = 0
        for extents, tries in ((others, 4), (EXTENTS, 8)):
            before = found
            for _ in range(tries):
                try:
                    session.run(None, _resized(given, names, rng, extents))
                    found += 1
                except Exception:
                    continue
            if found == before:
                return False
        return found >= 2

    for extent in rng.permutation(extents):
        axes = [
            (name, axis)
            for name, array in given.items()
            for axis, number in enumerate(array.shape)
            if number == extent and rng.random() < 0.9
        ]
        for group in (axes, *([axis] for axis in axes)):
            more = {axis: f"n{extent}" if len(group) > 1 else f"{axis[0]}_{axis[1]}" for axis in group}
            if group and runs({**found, **more}, extent):
                found.update(more)
                break
    return found


def _named(model: onnx.ModelProto, names: Names) -> onnx.ModelProto:
    """Return the model with dynamic sizes of these names."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in made.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if (value.name, axis) in names:
                dim.dim_param = names[value.name, axis]
    return made


def _resized(given: Arrays, names: Names, rng: np.random.Generator, extents: Sequence[int]) -> dict[str, np.ndarray]:
    """Return inputs of other sizes, whose elements resemble the given ones."""
    sizes = {name: int(rng.choice(extents)) for name in dict.fromkeys(names.values())}
    found = {}
    for name, array in given.items():
        shape = [sizes[names[name, axis]] if (name, axis) in names else n for axis, n in enumerate(array.shape)]
        if shape == list(array.shape):
            found[name] = array
            continue
        elements = rng.choice(array.reshape(-1), shape) if array.size else np.zeros(shape, array.dtype)
        if array.dtype.kind == "f":
            elements = elements * rng.choice(FACTORS, shape).astype(array.dtype)
        found[name] = np.asarray(elements, array.dtype)
    return found


def closed(model: onnx.ModelProto, given: Arrays) -> onnx.ModelProto:
    """Return the model at the sizes of these inputs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for value in made.graph.input:
        for dim, extent in zip(value.type.tensor_type.shape.dim, given[value.name].shape, strict=True):
            dim.dim_value = extent
    return made


def opened(model: onnx.ModelProto, runs: Runs) -> onnx.ModelProto:
    """Return the model, whose inputs have fixed extents where all runs agree, and the same name where they vary
    alike."""
    made, names = onnx.ModelProto(), dict[tuple[int, ...], str]()
    made.CopyFrom(model)
    for value in made.graph.input:
        dims = value.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            extents = tuple(given[value.name].shape[axis] for given in runs)
            if len(set(extents)) == 1:
                dim.dim_value = extents[0]
            else:
                dim.dim_param = names.setdefault(extents, f"n{len(names)}")
    return made


# ---- judging ---------------------------------------------------------------------------------------------------------


def judged(model: onnx.ModelProto, runs: Runs) -> str:
    """Return the outcome of onnx_graphs.judged() for the worst run; also "guarded: <sentence>" if a size is refused,
    and "fixed" if no size is dynamic."""
    if len(runs) < 2:
        return "fixed"
    try:
        wanted = [by_onnxruntime(model, given) for given in runs]
    except Exception:
        return "unjudged"
    # Sizes that may be 0 are declared so.
    empty = {dim.dim_param: (0, 1024) for dim, extent in _open_dims(model, runs) if extent == 0}
    executable = ran(lambda: compile_model(model, cache=False, dims=empty))
    if isinstance(executable, str):
        return executable
    said = ["right"]
    for given, expected in zip(runs, wanted, strict=True):
        results = ran(lambda given=given: executable.run(*(given[name] for name in executable.signature.input_names)))
        if isinstance(results, str):
            said.append(results.replace("refused:", "guarded:"))
            continue
        results = list(results) if isinstance(results, tuple) else [results]
        at = ", ".join(f"{name} {list(given[name].shape)}" for name in given)
        found = compared(closed(model, given), given, expected, results)
        said.append(found if found == "right" else f"{found} (at {at})")
    order = ("wrong", "error", "guarded", "spread", "doubles", "halves", "onnxruntime", "right")
    return min(said, key=lambda text: order.index(text.split(":")[0]))


def _told_apart(seed: int) -> str:
    model, runs = drawn(seed)
    operators = [f"{node.domain}.{node.op_type}".lstrip(".") for node in every_operator(model)]
    said = judged(model, runs)
    return json.dumps(
        {"outcome": said, "runs": len(runs), "opset": model.opset_import[0].version, "operators": operators}
    )


def outcome(seed: int) -> dict:
    """Return the outcome of the graph of a seed."""
    said = apart(lambda: _told_apart(seed), 2 * SECONDS)
    if said.startswith("{"):
        return json.loads(said)
    if said.startswith(("crash", "slow")):
        is_drawn = not apart(lambda: str(len(drawn(seed))), SECONDS).startswith(("crash", "slow"))
        if not is_drawn:
            said = "unjudged"
    return {"outcome": said}


def shrunk(model: onnx.ModelProto, runs: Runs, said: str) -> tuple[onnx.ModelProto, Runs]:
    """Return the single node that fails in the same way, or the output."""
    kind = said.split(":")[0]

    def fails(model: onnx.ModelProto, runs: Runs) -> bool:
        return apart(lambda: judged(model, runs), SECONDS).startswith(kind)

    def part(alone: onnx.ModelProto, given: Runs) -> tuple[onnx.ModelProto, Runs]:
        kept = [{value.name: values[value.name] for value in alone.graph.input} for values in given]
        return opened(alone, kept), kept

    try:
        values = [{**every_value(model, given), **given} for given in runs]
        for node in model.graph.node:
            if not {*node.input, ""} - {""} <= {*values[0], *(t.name for t in model.graph.initializer)}:
                continue
            alone = part(single(model, node, values[0])[0], values)
            if fails(*alone):
                return alone
    except Exception as error:
        print(f"not taken apart: {error}", file=sys.stderr)
    for output in model.graph.output:
        alone = part(only(model, runs[0], output)[0], runs)
        if fails(*alone):
            return alone
    return model, runs


def _told(seed: int, said: str) -> str:
    model, runs = shrunk(*drawn(seed), said)
    sizes = "\n".join(", ".join(f"{name} {list(array.shape)}" for name, array in given.items()) for given in runs)
    return f"{told(model, runs[0])}\n{sizes}"


OPEN = Net(outcome, _told)

if __name__ == "__main__":
    main(__doc__, OPEN)
