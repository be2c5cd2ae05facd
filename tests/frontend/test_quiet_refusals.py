"""A refusal is one sentence, without TVM's warnings about unfinished functions."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.model.passes.dataflow import rewrite


def test_an_onnx_node_with_unsupported_attributes(capfd):
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Reshape", ["y", "shape"], ["z"])],
        "network",
        [helper.make_tensor_value_info("x", kind, [4]), helper.make_tensor_value_info("shape", 7, [2])],
        [helper.make_tensor_value_info("z", kind, None)],
    )
    with pytest.raises(UnsupportedOperator, match="not known at compile time"):
        load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    assert capfd.readouterr().err == ""


def test_a_pass_that_refuses(capfd):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(builder.emit(relax.op.exp(x)), relax.const(np.float32(1))))
        builder.emit_func_output(out)

    def refuse(*_: object) -> None:
        raise UnsupportedOperator("it is not served")

    with pytest.raises(UnsupportedOperator, match="it is not served"):
        rewrite(builder.finalize(), refuse)
    assert capfd.readouterr().err == ""
