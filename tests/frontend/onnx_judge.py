"""Reference results for an ONNX model, and comparison with an executable of this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_definitions import DEFINITIONS
from packaging.version import Version

from tvm_tiling.model.compile import compile_model

Arrays = Mapping[str, np.ndarray]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Arrays,
    outputs: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """Return a model whose inputs have the shapes and types of `inputs`; `outputs` are types of results by name."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for name, dtype in outputs.items()}
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


# What later releases corrected; the last one for Python 3.10 is 1.23.
newer_judge = pytest.mark.skipif(
    Version(onnxruntime.__version__) < Version("1.24"), reason="onnxruntime is too old to judge this operator"
)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime without graph optimisations, in one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def by_onnxruntime(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Return onnxruntime's outputs."""
    return [np.asarray(result) for result in session_of(model).run(None, dict(given))]


def by_reference(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Return the outputs of the onnx package's evaluator, except for operators that are defined here."""
    with np.errstate(all="ignore"):
        return [np.asarray(value) for value in ReferenceEvaluator(model, new_ops=DEFINITIONS).run(None, dict(given))]


def by_package(model: onnx.ModelProto, given: Arrays, precision: str = "float32") -> list[np.ndarray]:
    """Return this package's outputs."""
    executable = compile_model(model, cache=False, precision=precision)
    result = executable.run(*(given[name] for name in executable.signature.input_names))
    return list(result) if isinstance(result, tuple) else [result]


def check(model: onnx.ModelProto, given: Arrays, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """This package gives onnxruntime's results."""
    results, wanted = by_package(model, given), by_onnxruntime(model, given)
    assert len(results) == len(wanted)
    for result, value in zip(results, wanted, strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        np.testing.assert_allclose(result, value, rtol=rtol, atol=atol)
