"""A refusal is one sentence, without TVM's warnings about unfinished functions, and powers compile without its warnings
of negative bases."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tvm_tiling.errors import UnsupportedOperator
from tvm_tiling.frontend import load_model
from tvm_tiling.model.compile import compile_model
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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [3.0, 3.5, 5.0])
def test_powers(exponent, dtype, capfd):
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType([6], dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.power(x, relax.const(exponent, dtype))))
    given = np.array([-1.5, -0.25, 0, 0.5, 1, 2], dtype)
    result = compile_model(builder.get(), cache=False).run(given)
    with np.errstate(invalid="ignore"):
        wanted = (given.astype("float64") ** exponent).astype(dtype)
    np.testing.assert_allclose(result, wanted, rtol=2e-3 if dtype == "float16" else 1e-6)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("p", [3.0, 4.5])
def test_distances(p, capfd):
    torch = pytest.importorskip("torch")

    class Distances(torch.nn.Module):
        def forward(self, x, y):
            return torch.cdist(x, y, p=p)

    x, y = torch.rand(4, 5), torch.rand(6, 5)
    result = compile_model(torch.export.export(Distances(), (x, y)), cache=False).run(x.numpy(), y.numpy())
    np.testing.assert_allclose(result, torch.cdist(x, y, p=p).numpy(), rtol=1e-5)
    assert "pow" not in capfd.readouterr().err
