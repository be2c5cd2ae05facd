"""ONNX models of one operator, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any

IR_VERSION = 9


def model(
    operator: str,
    inputs: dict[str, Array],
    constants: dict[str, Array],
    output: Array,
    order: Sequence[str],
    opset: int,
    **attributes: Any,
) -> bytes:
    """Return a model that applies `operator` to `order`, names of inputs and constants, with the output "out".

    Arrays provide the types and shapes of inputs and output; constants provide their values, too.
    """
    from onnx import helper, numpy_helper

    node = helper.make_node(operator, list(order), ["out"], **attributes)
    initializers = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(
        [node], "one", [_described(*item) for item in inputs.items()], [_described("out", output)], initializers
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    return bytes(made.SerializeToString())


def _described(name: str, array: Array) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
