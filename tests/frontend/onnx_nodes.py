"""The node tests that come with the onnx package, run through load_model and TVM's default build, or tt.compile."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from apart import apart
from default_build import run as run_default
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tvm_tiling.errors import TilingError
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.onnx.import_onnx import import_onnx  # noqa: F401  loaded once, before the processes part
from tvm_tiling.frontend.onnx.values import VALUE_INPUTS
from tvm_tiling.model.compile import compile_model

FLOAT = onnx.TensorProto.FLOAT
SECONDS = 60  # of processor time, for one case
# Results that are random, and operators of training.
NOT_INFERENCE = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")


def serves_inference(case) -> bool:
    """Whether a case is one standard operator of inference on float32 tensors."""
    graph = case.model.graph
    values = [*graph.input, *graph.output]
    tensors = all(value.type.WhichOneof("value") == "tensor_type" for value in values)
    if len(graph.node) != 1 or not tensors or graph.node[0].domain:
        return False
    node = graph.node[0]
    trains = any(entry.name == "training_mode" and entry.i for entry in node.attribute)
    # Dropout's third input turns it on: random zeros, or none where the ratio is 0.
    trains = trains or (node.op_type == "Dropout" and len(node.input) > 2)
    float32 = any(value.type.tensor_type.elem_type == FLOAT for value in values)
    return float32 and not trains and node.op_type not in NOT_INFERENCE


@functools.lru_cache(maxsize=1)
def cases() -> dict:
    """Every case that counts, by name."""
    with warnings.catch_warnings():
        # The cases compute their expected values when they are made, overflows and all.
        warnings.simplefilter("ignore", RuntimeWarning)
        return {case.name: case for case in load_model_tests(kind="node") if serves_inference(case)}


def array(value) -> np.ndarray:
    """A value of a case, which comes as a TensorProto where NumPy lacks its type."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


Arrays = Mapping[str, np.ndarray]
# (model, values given before the run, inputs by name) -> outputs
Run = Callable[[onnx.ModelProto, Arrays, Arrays], list[np.ndarray]]


def by_default_build(model: onnx.ModelProto, params: Arrays, given: Arrays) -> list[np.ndarray]:
    """Outputs by TVM's default build."""
    imported = load_model(model, params=params)
    return run_default(imported, [given[name] for name in imported.input_names])


def by_compile(model: onnx.ModelProto, params: Arrays, given: Arrays) -> list[np.ndarray]:
    """Outputs by this package's passes, schedules and executable."""
    executable = compile_model(model, params=params, cache=False)
    result = executable.run(*(given[name] for name in executable.signature.input_names))
    return list(result) if isinstance(result, tuple) else [result]


def check(case, run: Run, *, params: bool = False) -> None:
    """One case run and compared. `params`: inputs that decide shapes or axes given before the run."""
    inputs, expected = ([array(value) for value in values] for values in case.data_sets[0])
    names = [value.name for value in case.model.graph.input]
    given = dict(zip(names, inputs, strict=True))
    fixed = {name: value for name, value in given.items() if params and _decides(case, name)}
    results = run(case.model, fixed, given)
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        assert result.shape == value.shape and result.dtype == value.dtype, (
            f"{result.dtype} {result.shape} in place of {value.dtype} {value.shape}"
        )
        np.testing.assert_allclose(result, value, rtol=case.rtol, atol=max(case.atol, 1e-6))


def _decides(case, name: str) -> bool:
    node = case.model.graph.node[0]
    return any(place < len(node.input) and node.input[place] == name for place in VALUE_INPUTS.get(node.op_type, ()))


def judged(case, run: Run, *, params: bool = False) -> str:
    """ "ok", "refused: <sentence>" or "wrong: <difference>"."""
    try:
        check(case, run, params=params)
    except TilingError as error:
        return f"refused: {error}"
    except AssertionError as error:
        return f"wrong: {' | '.join(str(error).splitlines()[:6])}"
    return "ok"


def outcome(case, run: Run, *, params: bool = False) -> str:
    """What `judged` says, in a process of its own."""
    return apart(lambda: judged(case, run, params=params), SECONDS)


def outcomes(names: list[str], run: Run) -> dict[str, str]:
    """The outcome of each case: "ok", "ok with params" where values had to be given before the run, or why not."""
    found = {}
    for name in names:
        found[name] = outcome(cases()[name], run)
        if "params={" in found[name]:
            second = outcome(cases()[name], run, params=True)
            found[name] = "ok with params" if second == "ok" else second
    return found


def cause(said: str) -> str:
    """What kind of outcome it is, for counting."""
    if said.startswith(("ok", "crash", "slow")):
        return said
    if not said.startswith("refused"):
        return "wrong result" if said.startswith("wrong") else "error that is no refusal"
    if found := re.search(r"of type (\w+); accepted", said):
        return f"element type {re.sub(r'[0-9].*', '', found[1]).lower()} of 8 bits or fewer not served"
    if found := re.search(r"operators that are not served: (\w+)", said):
        return f"operator {found[1]} not served"
    if found := re.search(r"\((\w+)\) is not served in this form", said):
        return f"form of {found[1]} not served"
    return said.removeprefix("refused: ")
