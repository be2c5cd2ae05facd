"""What others compute of an ONNX model, and whether an executable of this package gives the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from tvm_tiling.model.compile import compile_model

Arrays = Mapping[str, np.ndarray]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Arrays,
    outputs: Mapping[str, str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 18,
) -> onnx.ModelProto:
    """A model whose inputs have the shapes and types of `inputs`; `outputs` are types of results by name."""
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


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """onnxruntime, operator by operator as they stand in the graph, in one thread."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def by_onnxruntime(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Outputs by onnxruntime."""
    return [np.asarray(result) for result in session_of(model).run(None, dict(given))]


class Einsum(OpRun):
    """By its definition, all products before any sum: the onnx package's own sums factors first where it may, which
    differs where a factor is infinite and those that it is multiplied by have both signs."""

    op_domain = ""

    def _run(self, *operands: np.ndarray, equation: str) -> tuple[np.ndarray]:
        left, arrow, right = equation.replace(" ", "").partition("->")
        wide = [operand.astype("float64") if operand.dtype.kind == "f" else operand for operand in operands]
        if not arrow:
            return (np.einsum(left, *wide).astype(operands[0].dtype),)
        every = "..." * ("..." in left) + "".join(sorted(set(left) - set(".,")))
        products = np.einsum(f"{left}->{every}", *wide)
        return (np.einsum(f"{every}->{right}", products).astype(operands[0].dtype),)


class OneHot(OpRun):
    """By its definition: the onnx package's own multiplies with the difference of the two values."""

    op_domain = ""

    def _run(
        self, indices: np.ndarray, depth: np.ndarray, values: np.ndarray, axis: int = -1
    ) -> tuple[np.ndarray, ...]:
        result = np.full((*indices.shape, int(depth.reshape(-1)[0])), values[0], values.dtype)
        for place in np.ndindex(*indices.shape):
            if -result.shape[-1] <= indices[place] < result.shape[-1]:
                result[(*place, int(indices[place]))] = values[1]
        return (np.moveaxis(result, -1, axis),)


def by_reference(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Outputs by the onnx package's own evaluator, but for Einsum and OneHot."""
    with np.errstate(all="ignore"):
        return [
            np.asarray(value) for value in ReferenceEvaluator(model, new_ops=[Einsum, OneHot]).run(None, dict(given))
        ]


def by_package(model: onnx.ModelProto, given: Arrays) -> list[np.ndarray]:
    """Outputs by this package."""
    executable = compile_model(model, cache=False)
    result = executable.run(*(given[name] for name in executable.signature.input_names))
    return list(result) if isinstance(result, tuple) else [result]


def check(model: onnx.ModelProto, given: Arrays, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """This package gives what onnxruntime does."""
    results, wanted = by_package(model, given), by_onnxruntime(model, given)
    assert len(results) == len(wanted)
    for result, value in zip(results, wanted, strict=True):
        assert (result.dtype, result.shape) == (value.dtype, value.shape)
        np.testing.assert_allclose(result, value, rtol=rtol, atol=atol)
