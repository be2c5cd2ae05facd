"""The node tests that come with the onnx package, run through load_model and TVM's default build."""

from __future__ import annotations

import functools
import os
import signal
import warnings

import numpy as np
import onnx
from default_build import run
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from tvm_tiling.errors import TilingError
from tvm_tiling.frontend import load_model
from tvm_tiling.frontend.onnx_model import import_onnx  # noqa: F401  loaded once, before the processes part
from tvm_tiling.frontend.onnx_values import VALUE_INPUTS

FLOAT = onnx.TensorProto.FLOAT
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


def check(case, *, params: bool = False) -> None:
    """One case: imported, built, compared. `params`: integer and small vector inputs given before the run if needed."""
    inputs, expected = ([array(value) for value in values] for values in case.data_sets[0])
    names = [value.name for value in case.model.graph.input]
    fixed: dict[str, np.ndarray] = {}
    if params:
        fixed = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if _decides(case, name)}
    model = load_model(case.model, params=fixed)
    given = dict(zip(names, inputs, strict=True))
    results = run(model, [given[name] for name in model.input_names])
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        assert result.shape == value.shape and result.dtype == value.dtype, (
            f"{result.dtype} {result.shape} in place of {value.dtype} {value.shape}"
        )
        np.testing.assert_allclose(result, value, rtol=case.rtol, atol=max(case.atol, 1e-6))


def _decides(case, name: str) -> bool:
    node = case.model.graph.node[0]
    return any(place < len(node.input) and node.input[place] == name for place in VALUE_INPUTS.get(node.op_type, ()))


def outcome(case, *, params: bool = False, seconds: int = 60) -> str:
    """ "ok", or what went wrong, in a process of its own: a crash counts as a failure and ends nothing else."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # Of processor time: the process may be paused.
        signal.setitimer(signal.ITIMER_PROF, seconds)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            check(case, params=params)
            said = "ok"
        except TilingError as error:
            said = f"refused: {error}"
        except AssertionError as error:
            said = f"wrong: {' | '.join(str(error).split(chr(10))[:6])}"
        except BaseException as error:
            said = f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
        os.write(writer, said.encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    return said or f"crash: signal {status & 127}"


def outcomes(names: list[str]) -> dict[str, str]:
    """The outcome of each case: "ok", "ok with params" where values had to be given before the run, or why not."""
    found = {}
    for name in names:
        found[name] = outcome(cases()[name])
        if "params={" in found[name]:
            second = outcome(cases()[name], params=True)
            found[name] = "ok with params" if second == "ok" else second
    return found


if __name__ == "__main__":
    import json
    import sys

    chosen = [name for name in cases() if any(part in name for part in sys.argv[2:] or [""])]
    kept: dict[str, str] = {}
    for name in chosen:
        kept |= outcomes([name])
        with open(sys.argv[1], "w") as file:
            json.dump(kept, file, indent=1)
