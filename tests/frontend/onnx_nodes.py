"""The onnx package's node tests, run through load_model and TVM's default build, or tt.compile."""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from apart import apart
from default_build import run as run_default
from onnx import numpy_helper
from onnx.backend.test.case import node as node_cases
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from tvm_tiling.errors import TilingError
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.onnx.import_onnx import import_onnx  # noqa: F401  loaded once, before the processes part
from tvm_tiling.frontend.onnx.values import VALUE_INPUTS
from tvm_tiling.model.compile import compile_model

SECONDS = 60  # of processor time per case
RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_TYPES = onnx.TensorProto.DataType.items()
NARROW = {number for name, number in _TYPES if name.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))}
ULPS = 2  # tolerance for half types, relative: the expected values are rounded after each operation, too


def case_named(name: str) -> TestCase:
    """Return a node test of the onnx package. Of its modules, each of which computes the expected values of its tests
    when it is imported, in all 4 s, only those are imported that mention the name or have an operator's name that the
    test's begins with."""
    plain, mention = name.removeprefix("test_").replace("_", ""), f'"{name}"'
    for path in sorted(Path(node_cases.__file__).parent.glob("*.py")):
        if plain.startswith(path.stem.replace("_", "")) or mention in path.read_text(encoding="utf-8"):
            _imported(f"{node_cases.__name__}.{path.stem}")
    found = {case.name: case for case in node_cases._NodeTestCases}
    return found.get(name) or cases()[name]


def _imported(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflows in expected values
        importlib.import_module(module)


@functools.lru_cache(maxsize=1)
def cases() -> dict[str, TestCase]:
    """Return every node test of the onnx package, by name."""
    with warnings.catch_warnings():
        # The cases compute their expected values when they are created, with overflow warnings.
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def left_out(case) -> str:
    """Return why a case does not count: it is not inference on numbers of 8 bits or more; "" if it counts."""
    graphs = list(_graphs(case.model.graph))
    nodes = [node for graph in graphs for node in graph.node]
    values = [value for graph in graphs for value in (*graph.input, *graph.output, *graph.value_info)]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    kinds = {value.type.WhichOneof("value") for value in values}
    types = {value.type.tensor_type.elem_type for value in values}
    types |= {attribute.i for attribute in attributes if attribute.name in ("to", "dtype", "output_dtype")}
    types |= {attribute.t.data_type for attribute in attributes if attribute.HasField("t")}
    operators = {node.op_type for node in nodes}
    # Dropout's third input enables it: random zeros.
    drops = any(node.op_type == "Dropout" and len(node.input) > 2 for node in nodes)
    reasons = {
        "training": drops or any("training" in node.domain for node in nodes),
        "random results": bool(operators.intersection(RANDOM)),
        "images": "ImageDecoder" in operators,
        "sequences": "sequence_type" in kinds,
        "optionals": "optional_type" in kinds,
        "numbers of 4 bits, 2 bits, or floats of 8": bool(types & NARROW),
        "strings": onnx.TensorProto.STRING in types,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Return a graph and its nested graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _graphs(inner)


def array(value) -> np.ndarray:
    """Return a value of a case, which is a TensorProto if NumPy lacks its type; a sequence as an array of arrays."""
    if isinstance(value, list):  # a sequence, of tensors of any shapes
        held = np.empty(len(value), object)
        for place, element in enumerate(value):
            held[place] = array(element)
        return held
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


Arrays = Mapping[str, np.ndarray]
# (model, values given before the run, inputs by name) -> outputs
Run = Callable[[onnx.ModelProto, Arrays, Arrays], list[np.ndarray]]


def by_default_build(model: onnx.ModelProto, params: Arrays, given: Arrays) -> list[np.ndarray]:
    """Return the outputs of TVM's default build."""
    imported = load_model(model, params=params)
    return run_default(imported, [given[name] for name in imported.input_names])


def by_compile(model: onnx.ModelProto, params: Arrays, given: Arrays) -> list[np.ndarray]:
    """Return the outputs of this package's passes, schedules and executable."""
    executable = compile_model(model, params=params, cache=False)
    result = executable.run(*(given[name] for name in executable.signature.input_names))
    return list(result) if isinstance(result, tuple) else [result]


def check(case, run: Run, *, fixed: Collection[str] = ()) -> None:
    """Run and compare one case. `fixed`: inputs whose values are given before the run."""
    inputs, expected = ([array(value) for value in values] for values in case.data_sets[0])
    names = [value.name for value in case.model.graph.input]
    given = dict(zip(names, inputs, strict=True))
    results = run(case.model, {name: given[name] for name in fixed}, given)
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        assert result.shape == value.shape and result.dtype == value.dtype, (
            f"{result.dtype} {result.shape} in place of {value.dtype} {value.shape}"
        )
        _compare(result, value, case.rtol, max(case.atol, 1e-6))


def _compare(result: np.ndarray, value: np.ndarray, rtol: float, atol: float) -> None:
    if value.dtype.name in ("float16", "bfloat16"):
        ulp = 2.0 ** -(10 if value.dtype.name == "float16" else 7)
        rtol, result, value = max(rtol, ULPS * ulp), result.astype("float64"), value.astype("float64")
    np.testing.assert_allclose(result, value, rtol=rtol, atol=atol)


def deciding(case) -> list[str]:
    """Return the inputs of a single-node case that determine its shapes or axes."""
    node = case.model.graph.node[0]
    places = VALUE_INPUTS.get(node.op_type, ())
    return [node.input[place] for place in places if place < len(node.input) and node.input[place]]


def judged(case, run: Run, fixed: Collection[str] = ()) -> str:
    """Return "ok", "refused: <sentence>" or "wrong: <difference>"."""
    try:
        check(case, run, fixed=fixed)
    except TilingError as error:
        return f"refused: {error}"
    except AssertionError as error:
        return f"wrong: {' | '.join(str(error).splitlines()[:6])}"
    return "ok"


def outcomes(names: list[str], run: Run) -> dict[str, str]:
    """Return the outcome of each case, in a separate process: "ok", "ok with params" if the refusal named inputs to
    give before the run, or the failure."""
    found = {}
    for name in names:
        case, fixed = cases()[name], set[str]()
        inputs = {value.name for value in case.model.graph.input}
        while True:
            said = apart(functools.partial(judged, case, run, frozenset(fixed)), SECONDS)
            named = re.search(r"params=\{(.*?)\}", said)
            asked = set(re.findall(r"'([^']*)': value", named[1] if named else "")) & inputs - fixed
            if not asked:
                break
            fixed |= asked
        found[name] = "ok with params" if said == "ok" and fixed else said
    return found


def cause(said: str) -> str:
    """Return the kind of an outcome, for counting."""
    if said.startswith(("ok", "crash", "slow")):
        return said
    if not said.startswith("refused"):
        return "wrong result" if said.startswith("wrong") else "error that is no refusal"
    if found := re.search(r"(?:of|has) type (\w+); expected", said):
        return f"element type {re.sub(r'[0-9].*', '', found[1]).lower()} of 8 bits or fewer not supported"
    if found := re.search(r"unsupported operators: (\w+)", said):
        return f"operator {found[1]} not supported"
    if found := re.search(r"\((\w+)\) is not supported in this form", said):
        return f"form of {found[1]} not supported"
    return said.removeprefix("refused: ")
